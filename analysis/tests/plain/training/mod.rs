//! A training in simulation: a host, a stream and CPython's generational collector.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test program uses its part of these; in some nothing is left over"
)]

use gctrace_analysis::report::Report;
use gctrace_event::{
    Annotation, CudaCall, CudaLayer, GcReason, GcSettings, GpuOp, GpuOpKind, Pause, Record,
};
use test_kit::reports::{MS, START, end, pause, process, report};

pub(crate) const US: u64 = 1_000;
pub(crate) const LATENCY_NS: u64 = 6 * US;
pub(crate) const CALL_NS: u64 = 4 * US;

/// Settings of the collector, and the explicit calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collector {
    pub(crate) thresholds: [u64; 3],
    pub(crate) enabled: bool,
    /// `gc.disable()` at the start of this step.
    pub(crate) disable_at: Option<u64>,
    pub(crate) freeze_after: Option<u64>,
    /// `gc.collect()` at the start of every N-th step.
    pub(crate) collect_every: Option<u64>,
}

pub(crate) const DEFAULT: Collector = Collector {
    thresholds: [700, 10, 10],
    enabled: true,
    disable_at: None,
    freeze_after: None,
    collect_every: None,
};

/// The actions of a program in each of its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) steps: u64,
    pub(crate) launches: u64,
    pub(crate) kernel_ns: u64,
    pub(crate) think_ns: u64,
    /// Container objects made before each launch.
    pub(crate) objects: u64,
    /// Of 100 of them, how many live on; another 20 become garbage in cycles.
    pub(crate) kept: u64,
    /// Objects in the heap before the first step.
    pub(crate) heap: u64,
    /// A synchronizing call at the end of every N-th step.
    pub(crate) sync_every: u64,
}

pub(crate) const PROGRAM: Program = Program {
    steps: 45,
    launches: 30,
    kernel_ns: 200 * US,
    think_ns: 40 * US,
    objects: 900,
    kept: 15,
    heap: 30_000,
    sync_every: 1,
};

/// Nanoseconds for each object that is gone through, and for each collection.
pub(crate) const PER_OBJECT_NS: u64 = 40;
pub(crate) const PER_COLLECTION_NS: u64 = 3 * US;
/// For each that a full collection frees, which left the caches.
pub(crate) const PER_FREED_NS: u64 = 120;

pub(crate) struct Outcome {
    pub(crate) records: Vec<Record>,
    pub(crate) length_ns: u64,
    pub(crate) step_ns: u64,
}

pub(crate) struct Simulation {
    pub(crate) records: Vec<Record>,
    pub(crate) now_ns: u64,
    pub(crate) gpu_ns: u64,
    pub(crate) first_ns: Option<u64>,
    pub(crate) correlation: u64,
    pub(crate) collector: Collector,
    /// Objects of each generation that live, and that are garbage.
    pub(crate) live: [u64; 3],
    pub(crate) garbage: [u64; 3],
    pub(crate) counts: [u64; 3],
    pub(crate) long_lived: u64,
    pub(crate) pending: u64,
}

impl Simulation {
    pub(crate) fn new(collector: Collector, heap: u64) -> Self {
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

    pub(crate) fn call(&mut self, function: &'static str, start_ns: u64) {
        self.first_ns.get_or_insert(start_ns);
        self.records.push(Record::CudaCall(CudaCall {
            pid: 1,
            tid: 1,
            layer: CudaLayer::Runtime,
            function: function.into(),
            start_ns,
            end_ns: self.now_ns,
            stream: Some(7),
            correlation: Some(self.correlation),
            ..CudaCall::default()
        }));
    }

    pub(crate) fn launch(&mut self, kernel_ns: u64) {
        self.correlation += 1;
        let start_ns = self.now_ns;
        self.now_ns += CALL_NS;
        self.call("cudaLaunchKernel", start_ns);
        let kernel_start_ns = self.gpu_ns.max(start_ns + LATENCY_NS);
        self.gpu_ns = kernel_start_ns + kernel_ns;
        self.records.push(Record::GpuOp(GpuOp {
            pid: Some(1),
            device: 0,
            stream: 7,
            kind: GpuOpKind::Kernel,
            name: "gemm".to_owned(),
            start_ns: kernel_start_ns,
            end_ns: self.gpu_ns,
            correlation: Some(self.correlation),
            ..GpuOp::default()
        }));
    }

    pub(crate) fn synchronize(&mut self) {
        self.correlation += 1;
        let start_ns = self.now_ns;
        self.now_ns = (start_ns + CALL_NS).max(self.gpu_ns + LATENCY_NS);
        self.call("cudaStreamSynchronize", start_ns);
    }

    /// `gc_select_generation` of CPython 3.8 - 3.13.
    pub(crate) fn allocate(&mut self, objects: u64, kept: u64) {
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
        self.collect(generation, GcReason::Automatic);
    }

    pub(crate) fn collect(&mut self, generation: usize, reason: GcReason) {
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
        let start_ns = self.now_ns;
        self.now_ns += PER_COLLECTION_NS + PER_OBJECT_NS * (live + garbage);
        if generation == 2 {
            self.now_ns += PER_FREED_NS * garbage;
        }
        self.records.push(Record::Pause(Pause {
            start_ns,
            end_ns: self.now_ns,
            generation: generation as u8,
            reason,
            collected: Some(garbage),
            oldest_objects: Some(self.long_lived),
            ..pause(1, 0, 1)
        }));
    }

    pub(crate) fn freeze(&mut self) {
        self.live = [0; 3];
        self.garbage = [0; 3];
        self.counts = [0; 3];
    }
}

pub(crate) fn run(program: Program, collector: Collector) -> Outcome {
    let mut simulation = Simulation::new(collector, program.heap);
    let [t0, t1, t2] = collector.thresholds;
    simulation.records.push(Record::Settings(GcSettings {
        pid: 1,
        at_ns: START,
        enabled: Some(collector.enabled),
        thresholds: [t0 as i32, t1 as i32, t2 as i32],
        stack: None,
    }));
    for step in 0..program.steps {
        let start_ns = simulation.now_ns;
        if collector.disable_at == Some(step) {
            simulation.collector.enabled = false;
        }
        if collector.collect_every.is_some_and(|every| step > 0 && step % every == 0) {
            simulation.collect(2, GcReason::Manual);
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
            start_ns,
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

pub(crate) fn analyzed(outcome: &Outcome) -> Report {
    let mut records = vec![process(1, 0, "generational")];
    records.extend(outcome.records.iter().cloned());
    let last_ms = (outcome.length_ns / MS) + 100;
    report(records, Some(end(last_ms)))
}
