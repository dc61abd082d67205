//! Sentences of a report as if its pauses had been replayed.

use super::{advice, verdict};
use crate::Analysis;
use crate::report::{
    AdviceEffect, AdviceId, GpuCost, LibraryReport, LinesReport, PauseTotal, Report,
    TrainingLibrary,
};
use gctrace_event::read::{EventReader, TraceInput, TraceReader};

const TRACE: &str = r#"[
{"ph":"M","name":"gctrace_header","pid":0,"tid":0,"ts":0,"args":{"format":"gctrace.trace/1","gctrace":"0.1.0","command":["python"],"started_ns":0}},
{"ph":"M","name":"gctrace_process","pid":1,"tid":1,"ts":0,"args":{"origin":"launched","command":["python"]}},
{"ph":"X","cat":"gc","name":"gc","pid":1,"tid":1,"ts":500000,"dur":350000,"args":{"generation":2,"reason":"automatic","collected":0}},
{"ph":"X","cat":"gc","name":"gc","pid":1,"tid":1,"ts":6900000,"dur":20000,"args":{"generation":2,"reason":"shutdown","collected":5}}
]"#;

fn of(trace: &str) -> Report {
    let bytes = std::io::Cursor::new(trace.as_bytes().to_vec());
    let input = TraceInput::new("trace.json", bytes).unwrap();
    let mut reader = TraceReader::new(EventReader::new(input));
    let mut analysis = Analysis::default();
    analysis.begin_trace("trace.json");
    while let Some(item) = reader.next_item().unwrap() {
        analysis.add(item);
    }
    analysis.end_trace(reader.finish(), None);
    analysis.settle();
    analysis.report()
}

fn replayed() -> Report {
    let mut report = of(TRACE);
    report.gpu_cost = Some(GpuCost {
        run_ns: 7_000_000_000,
        cost_ns: 900_000_000,
        error_ns: None,
        pauses: PauseTotal { count: 19, time_ns: 1_500_000_000 },
        longest_ns: 350_000_000,
    });
    report
}

/// The code of an advice for a program whose loop is this library's.
fn code_in(library: TrainingLibrary, id: AdviceId) -> String {
    let mut report = of(TRACE);
    report.phases = None;
    report.lines = Some(LinesReport {
        libraries: vec![LibraryReport {
            library,
            switch: library.switch(),
            pauses: PauseTotal::default(),
        }],
        ..LinesReport::default()
    });
    advice::advice(id, AdviceEffect::default(), &report).code.unwrap()
}

#[test]
fn the_loop_of_a_library_is_given_a_callback() {
    for (library, at_step) in [
        (TrainingLibrary::Lightning, "def on_train_batch_end(self, trainer, module, outputs, "),
        (TrainingLibrary::Transformers, "def on_step_end(self, args, state, control, **kwargs):"),
    ] {
        let code = code_in(library, AdviceId::Planned);
        assert!(code.contains(at_step) && !code.contains("for step, batch"), "{code}");
        let code = code_in(library, AdviceId::Freeze);
        assert!(code.contains("# in on_train_"), "{code}");
    }
    // It has a switch of its own.
    let code = code_in(TrainingLibrary::Torchtitan, AdviceId::Planned);
    assert!(code.contains("for step, batch"), "{code}");
}

#[test]
fn a_program_without_steps_has_no_training_loop() {
    let code = advice::advice(AdviceId::Freeze, AdviceEffect::default(), &of(TRACE)).code.unwrap();
    assert!(code.contains("# after everything is loaded, before the work begins:\n"), "{code}");
    assert!(!code.contains("training"), "{code}");
}

#[test]
fn a_parent_s_heap_is_frozen_before_the_fork() {
    let advice = advice::advice(AdviceId::FreezeBeforeFork, AdviceEffect::default(), &of(TRACE));
    let code = advice.code.unwrap();
    assert!(advice.action.contains("before it forks"), "{}", advice.action);
    assert!(
        code.contains("before Pool(), fork() or workers:\ngc.collect()\ngc.freeze()"),
        "{code}"
    );
    assert!(advice.why.contains("pages shared with the parent are copied"), "{}", advice.why);
}

/// In-process no pause has a reason; the words count what the rules of the collector say.
#[test]
fn pauses_without_reasons_are_counted_by_what_is_likely() {
    let unknown = TRACE.replace("\"automatic\"", "\"unknown\"");
    let report = of(&unknown);
    for id in [AdviceId::RaiseThreshold, AdviceId::Disable] {
        let why = advice::advice(id, AdviceEffect::default(), &report).why;
        assert!(!why.contains("took 0 ns") && !why.starts_with("0 "), "{why}");
    }
}

#[test]
fn the_end_of_the_interpreter_is_not_in_the_cost() {
    let sentence = verdict::sentence(&replayed());
    let end = " The 20.0 ms of collections at interpreter shutdown are not included.";
    assert!(sentence.ends_with(end), "{sentence}");
    assert!(sentence.contains("by replay"), "{sentence}");
}
