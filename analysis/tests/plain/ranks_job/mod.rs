//! A distributed job simulated forward: the contents of each rank's trace, and its true end.
//!
//! One host thread per rank launches to a compute stream and a stream for collectives; each
//! collective starts on a rank when that is ready and ends on all ranks together. Nothing here is
//! shared with the analysis.

#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::expect_used,
    clippy::panic,
    reason = "each test program uses its part of a run; helpers of tests fail by panicking"
)]

use gctrace_analysis::gpu::collect::{TimelineCollector, TimelineContext};
use gctrace_analysis::gpu::ranks::{RankJobs, jobs};
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_event::{
    Annotation, Collective, CudaCall, CudaLayer, GcReason, GpuOp, GpuOpKind, GpuSync, GpuSyncKind,
    Pause, Record,
};
use std::collections::BTreeMap;

const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// Start of the jobs in tests.
pub(crate) const START: u64 = 100_000 * MS;
const COMPUTE: u64 = 7;
/// For collectives of all ranks, and of a few.
const COMMUNICATION: u64 = 20;
const COMMUNICATION_OF_FEW: u64 = 22;
/// From a launch to the start of its kernel on an idle stream.
const LATENCY: u64 = 5 * US;
const ALL_REDUCE: &str =
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)";

/// The actions of a job.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) ranks: u32,
    pub(crate) steps: u64,
    /// Kernels before the backward pass, in each bucket, and after all of them.
    pub(crate) kernels: [u64; 3],
    /// Number of all-reduces per step.
    pub(crate) buckets: u64,
    /// Mean length of a kernel.
    pub(crate) kernel_ns: u64,
    /// Mean time of the host between launches.
    pub(crate) think_ns: u64,
    /// All collectives of a step but its last are between this many neighboring ranks; 0: all.
    pub(crate) together: u32,
    /// The last collective of a step is between the ranks at the same place of these groups, instead
    /// of all: as data-parallel groups across tensor-parallel ones.
    pub(crate) across: bool,
    /// Time of an all-reduce from the last start to the end.
    pub(crate) transfer_ns: u64,
    /// The host waits for the computing stream at the end of each step.
    pub(crate) blocking: bool,
    /// Collectives run in the stream for computing.
    pub(crate) one_stream: bool,
    pub(crate) pauses: Vec<Planned>,
    /// The profiler names communicator and operation.
    pub(crate) numbered: bool,
    pub(crate) seed: u64,
    /// All kernels and thoughts take the same time.
    pub(crate) even: bool,
}

/// A pause before the n-th launch of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) rank: u32,
    pub(crate) step: u64,
    pub(crate) launch: u64,
    pub(crate) length_ns: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            ranks: 2,
            steps: 20,
            kernels: [10, 4, 6],
            buckets: 3,
            kernel_ns: 100 * US,
            think_ns: 20 * US,
            together: 0,
            across: false,
            transfer_ns: 300 * US,
            blocking: false,
            one_stream: false,
            pauses: Vec::new(),
            numbered: false,
            seed: 1,
            even: false,
        }
    }
}

impl Plan {
    /// The same with pauses of 1 to 40 ms on random ranks at random times.
    pub(crate) fn with_random_pauses(&self, count: u64) -> Self {
        let random = |n, what, below: u64| self.around(1 << 40, [n, what, 7, 9]) % below;
        let launches = self.kernels.iter().sum::<u64>() + self.buckets;
        let pauses = (0..count).map(|n| Planned {
            rank: u32::try_from(random(n, 1, u64::from(self.ranks))).unwrap_or(0),
            step: random(n, 2, self.steps),
            launch: 1 + random(n, 3, launches),
            length_ns: (1 + random(n, 4, 40)) * 1_000_000,
        });
        Self { pauses: pauses.collect(), ..self.clone() }
    }

    /// The same without the pauses of a rank.
    pub(crate) fn without(&self, rank: u32) -> Self {
        let mut plan = self.clone();
        plan.pauses.retain(|pause| pause.rank != rank);
        plan
    }

    /// The same without any pause.
    pub(crate) fn without_all(&self) -> Self {
        Self { pauses: Vec::new(), ..self.clone() }
    }

    /// The group of a rank's collective.
    fn group(&self, rank: u32, of_few: bool) -> String {
        match (of_few, self.across) {
            (true, _) => format!("few {}", rank / self.together),
            (false, true) => format!("across {}", rank % self.together),
            (false, false) => "0".to_owned(),
        }
    }

    /// Between half and one and a half of a mean; always the same for the same place.
    fn around(&self, mean: u64, place: [u64; 4]) -> u64 {
        let mut state = self.seed;
        for part in place {
            state = (state ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            state ^= state >> 29;
            state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state ^= state >> 32;
        }
        if self.even { mean } else { mean / 2 + state % mean.max(1) }
    }
}

/// Pauses of 8 to 30 ms: two on rank 1, one on rank 0, none on others.
pub(crate) fn paused(plan: Plan) -> Plan {
    let pause =
        |rank, step, launch, length_ms| Planned { rank, step, launch, length_ns: length_ms * MS };
    Plan { pauses: vec![pause(1, 4, 3, 30), pause(0, 9, 12, 8), pause(1, 13, 20, 15)], ..plan }
}

/// The timelines of runs, each in a trace of its own.
pub(crate) fn timelines(runs: &[RankRun]) -> Vec<Timeline> {
    let timelines = runs.iter().enumerate();
    timelines.map(|(trace, run)| run.timeline(trace)).collect()
}

/// The jobs found among timelines.
pub(crate) fn found(timelines: &[Timeline]) -> RankJobs {
    jobs(&timelines.iter().collect::<Vec<_>>())
}

/// The contents of one rank's trace, on the common clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankRun {
    pub(crate) rank: u32,
    pub(crate) records: Vec<Record>,
    /// When the rank is done.
    pub(crate) end_ns: u64,
    /// Start and end of each step.
    pub(crate) steps: Vec<(u64, u64)>,
    /// Start, on this rank, and end of each collective.
    pub(crate) collectives: Vec<(u64, u64)>,
    /// The group of each of them.
    pub(crate) groups: Vec<String>,
    host_ns: u64,
    compute_ns: u64,
    communication_ns: u64,
    of_few_ns: u64,
    launches: u64,
    ids: u64,
}

/// Runs a job from a given time.
pub(crate) fn run(plan: &Plan, start_ns: u64) -> Vec<RankRun> {
    let mut ranks: Vec<RankRun> = (0..plan.ranks)
        .map(|rank| RankRun {
            rank,
            host_ns: start_ns + u64::from(rank) * 37 * US,
            ..RankRun::default()
        })
        .collect();
    for step in 0..plan.steps {
        let starts: Vec<u64> = ranks.iter().map(|rank| rank.host_ns).collect();
        ranks.iter_mut().for_each(|rank| rank.launches = 0);
        kernels(plan, &mut ranks, step, plan.kernels[0]);
        for bucket in 0..plan.buckets {
            kernels(plan, &mut ranks, step, plan.kernels[1]);
            let of_few = plan.together > 0 && bucket + 1 < plan.buckets;
            let mut groups: BTreeMap<String, Vec<&mut RankRun>> = BTreeMap::new();
            for rank in &mut ranks {
                let name = plan.group(rank.rank, of_few);
                groups.entry(name).or_default().push(rank);
            }
            for (name, mut ranks) in groups {
                all_reduce(plan, &mut ranks, step, of_few, &name);
            }
        }
        if !plan.one_stream {
            for rank in &mut ranks {
                rank.wait(COMPUTE, COMMUNICATION);
                if plan.together > 0 {
                    rank.wait(COMPUTE, COMMUNICATION_OF_FEW);
                }
            }
        }
        kernels(plan, &mut ranks, step, plan.kernels[2]);
        for (rank, start_ns) in ranks.iter_mut().zip(starts) {
            if plan.blocking {
                rank.synchronize("cudaStreamSynchronize", Some(COMPUTE), rank.compute_ns);
            }
            rank.end_step(step, start_ns);
        }
    }
    for rank in &mut ranks {
        let idle_ns = rank.compute_ns.max(rank.communication_ns);
        let idle_ns = idle_ns.max(rank.of_few_ns);
        rank.synchronize("cudaDeviceSynchronize", None, idle_ns);
        rank.end_ns = rank.host_ns;
    }
    ranks
}

fn kernels(plan: &Plan, ranks: &mut [RankRun], step: u64, count: u64) {
    for _ in 0..count {
        for rank in ranks.iter_mut() {
            let launched_ns = rank.launch(plan, step);
            let start_ns = rank.compute_ns.max(launched_ns + LATENCY);
            let place = [u64::from(rank.rank), step, rank.launches, 1];
            rank.compute_ns = start_ns + plan.around(plan.kernel_ns, place);
            rank.op("gemm", COMPUTE, start_ns, rank.compute_ns, None);
        }
    }
}

/// An all-reduce of all ranks, or of a small group.
fn all_reduce(plan: &Plan, ranks: &mut [&mut RankRun], step: u64, of_few: bool, group: &str) {
    let stream = match (plan.one_stream, of_few) {
        (true, _) => COMPUTE,
        (false, false) => COMMUNICATION,
        (false, true) => COMMUNICATION_OF_FEW,
    };
    let mut starts = Vec::new();
    for rank in ranks.iter_mut() {
        if !plan.one_stream {
            rank.wait(stream, COMPUTE);
        }
        let before_ns = rank.host_ns;
        let launched_ns = rank.launch(plan, step);
        rank.annotate("nccl:all_reduce", before_ns);
        starts.push((*rank.done(stream)).max(launched_ns + LATENCY));
    }
    let end_ns = starts.iter().max().copied().unwrap_or_default() + plan.transfer_ns;
    for (rank, start_ns) in ranks.iter_mut().zip(starts) {
        // Ends are read from each GPU's own clock: some microseconds apart.
        let place = [u64::from(rank.rank), step, rank.launches, 2];
        let read_ns = end_ns + plan.around(2 * US, place);
        *rank.done(stream) = read_ns;
        let collective = plan.numbered.then(|| Collective {
            name: "allreduce".to_owned(),
            group: Some(group.to_owned()),
            sequence: Some(rank.collectives.len() as u64 + 100),
            ..Collective::default()
        });
        rank.collectives.push((start_ns, read_ns));
        rank.groups.push(group.to_owned());
        rank.op(ALL_REDUCE, stream, start_ns, read_ns, collective);
    }
}

impl RankRun {
    fn pid(&self) -> u32 {
        1000 + self.rank
    }

    fn call(&mut self, function: &'static str, start_ns: u64, stream: Option<u64>) {
        self.ids += 1;
        self.records.push(Record::CudaCall(CudaCall {
            pid: self.pid(),
            tid: self.pid(),
            layer: CudaLayer::Runtime,
            function: function.into(),
            start_ns,
            end_ns: self.host_ns,
            stream,
            correlation: Some(self.ids),
            ..CudaCall::default()
        }));
    }

    /// Thinks, pauses if planned, and launches. Returns the start of the call.
    fn launch(&mut self, plan: &Plan, step: u64) -> u64 {
        self.launches += 1;
        let place = [u64::from(self.rank), step, self.launches, 0];
        self.host_ns += plan.around(plan.think_ns, place);
        let mine = |pause: &&Planned| {
            (pause.rank, pause.step, pause.launch) == (self.rank, step, self.launches)
        };
        if let Some(planned) = plan.pauses.iter().find(mine) {
            self.pause(planned.length_ns);
        }
        let start_ns = self.host_ns;
        self.host_ns += 3 * US;
        self.call("cudaLaunchKernel", start_ns, None);
        start_ns
    }

    fn pause(&mut self, length_ns: u64) {
        let start_ns = self.host_ns;
        self.host_ns += length_ns;
        self.records.push(Record::Pause(Pause {
            pid: self.pid(),
            tid: self.pid(),
            start_ns,
            end_ns: self.host_ns,
            generation: 2,
            reason: GcReason::Automatic,
            collected: Some(0),
            uncollectable: Some(0),
            ..Pause::default()
        }));
    }

    /// One stream waits for what the other was given so far.
    fn wait(&mut self, stream: u64, other: u64) {
        let recorded_ns = self.host_ns;
        self.host_ns += US;
        self.call("cudaEventRecord", recorded_ns, Some(other));
        let event = self.ids;
        let start_ns = self.host_ns;
        self.host_ns += US;
        self.call("cudaStreamWaitEvent", start_ns, Some(stream));
        self.records.push(Record::GpuSync(GpuSync {
            pid: Some(self.pid()),
            kind: GpuSyncKind::StreamWaitEvent,
            device: Some(0),
            stream: Some(stream),
            start_ns,
            end_ns: self.host_ns,
            correlation: Some(self.ids),
            event_stream: Some(other),
            event_correlation: Some(event),
        }));
        let ready_ns = (*self.done(stream)).max(*self.done(other));
        *self.done(stream) = ready_ns;
    }

    /// When a stream is done with what it was given so far.
    fn done(&mut self, stream: u64) -> &mut u64 {
        match stream {
            COMPUTE => &mut self.compute_ns,
            COMMUNICATION_OF_FEW => &mut self.of_few_ns,
            _ => &mut self.communication_ns,
        }
    }

    fn synchronize(&mut self, function: &'static str, stream: Option<u64>, until_ns: u64) {
        let start_ns = self.host_ns + 2 * US;
        self.host_ns = start_ns.max(until_ns) + 4 * US;
        self.call(function, start_ns, stream);
    }

    fn op(
        &mut self,
        name: &str,
        stream: u64,
        start_ns: u64,
        end_ns: u64,
        collective: Option<Collective>,
    ) {
        self.records.push(Record::GpuOp(GpuOp {
            pid: Some(self.pid()),
            device: 0,
            stream,
            kind: GpuOpKind::Kernel,
            name: name.to_owned(),
            start_ns,
            end_ns,
            correlation: Some(self.ids),
            bytes: None,
            collective: collective.map(Box::new),
        }));
    }

    fn annotate(&mut self, name: &str, start_ns: u64) {
        self.records.push(Record::Annotation(Annotation {
            pid: self.pid(),
            tid: self.pid(),
            name: name.to_owned(),
            start_ns,
            end_ns: self.host_ns,
        }));
    }

    fn end_step(&mut self, step: u64, start_ns: u64) {
        self.annotate(&format!("ProfilerStep#{step}"), start_ns);
        self.steps.push((start_ns, self.host_ns));
    }

    /// The same on another clock.
    pub(crate) fn on_clock(&self, add_ns: i64) -> Self {
        let mut moved = self.clone();
        let add = |at: &mut u64| *at = at.checked_add_signed(add_ns).expect("a time after 0");
        for record in &mut moved.records {
            let (start, end) = span(record);
            add(start);
            add(end);
        }
        moved
    }

    /// The same, recorded only between two times.
    pub(crate) fn between(&self, from_ns: u64, to_ns: u64) -> Self {
        let mut cut = self.clone();
        cut.records.retain_mut(|record| {
            let (start, end) = span(record);
            *start >= from_ns && *end <= to_ns
        });
        cut
    }

    /// As the analysis sees it.
    pub(crate) fn timeline(&self, trace: usize) -> Timeline {
        self.timeline_about(TimelineContext {
            trace,
            rank: Some(self.rank),
            ..TimelineContext::default()
        })
    }

    pub(crate) fn timeline_about(&self, about: TimelineContext) -> Timeline {
        let mut collector = TimelineCollector::default();
        for record in &self.records {
            match record {
                Record::GpuOp(op) => collector.add_op(op),
                Record::CudaCall(call) => collector.add_call(call),
                Record::Annotation(annotation) => collector.add_annotation(annotation),
                Record::GpuSync(sync) => collector.add_sync(sync.clone()),
                Record::Pause(pause) => collector.add_pause(pause),
                other => panic!("{other:?}"),
            }
        }
        let mut timelines = collector.finish(&about);
        assert_eq!(timelines.len(), 1);
        timelines.remove(0)
    }
}

fn span(record: &mut Record) -> (&mut u64, &mut u64) {
    match record {
        Record::GpuOp(op) => (&mut op.start_ns, &mut op.end_ns),
        Record::CudaCall(call) => (&mut call.start_ns, &mut call.end_ns),
        Record::Annotation(annotation) => (&mut annotation.start_ns, &mut annotation.end_ns),
        Record::GpuSync(sync) => (&mut sync.start_ns, &mut sync.end_ns),
        Record::Pause(pause) => (&mut pause.start_ns, &mut pause.end_ns),
        other => panic!("{other:?}"),
    }
}
