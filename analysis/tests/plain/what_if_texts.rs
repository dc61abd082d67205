//! Verdict and advice from predictions, and predictions from traces that contain little or
//! nonsense.

use crate::training;

use gctrace_analysis::report::{AdviceId, Basis, Level, PredictionMethod, ScenarioId};
use gctrace_event::{
    Annotation, DeviceMemory, GcReason, GpuOp, GpuOpKind, Pause, PauseMemory, Pressure, Record,
};
use proptest::prelude::*;
use test_kit::reports::{MS, START, end, pause, process, report};
use training::{DEFAULT, PROGRAM, Program, Simulation, US, analyzed, of, run};

/// Pauses far shorter than the work queued on the GPU.
fn far_ahead() -> Program {
    Program { kernel_ns: 2 * MS, heap: 3_000, objects: 1_100, ..PROGRAM }
}

#[test]
fn hidden_pauses_are_not_the_problem() {
    let measured = run(far_ahead(), DEFAULT);
    let report = analyzed(&measured);
    let verdict = &report.verdict;
    assert_eq!(verdict.level, Level::Negligible, "{verdict:?}");
    assert_eq!(verdict.basis, Basis::Inferred);
    // By pause time alone it would have been.
    let paused: u64 = report.totals.pauses.time_ns;
    assert!(paused > 10 * (of(&report, ScenarioId::Disable).unwrap().saved_ns.at_most_ns as u64));
    let ids: Vec<AdviceId> = report.advice.iter().map(|advice| advice.id).collect();
    assert_eq!(ids, [AdviceId::Leave]);
    assert!(report.gpu_cost.is_some());
}

#[test]
fn exposed_pauses_cost_and_advice_helps() {
    let host_bound = Program { kernel_ns: 10 * US, ..PROGRAM };
    let measured = run(host_bound, DEFAULT);
    let report = analyzed(&measured);
    assert_eq!(report.verdict.level, Level::Heavy);
    let mut priced = report.advice.iter().chain(&report.not_advised);
    let planned = priced.find(|priced| priced.id == AdviceId::Planned).unwrap();
    let every = of(&report, ScenarioId::Planned).unwrap().every_steps.unwrap();
    let prediction = report.prediction(AdviceId::Planned).unwrap();
    assert_eq!(prediction.every_steps, Some(every));
    assert!(prediction.step.is_some() && prediction.garbage.is_some());
    assert!(planned.effect.saves_at_most_ns.unwrap() > 0);
    for advice in &report.advice {
        let most = advice.effect.saves_at_most_ns.unwrap();
        assert!(most <= of(&report, ScenarioId::Disable).unwrap().saved_ns.at_most_ns as u64);
        assert!(
            advice.effect.saves_at_least_ns.is_none_or(|least| least > 0 && least <= most as i64)
        );
    }
}

#[test]
fn the_end_of_the_interpreter_is_not_charged() {
    let mut measured = run(far_ahead(), DEFAULT);
    let before = analyzed(&measured);
    let last_ns = START + measured.length_ns + MS;
    measured.records.push(Record::Pause(Pause {
        start_ns: last_ns,
        end_ns: last_ns + 90 * MS,
        generation: 2,
        reason: GcReason::Shutdown,
        ..pause(1, 0, 1)
    }));
    let report = analyzed(&measured);
    assert_eq!(report.verdict.level, before.verdict.level);
    assert!(report.pauses_of(GcReason::Shutdown).is_some());
    assert_eq!(
        of(&report, ScenarioId::Disable).unwrap().run,
        of(&before, ScenarioId::Disable).unwrap().run
    );
}

/// Without GPU times what-if's saving is a bound, the advice is simulated, and the level follows
/// from the pause time.
#[test]
fn without_gpu_times_there_are_upper_bounds() {
    let mut measured = run(far_ahead(), DEFAULT);
    measured.records.retain(|record| !matches!(record, Record::GpuOp(_)));
    let report = analyzed(&measured);
    assert_ne!(report.verdict.level, Level::Negligible);
    for what in &report.what_if {
        assert_eq!(what.method, PredictionMethod::PauseTime);
        assert_eq!(what.saved_ns.at_least_ns, None);
        assert!(what.run.is_none() && what.step.is_none());
    }
    let mut effects = report.advice.iter().map(|advice| &advice.effect);
    assert!(effects.all(|effect| {
        effect.settings.is_none() || effect.saves_at_least_ns <= effect.saves_likely_ns
    }));
}

/// Traces of the PyTorch profiler contain neither generation nor reason nor objects.
#[test]
fn unknowns_widen_the_interval() {
    let mut measured = run(PROGRAM, DEFAULT);
    for record in &mut measured.records {
        if let Record::Pause(pause) = record {
            pause.generation = Pause::UNKNOWN_GENERATION;
            pause.reason = GcReason::Unknown;
            (pause.collected, pause.oldest_objects) = (None, None);
        }
    }
    let report = analyzed(&measured);
    let disable = of(&report, ScenarioId::Disable).unwrap();
    assert_eq!(disable.pause_time_saved_ns.at_least_ns, 0);
    assert_eq!(disable.pause_time_saved_ns.at_most_ns as u64, report.totals.pauses.time_ns);
    assert!(disable.garbage.is_none());
    assert!(of(&report, ScenarioId::Planned).is_none());
    assert!(of(&report, ScenarioId::Explicit).is_none());
}

/// Bytes are known where arenas and torch's memory were recorded: the bytes of the largest heap for
/// each of its objects, and what pauses gave back.
#[test]
fn garbage_is_weighed_where_memory_was_recorded() {
    let mut measured = run(PROGRAM, DEFAULT);
    let without = analyzed(&measured);
    let plain = of(&without, ScenarioId::Planned).unwrap().garbage.unwrap();
    assert!(plain.objects > 0 && plain.host_bytes.is_none() && plain.device_bytes.is_none());

    measured.records.push(Record::Pressure(Pressure {
        pid: 1,
        since_ns: START,
        at_ns: START + measured.length_ns,
        net_containers: 1,
        arenas_mapped: Some(300),
        arenas_unmapped: Some(0),
        ..Pressure::default()
    }));
    measured.records.push(Record::DeviceMemory(DeviceMemory {
        pid: 1,
        tid: 1,
        at_ns: START,
        device_type: 1,
        device: 0,
        bytes: 1 << 20,
        allocated: 1 << 30,
        reserved: 1 << 30,
    }));
    measured.records.push(Record::PauseMemory(PauseMemory {
        pid: 1,
        tid: 1,
        start_ns: START + MS,
        end_ns: START + 2 * MS,
        device_type: 1,
        device: 0,
        freed_bytes: 64 << 20,
        freed_blocks: 4,
    }));
    let mut records = vec![with_version(process(1, 0, "generational"), "3.11.7")];
    records.append(&mut measured.records);
    let report = report(records, Some(end(measured.length_ns / MS + 100)));
    let disable = of(&report, ScenarioId::Disable).unwrap();
    let garbage = disable.garbage.unwrap();
    let growth = report.processes[0].growth.as_ref().unwrap();
    let each = (300 << 20) / growth.largest.objects;
    assert_eq!(garbage.host_bytes, Some(each * garbage.objects));
    let span_ns = report.processes[0].observed_ns;
    let device = (64 << 20) as f64 * garbage.over_ns as f64 / span_ns as f64;
    let ratio = garbage.device_bytes.unwrap() as f64 / device;
    assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
    // 64 MiB in the run are more than 5 % of what PyTorch reserved, so planned collections are
    // within it.
    let planned = of(&report, ScenarioId::Planned).unwrap();
    assert!(planned.every_steps.unwrap() < PROGRAM.steps, "{planned:?}");
    assert!(planned.garbage.unwrap().device_bytes.unwrap() <= (1 << 30) / 20);
}

fn with_version(record: Record, version: &str) -> Record {
    match record {
        Record::Process(mut process) => {
            if let Some(interpreter) = &mut process.interpreter {
                version.clone_into(&mut interpreter.version);
            }
            Record::Process(process)
        }
        other => other,
    }
}

/// Timestamps that no tool would write: close together, far apart, at the end of time.
fn timestamp() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (0u64..5_000).prop_map(|us| START + us * US),
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ]
}

proptest! {
        /// For any trace, a prediction is an interval.
    #[test]
    fn predictions_of_any_trace_are_intervals(
        work in prop::collection::vec((timestamp(), timestamp(), 0u64..3), 0..30),
        pauses in prop::collection::vec((timestamp(), timestamp(), 0u8..4, 0usize..4, any::<Option<u64>>()), 0..20),
        steps in prop::collection::vec((timestamp(), timestamp()), 0..8),
    ) {
        let program = Program { steps: 3, ..PROGRAM };
        let mut records = run(program, DEFAULT).records;
        let mut simulation = Simulation::new(DEFAULT, 0);
        for (one, other, correlation) in work {
            simulation.correlation = correlation;
            simulation.now_ns = one.max(other);
            simulation.call("cudaLaunchKernel", one.min(other));
            records.push(Record::GpuOp(GpuOp {
                pid: Some(1),
                device: 0,
                stream: 7,
                kind: GpuOpKind::Kernel,
                name: "any".to_owned(),
                start_ns: one.min(other),
                end_ns: one.max(other),
                correlation: Some(correlation),
                ..GpuOp::default()
            }));
        }
        records.append(&mut simulation.records);
        let reasons = [GcReason::Automatic, GcReason::Manual, GcReason::Shutdown, GcReason::Unknown];
        for (one, other, generation, reason, objects) in pauses {
            records.push(Record::Pause(Pause {
                start_ns: one.min(other),
                end_ns: one.max(other),
                generation: if generation == 3 { Pause::UNKNOWN_GENERATION } else { generation },
                reason: reasons[reason],
                oldest_objects: objects,
                collected: objects,
                ..pause(1, 0, 1)
            }));
        }
        for (step, (one, other)) in steps.into_iter().enumerate() {
            records.push(Record::Annotation(Annotation {
                pid: 1,
                tid: 1,
                name: format!("ProfilerStep#{step}"),
                start_ns: one.min(other),
                end_ns: one.max(other),
            }));
        }
        let mut all = vec![process(1, 0, "generational")];
        all.append(&mut records);
        let report = report(all, Some(end(1_000)));
        for what in &report.what_if {
            let less = what.pause_time_saved_ns;
            prop_assert!(less.at_least_ns <= less.at_most_ns, "{:?}", what);
            if let Some(run) = what.run {
                prop_assert!(run.at_least_ns <= run.at_most_ns, "{:?}", what);
                prop_assert!(what.saved_ns.at_least_ns.is_some_and(|least| least <= what.saved_ns.at_most_ns));
            }
            if let Some(step) = what.step {
                prop_assert!(step.at_least_ns <= step.at_most_ns, "{:?}", what);
            }
        }
        // In no figure, and so in no sentence.
        let figures = format!("{report:?}");
        prop_assert!(!figures.contains("NaN"));
    }
}
