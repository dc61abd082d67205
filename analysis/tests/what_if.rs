//! Predictions against programs that are run again with the change: a small simulation of a host, a stream and CPython's
//! generational collector.

mod common;

use common::MS;
use common::START;
use common::end;
use common::pause;
use common::process;
use common::report;
use gctrace_analysis::report::Basis;
use gctrace_analysis::report::Level;
use gctrace_analysis::report::Report;
use gctrace_analysis::report::WhatIf;
use gctrace_event::Annotation;
use gctrace_event::CudaCall;
use gctrace_event::CudaLayer;
use gctrace_event::GpuOp;
use gctrace_event::GpuOpKind;
use gctrace_event::Pause;
use gctrace_event::Reason;
use gctrace_event::Record;
use gctrace_event::Settings;
use proptest::prelude::*;

const US: u64 = 1_000;
const LATENCY_NS: u64 = 6 * US;
const CALL_NS: u64 = 4 * US;

/// How the collector is set, and by whom it is called.
#[derive(Clone, Copy, Debug)]
struct Collector {
    thresholds: [u64; 3],
    enabled: bool,
    freeze_after: Option<u64>,
    /// `gc.collect()` at the begin of every so many steps.
    collect_every: Option<u64>,
}

const DEFAULT: Collector = Collector {
    thresholds: [700, 10, 10],
    enabled: true,
    freeze_after: None,
    collect_every: None,
};

/// What a program does in each of its steps.
#[derive(Clone, Copy, Debug)]
struct Program {
    steps: u64,
    launches: u64,
    kernel_ns: u64,
    think_ns: u64,
    /// Container objects made before each launch.
    objects: u64,
    /// Of 100 of them, how many live on; another 20 become garbage in cycles.
    kept: u64,
    /// Objects in the heap before the first step.
    heap: u64,
    /// A synchronising call at the end of every so many steps.
    sync_every: u64,
}

const PROGRAM: Program = Program {
    steps: 45,
    launches: 30,
    kernel_ns: 200 * US,
    think_ns: 40 * US,
    objects: 900,
    kept: 15,
    heap: 30_000,
    sync_every: 1,
};

/// Nanoseconds for each object that a collection looks at, and for each collection.
const PER_OBJECT_NS: u64 = 40;
const PER_COLLECTION_NS: u64 = 3 * US;

struct Outcome {
    records: Vec<Record>,
    length_ns: u64,
    step_ns: u64,
}

struct Simulation {
    records: Vec<Record>,
    now_ns: u64,
    gpu_ns: u64,
    first_ns: Option<u64>,
    correlation: u64,
    collector: Collector,
    /// Objects of each generation that live, and that are garbage.
    live: [u64; 3],
    garbage: [u64; 3],
    counts: [u64; 3],
    long_lived: u64,
    pending: u64,
}

impl Simulation {
    fn new(collector: Collector, heap: u64) -> Self {
        Self {
            records: Vec::new(),
            now_ns: START,
            gpu_ns: 0,
            first_ns: None,
            correlation: 0,
            collector,
            live: [0, 0, heap],
            garbage: [0; 3],
            counts: [0; 3],
            long_lived: heap,
            pending: 0,
        }
    }

    fn call(&mut self, function: &'static str, begin_ns: u64) {
        self.first_ns.get_or_insert(begin_ns);
        self.records.push(Record::CudaCall(CudaCall {
            pid: 1,
            tid: 1,
            layer: CudaLayer::Runtime,
            function: function.into(),
            begin_ns,
            end_ns: self.now_ns,
            stream: Some(7),
            bytes: None,
            grid: None,
            correlation: Some(self.correlation),
            error: None,
        }));
    }

    fn launch(&mut self, kernel_ns: u64) {
        self.correlation += 1;
        let begin_ns = self.now_ns;
        self.now_ns += CALL_NS;
        self.call("cudaLaunchKernel", begin_ns);
        let kernel_begin_ns = self.gpu_ns.max(begin_ns + LATENCY_NS);
        self.gpu_ns = kernel_begin_ns + kernel_ns;
        self.records.push(Record::GpuOp(GpuOp {
            pid: Some(1),
            device: 0,
            stream: 7,
            kind: GpuOpKind::Kernel,
            name: "gemm".to_owned(),
            begin_ns: kernel_begin_ns,
            end_ns: self.gpu_ns,
            correlation: Some(self.correlation),
            bytes: None,
            collective: None,
        }));
    }

    fn synchronize(&mut self) {
        self.correlation += 1;
        let begin_ns = self.now_ns;
        self.now_ns = (begin_ns + CALL_NS).max(self.gpu_ns + LATENCY_NS);
        self.call("cudaStreamSynchronize", begin_ns);
    }

    /// `gc_select_generation` of CPython 3.8 - 3.13.
    fn allocate(&mut self, objects: u64, kept: u64) {
        self.live[0] += objects * kept / 100;
        self.garbage[0] += objects * 20 / 100;
        self.counts[0] += objects * (kept + 20) / 100;
        let [t0, t1, t2] = self.collector.thresholds;
        if !self.collector.enabled || self.counts[0] <= t0 {
            return;
        }
        let generation = match () {
            () if self.counts[2] > t2 && self.pending >= self.long_lived / 4 => 2,
            () if self.counts[1] > t1 => 1,
            () => 0,
        };
        self.collect(generation, Reason::Automatic);
    }

    fn collect(&mut self, generation: usize, reason: Reason) {
        let live: u64 = self.live[..=generation].iter().sum();
        let garbage: u64 = self.garbage[..=generation].iter().sum();
        for younger in 0..=generation {
            (self.live[younger], self.garbage[younger]) = (0, 0);
            self.counts[younger] = 0;
        }
        self.live[(generation + 1).min(2)] += live;
        match generation {
            2 => (self.long_lived, self.pending) = (self.live[2], 0),
            1 => self.pending += live,
            _ => {}
        }
        if let Some(count) = self.counts.get_mut(generation + 1) {
            *count += 1;
        }
        let begin_ns = self.now_ns;
        self.now_ns += PER_COLLECTION_NS + PER_OBJECT_NS * (live + garbage);
        self.records.push(Record::Pause(Pause {
            begin_ns,
            end_ns: self.now_ns,
            generation: generation as u8,
            reason,
            collected: Some(garbage),
            oldest_objects: Some(self.long_lived),
            ..pause(1, 0, 1)
        }));
    }

    fn freeze(&mut self) {
        self.live = [0; 3];
        self.garbage = [0; 3];
        self.counts = [0; 3];
    }
}

fn run(program: Program, collector: Collector) -> Outcome {
    let mut simulation = Simulation::new(collector, program.heap);
    let [t0, t1, t2] = collector.thresholds;
    simulation.records.push(Record::Settings(Settings {
        pid: 1,
        at_ns: START,
        enabled: Some(collector.enabled),
        thresholds: [t0 as i32, t1 as i32, t2 as i32],
    }));
    for step in 0..program.steps {
        let begin_ns = simulation.now_ns;
        if collector
            .collect_every
            .is_some_and(|every| step > 0 && step % every == 0)
        {
            simulation.collect(2, Reason::Manual);
        }
        for _ in 0..program.launches {
            simulation.now_ns += program.think_ns;
            simulation.allocate(program.objects, program.kept);
            simulation.launch(program.kernel_ns);
        }
        if (step + 1) % program.sync_every == 0 {
            simulation.synchronize();
        }
        simulation.now_ns += US;
        simulation.records.push(Record::Annotation(Annotation {
            pid: 1,
            tid: 1,
            name: format!("ProfilerStep#{step}"),
            begin_ns,
            end_ns: simulation.now_ns,
        }));
        if collector.freeze_after == Some(step) {
            simulation.freeze();
        }
    }
    let end_ns = simulation.gpu_ns.max(simulation.now_ns - US);
    Outcome {
        length_ns: end_ns - simulation.first_ns.unwrap_or(end_ns),
        step_ns: (simulation.now_ns - START) / program.steps,
        records: simulation.records,
    }
}

fn analyzed(outcome: &Outcome) -> Report {
    let mut records = vec![process(1, 0, "generational")];
    records.extend(outcome.records.iter().cloned());
    let last_ms = (outcome.length_ns / MS) + 100;
    report(records, Some(end(last_ms)))
}

fn of<'a>(report: &'a Report, id: &str) -> Option<&'a WhatIf> {
    report.what_if.iter().find(|own| own.id == id)
}

/// Programs whose host is far ahead of the GPU, hardly ahead, and behind it.
fn programs() -> [Program; 4] {
    [
        PROGRAM,
        Program {
            kernel_ns: 50 * US,
            ..PROGRAM
        },
        Program {
            kernel_ns: 10 * US,
            ..PROGRAM
        },
        Program {
            kernel_ns: 46 * US,
            sync_every: 7,
            ..PROGRAM
        },
    ]
}

/// The truth lies between, but for what a replay is off on so simple a schedule.
fn holds(what: Option<&WhatIf>, truth: &Outcome, measured: &Outcome) -> Option<()> {
    let what = what?;
    assert_eq!(what.method, "replay");
    let (run, step) = (what.run?, what.step?);
    assert_eq!(run.measured_ns, measured.length_ns, "{what:?}");
    let slack_ns = 100 * US;
    assert!(
        run.at_least_ns <= truth.length_ns + slack_ns
            && truth.length_ns <= run.at_most_ns + slack_ns,
        "{} of {} is not in {what:#?}",
        truth.length_ns,
        measured.length_ns
    );
    assert!(
        step.at_least_ns <= truth.step_ns + slack_ns / 45
            && truth.step_ns <= step.at_most_ns + slack_ns / 45,
        "a step of {} is not in {what:#?}",
        truth.step_ns
    );
    assert_eq!(
        what.saved_ns.at_most_ns,
        run.measured_ns as i64 - run.at_least_ns as i64
    );
    Some(())
}

#[test]
fn without_automatic_collections() {
    for program in programs() {
        let measured = run(program, DEFAULT);
        let off = Collector {
            enabled: false,
            ..DEFAULT
        };
        let report = analyzed(&measured);
        holds(of(&report, "disable"), &run(program, off), &measured).unwrap();
    }
}

#[test]
fn planned_collections() {
    for program in programs() {
        let measured = run(program, DEFAULT);
        let report = analyzed(&measured);
        let planned = of(&report, "planned").unwrap();
        let every = planned.every_steps.unwrap();
        let collector = Collector {
            enabled: false,
            collect_every: Some(every),
            ..DEFAULT
        };
        if every * 2 > program.steps {
            // Too rare for this recording: its share is added.
            let off = Collector {
                enabled: false,
                ..DEFAULT
            };
            let without = run(program, off);
            assert!(planned.run.unwrap().at_most_ns > without.length_ns);
            continue;
        }
        holds(Some(planned), &run(program, collector), &measured).unwrap();
    }
}

#[test]
fn thresholds_ten_times_as_high() {
    for program in programs() {
        let measured = run(program, DEFAULT);
        let [young, middle, old] = DEFAULT.thresholds;
        let raised = Collector {
            thresholds: [young * 10, middle, old],
            ..DEFAULT
        };
        let report = analyzed(&measured);
        holds(of(&report, "thresholds"), &run(program, raised), &measured).unwrap();
    }
}

/// Full collections that the program asks for, so that freezing does not change how many there are.
#[test]
fn freezing_and_leaving_out_explicit_calls() {
    for program in programs() {
        let settings = Collector {
            enabled: false,
            collect_every: Some(5),
            ..DEFAULT
        };
        let measured = run(program, settings);
        let frozen = Collector {
            freeze_after: Some(0),
            ..settings
        };
        let report = analyzed(&measured);
        let freeze = of(&report, "freeze");
        holds(freeze, &run(program, frozen), &measured).unwrap();
        let without = Collector {
            collect_every: None,
            ..settings
        };
        holds(of(&report, "explicit"), &run(program, without), &measured).unwrap();
        // Nothing starts by itself, so there is nothing else to change.
        assert_eq!(report.what_if.len(), 2);
    }
}

#[test]
fn planning_is_between_disabling_and_nothing() {
    for program in programs() {
        let report = analyzed(&run(program, DEFAULT));
        let less = |id| of(&report, id).unwrap().pause_time_less_ns;
        for what in &report.what_if {
            let own = what.pause_time_less_ns;
            assert!(own.at_least_ns <= own.at_most_ns, "{what:?}");
            assert!(own.at_most_ns <= less("disable").at_most_ns, "{what:?}");
            let run = what.run.unwrap();
            assert!(run.at_least_ns <= run.at_most_ns, "{what:?}");
        }
        assert!(less("planned").at_most_ns < less("disable").at_most_ns);
    }
}

/// Pauses far shorter than what is queued on the GPU.
fn far_ahead() -> Program {
    Program {
        kernel_ns: 2 * MS,
        heap: 3_000,
        objects: 1_100,
        ..PROGRAM
    }
}

#[test]
fn hidden_pauses_are_not_the_problem() {
    let measured = run(far_ahead(), DEFAULT);
    let report = analyzed(&measured);
    let verdict = &report.verdict;
    assert_eq!(verdict.level, Level::Negligible, "{}", verdict.sentence);
    assert_eq!(verdict.basis, Basis::Inferred);
    assert!(
        verdict
            .sentence
            .starts_with("The garbage collector is not the problem"),
        "{}",
        verdict.sentence
    );
    // By pause time alone it would have been.
    let paused: u64 = report.totals.pauses.time_ns;
    assert!(paused > 10 * (of(&report, "disable").unwrap().saved_ns.at_most_ns as u64));
    let ids: Vec<&str> = report.advice.iter().map(|own| own.id.as_str()).collect();
    assert_eq!(ids, ["leave"]);
    assert!(report.advice[0].why.contains("By replay"));
}

#[test]
fn exposed_pauses_are_and_the_advice_says_what_helps() {
    let host_bound = Program {
        kernel_ns: 10 * US,
        ..PROGRAM
    };
    let measured = run(host_bound, DEFAULT);
    let report = analyzed(&measured);
    assert_eq!(report.verdict.level, Level::Heavy);
    let planned = report.advice.iter().find(|own| own.id == "planned");
    let planned = planned.unwrap();
    let every = of(&report, "planned").unwrap().every_steps.unwrap();
    assert!(
        planned
            .code
            .as_ref()
            .unwrap()
            .contains(&format!("step % {every} == 0"))
    );
    assert!(planned.saves_at_least_ns.unwrap() > 0);
    assert!(planned.risk.as_ref().unwrap().contains("objects"));
    assert!(
        planned.why.contains("By replay a step takes"),
        "{}",
        planned.why
    );
    for advice in &report.advice {
        let most = advice.saves_at_most_ns.unwrap();
        assert!(most <= of(&report, "disable").unwrap().saved_ns.at_most_ns as u64);
        assert!(
            advice
                .saves_at_least_ns
                .is_none_or(|least| least <= most as i64)
        );
    }
}

#[test]
fn the_end_of_the_interpreter_is_not_charged() {
    let mut measured = run(far_ahead(), DEFAULT);
    let before = analyzed(&measured);
    let last_ns = START + measured.length_ns + MS;
    measured.records.push(Record::Pause(Pause {
        begin_ns: last_ns,
        end_ns: last_ns + 90 * MS,
        generation: 2,
        reason: Reason::Shutdown,
        ..pause(1, 0, 1)
    }));
    let report = analyzed(&measured);
    assert_eq!(report.verdict.level, before.verdict.level);
    assert!(
        report.verdict.sentence.contains("not charged"),
        "{}",
        report.verdict.sentence
    );
    assert_eq!(
        of(&report, "disable").unwrap().run,
        of(&before, "disable").unwrap().run
    );
}

/// Without the GPU's times what is saved is a bound, and the level is that of the pause time, as ever.
#[test]
fn without_gpu_times_there_are_upper_bounds() {
    let mut measured = run(far_ahead(), DEFAULT);
    measured
        .records
        .retain(|record| !matches!(record, Record::GpuOp(_)));
    let report = analyzed(&measured);
    assert_ne!(report.verdict.level, Level::Negligible);
    for what in &report.what_if {
        assert_eq!(what.method, "pause-time");
        assert_eq!(what.saved_ns.at_least_ns, None);
        assert!(what.run.is_none() && what.step.is_none());
    }
    assert!(
        report
            .advice
            .iter()
            .all(|own| own.saves_at_least_ns.is_none())
    );
}

/// Traces of the PyTorch profiler say neither generation nor reason nor objects.
#[test]
fn what_no_trace_tells_widens_the_interval() {
    let mut measured = run(PROGRAM, DEFAULT);
    for record in &mut measured.records {
        if let Record::Pause(pause) = record {
            pause.generation = Pause::UNKNOWN_GENERATION;
            pause.reason = Reason::Unknown;
            (pause.collected, pause.oldest_objects) = (None, None);
        }
    }
    let report = analyzed(&measured);
    let disable = of(&report, "disable").unwrap();
    assert_eq!(disable.pause_time_less_ns.at_least_ns, 0);
    assert_eq!(
        disable.pause_time_less_ns.at_most_ns as u64,
        report.totals.pauses.time_ns
    );
    assert!(disable.garbage.is_none());
    let ids: Vec<&str> = report.what_if.iter().map(|own| own.id.as_str()).collect();
    assert!(!ids.contains(&"planned") && !ids.contains(&"explicit"));
}

/// Moments of a trace that nobody wrote by hand: close together, far apart, at the end of time.
fn moment() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (0u64..5_000).prop_map(|us| START + us * US),
        1 => Just(0),
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Whatever a trace holds, what is predicted is an interval.
    #[test]
    fn predictions_of_any_trace_are_intervals(
        work in prop::collection::vec((moment(), moment(), 0u64..3), 0..30),
        pauses in prop::collection::vec((moment(), moment(), 0u8..4, 0usize..4, any::<Option<u64>>()), 0..20),
        steps in prop::collection::vec((moment(), moment()), 0..8),
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
                begin_ns: one.min(other),
                end_ns: one.max(other),
                correlation: Some(correlation),
                bytes: None,
                collective: None,
            }));
        }
        records.append(&mut simulation.records);
        let reasons = [Reason::Automatic, Reason::Manual, Reason::Shutdown, Reason::Unknown];
        for (one, other, generation, reason, objects) in pauses {
            records.push(Record::Pause(Pause {
                begin_ns: one.min(other),
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
                begin_ns: one.min(other),
                end_ns: one.max(other),
            }));
        }
        let mut all = vec![process(1, 0, "generational")];
        all.append(&mut records);
        let report = report(all, Some(end(1_000)));
        for what in &report.what_if {
            let less = what.pause_time_less_ns;
            prop_assert!(less.at_least_ns <= less.at_most_ns, "{:?}", what);
            if let Some(run) = what.run {
                prop_assert!(run.at_least_ns <= run.at_most_ns, "{:?}", what);
                prop_assert!(what.saved_ns.at_least_ns.is_some_and(|least| least <= what.saved_ns.at_most_ns));
            }
            if let Some(step) = what.step {
                prop_assert!(step.at_least_ns <= step.at_most_ns, "{:?}", what);
            }
            prop_assert!(!what.risk.contains("NaN") && !what.assumes.is_empty());
        }
        for advice in &report.advice {
            prop_assert!(!advice.why.contains("NaN"), "{}", advice.why);
        }
        prop_assert!(!report.verdict.sentence.contains("NaN"));
    }
}
