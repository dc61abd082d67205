//! Predictions against programs that are run again with the change: a small simulation of a host, a stream and CPython's
//! generational collector.

mod common;

use common::MS;
use common::START;
use common::end;
use common::pause;
use common::process;
use common::report;
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
    steps: 60,
    launches: 40,
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
        length_ns: end_ns - simulation.first_ns.unwrap(),
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

fn of<'a>(report: &'a Report, id: &str) -> &'a WhatIf {
    let found = report.what_if.iter().find(|own| own.id == id);
    found.unwrap_or_else(|| panic!("no {id} in {:?}", report.what_if))
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
fn holds(what: &WhatIf, truth: &Outcome, measured: &Outcome) {
    assert_eq!(what.method, "replay");
    let (run, step) = (what.run.unwrap(), what.step.unwrap());
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
        step.at_least_ns <= truth.step_ns + slack_ns / 60
            && truth.step_ns <= step.at_most_ns + slack_ns / 60,
        "a step of {} is not in {what:#?}",
        truth.step_ns
    );
    assert_eq!(
        what.saved_ns.at_most_ns,
        run.measured_ns as i64 - run.at_least_ns as i64
    );
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
        holds(of(&report, "disable"), &run(program, off), &measured);
    }
}

#[test]
fn planned_collections() {
    for program in programs() {
        let measured = run(program, DEFAULT);
        let report = analyzed(&measured);
        let planned = of(&report, "planned");
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
        holds(planned, &run(program, collector), &measured);
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
        holds(of(&report, "thresholds"), &run(program, raised), &measured);
    }
}

/// Full collections that the program asks for, so that freezing does not change how many there are.
#[test]
fn freezing_after_the_first_step() {
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
        holds(freeze, &run(program, frozen), &measured);
        // Nothing starts by itself, so there is nothing else to change.
        assert_eq!(report.what_if.len(), 1);
    }
}

#[test]
fn planning_is_between_disabling_and_nothing() {
    for program in programs() {
        let report = analyzed(&run(program, DEFAULT));
        let less = |id| of(&report, id).pause_time_less_ns;
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
