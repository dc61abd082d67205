//! A job of any groups of ranks, simulated: which kernels are one collective, or one send with its
//! receive, is known by construction.

#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::expect_used,
    reason = "each test program uses its part of a layout; helpers of tests fail by panicking"
)]

pub(crate) mod schedules;

use gctrace_analysis::gpu::collect::{TimelineCollector, TimelineContext};
use gctrace_analysis::gpu::ranks::RankJobs;
use gctrace_analysis::gpu::replay::ReplayCollective;
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_event::{Annotation, Collective, CudaCall, CudaLayer, GpuOp, GpuOpKind, Pause};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub(crate) const US: u64 = 1_000;
const START: u64 = 5_000_000_000;
/// From the last start of a collective, or of a send and its receive, to the end.
const TRANSFER: u64 = 60 * US;
/// Length of a send that nobody waits for.
const KEPT: u64 = 10 * US;

/// What a rank does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Compute(u64),
    /// A collective of a group.
    Together(usize),
    Send(u32),
    Receive(u32),
    /// A step of the profiler ends.
    Step,
}

/// What the profiler writes about an NCCL kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Nothing, as before PyTorch 2.4.
    Nothing,
    /// The group, as PyTorch 2.4 to 2.11.
    Group,
    /// The group and the sequence number, as PyTorch 2.12.
    Sequence,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) groups: Vec<Vec<u32>>,
    pub(crate) acts: Vec<Vec<Act>>,
    /// Ends are read with an error of up to this.
    pub(crate) noise_ns: u64,
    /// All groups use one stream.
    pub(crate) one_stream: bool,
    /// Every third send ends before it is received: its bytes are kept until then.
    pub(crate) eager: bool,
    /// The traces have the host's calls, and pauses between them.
    pub(crate) hosted: bool,
    /// Number of ranks of the job, as the traces have it.
    pub(crate) world_size: Option<u32>,
    pub(crate) seed: u64,
}

/// An NCCL kernel, and what it truly belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    stream: u64,
    /// `None` of a send or receive.
    pub(crate) group: Option<usize>,
    /// Its count in the group, or of the sends and receives of its rank.
    sequence: u64,
    /// `(peer, whether it sends)`.
    peer: Option<(u32, bool)>,
    pub(crate) truth: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) kernels: Vec<Kernel>,
    steps: Vec<(u64, u64)>,
    /// Time in kernels before the last of their ranks started.
    pub(crate) wait_ns: u64,
}

/// A number for a place, the same each time.
pub(crate) fn random(seed: u64, place: [u64; 3], below: u64) -> u64 {
    let mut state = seed;
    for part in place {
        state = (state ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state ^= state >> 29;
        state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 32;
    }
    state % below.max(1)
}

#[derive(Default)]
struct Simulation {
    traces: Vec<Trace>,
    now_ns: Vec<u64>,
    step_ns: Vec<u64>,
    counts: Vec<u64>,
    transfers: Vec<u64>,
    truths: usize,
    /// Times at which sends were issued that are not received yet, and the number of each.
    sent: HashMap<(u32, u32), VecDeque<(u64, u64)>>,
    /// When the stream of sends is free.
    free_ns: HashMap<(u32, u32), u64>,
}

/// Runs a job.
pub(crate) fn simulate(layout: &Layout) -> Vec<Trace> {
    let ranks = layout.acts.len();
    let mut job = Simulation {
        traces: vec![Trace::default(); ranks],
        now_ns: (0..ranks as u64).map(|rank| START + rank * 7 * US).collect(),
        step_ns: vec![START; ranks],
        counts: vec![0; layout.groups.len()],
        transfers: vec![0; ranks],
        ..Simulation::default()
    };
    let mut next = vec![0; ranks];
    loop {
        let mut moved = false;
        for rank in 0..ranks {
            while let Some(act) = layout.acts[rank].get(next[rank])
                && job.take(layout, rank, *act, &mut next)
            {
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let done = next.iter().zip(&layout.acts).all(|(next, acts)| *next == acts.len());
    assert!(done, "a deadlock: {next:?}");
    for trace in &mut job.traces {
        trace.kernels.sort_by_key(|kernel| kernel.start_ns);
    }
    job.traces
}

impl Simulation {
    /// Whether the act could be done.
    fn take(&mut self, layout: &Layout, rank: usize, act: Act, next: &mut [usize]) -> bool {
        match act {
            Act::Compute(length_ns) => self.now_ns[rank] += length_ns,
            Act::Step => {
                let span = (self.step_ns[rank], self.now_ns[rank]);
                self.traces[rank].steps.push(span);
                self.step_ns[rank] = self.now_ns[rank];
            }
            Act::Together(group) => {
                let members = &layout.groups[group];
                let there = |rank: &u32| {
                    let rank = *rank as usize;
                    matches!(layout.acts[rank].get(next[rank]), Some(Act::Together(at)) if *at == group)
                };
                if !members.iter().all(there) {
                    return false;
                }
                self.together(layout, group);
                for other in members.iter().filter(|other| **other as usize != rank) {
                    next[*other as usize] += 1;
                }
            }
            Act::Send(to) => {
                let from = rank as u32;
                self.transfers[rank] += 1;
                let sent = (self.now_ns[rank], self.transfers[rank]);
                self.sent.entry((from, to)).or_default().push_back(sent);
            }
            Act::Receive(from) => {
                if !self.receive(layout, from, rank) {
                    return false;
                }
            }
        }
        next[rank] += 1;
        true
    }

    fn together(&mut self, layout: &Layout, group: usize) {
        let members = &layout.groups[group];
        let starts = members.iter().map(|rank| self.now_ns[*rank as usize]);
        let last_ns = starts.max().expect("members");
        self.counts[group] += 1;
        self.truths += 1;
        for rank in members {
            let at = *rank as usize;
            let start_ns = self.now_ns[at];
            let end_ns = last_ns + TRANSFER + self.noise(layout, at);
            self.now_ns[at] = end_ns;
            self.traces[at].wait_ns += last_ns - start_ns;
            self.traces[at].kernels.push(Kernel {
                start_ns,
                end_ns,
                stream: if layout.one_stream { 20 } else { 20 + group as u64 },
                group: Some(group),
                sequence: self.counts[group],
                peer: None,
                truth: self.truths,
            });
        }
    }

    fn noise(&self, layout: &Layout, rank: usize) -> u64 {
        let place = [rank as u64, self.truths as u64, 1];
        random(layout.seed, place, layout.noise_ns + 1)
    }

    /// A send runs in a stream of its own, a receive blocks its rank.
    fn receive(&mut self, layout: &Layout, from: u32, rank: usize) -> bool {
        let channel = (from, rank as u32);
        let Some((issued_ns, sequence)) = self.sent.entry(channel).or_default().pop_front() else {
            return false;
        };
        let free_ns = self.free_ns.get(&channel).copied().unwrap_or(0);
        let send_ns = issued_ns.max(free_ns);
        let receive_ns = self.now_ns[rank];
        let last_ns = send_ns.max(receive_ns);
        let end_ns = last_ns + TRANSFER;
        self.truths += 1;
        self.transfers[rank] += 1;
        let kernel = |start_ns, end_ns, sequence, peer| Kernel {
            start_ns,
            end_ns,
            stream: 900 + u64::from(from) * 64 + rank as u64,
            group: None,
            sequence,
            peer: Some(peer),
            truth: self.truths,
        };
        let is_kept = layout.eager && self.truths.is_multiple_of(3);
        let sent_ns = if is_kept { send_ns + KEPT } else { end_ns };
        let sent_ns = sent_ns + self.noise(layout, from as usize);
        let received_ns = end_ns + self.noise(layout, rank);
        let send = kernel(send_ns, sent_ns, sequence, (rank as u32, true));
        let receive = kernel(receive_ns, received_ns, self.transfers[rank], (from, false));
        self.free_ns.insert(channel, sent_ns);
        self.now_ns[rank] = received_ns;
        if !is_kept {
            self.traces[from as usize].wait_ns += last_ns - send_ns;
        }
        self.traces[rank].wait_ns += last_ns - receive_ns;
        self.traces[from as usize].kernels.push(send);
        self.traces[rank].kernels.push(receive);
        true
    }
}

impl Kernel {
    pub(crate) fn is_transfer(&self) -> bool {
        self.peer.is_some()
    }
}

impl Trace {
    /// As the analysis sees it, with a clock that is off by this.
    pub(crate) fn timeline(
        &self,
        rank: u32,
        naming: Naming,
        layout: &Layout,
        shift_ns: u64,
    ) -> Timeline {
        let mut collector = TimelineCollector::default();
        for (number, kernel) in (1..).zip(&self.kernels) {
            let (name, group) = match kernel.group {
                Some(group) => {
                    let ranks = Some(format!("{:?}", layout.groups[group]));
                    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", (group + 1, ranks))
                }
                None => ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", (0, None)),
            };
            let collective = (naming != Naming::Nothing).then(|| {
                Box::new(Collective {
                    group: Some(group.0.to_string()),
                    ranks: group.1,
                    sequence: (naming == Naming::Sequence).then_some(kernel.sequence),
                    destination: kernel.peer.filter(|(_, sends)| *sends).map(|(to, _)| to),
                    source: kernel.peer.filter(|(_, sends)| !*sends).map(|(from, _)| from),
                    ..Collective::default()
                })
            });
            collector.add_op(&GpuOp {
                pid: Some(1 + rank),
                stream: kernel.stream,
                kind: GpuOpKind::Kernel,
                name: name.to_owned(),
                start_ns: kernel.start_ns + shift_ns,
                end_ns: kernel.end_ns + shift_ns,
                correlation: layout.hosted.then_some(number),
                collective,
                ..GpuOp::default()
            });
        }
        if layout.hosted {
            self.add_host(&mut collector, rank, layout.seed, shift_ns);
        }
        for (number, (start_ns, end_ns)) in self.steps.iter().enumerate() {
            collector.add_annotation(&Annotation {
                pid: 1 + rank,
                tid: 1 + rank,
                name: format!("ProfilerStep#{number}"),
                start_ns: start_ns + shift_ns,
                end_ns: end_ns + shift_ns,
            });
        }
        let mut timelines = collector.finish(&TimelineContext {
            trace: rank as usize,
            rank: Some(rank),
            world_size: layout.world_size,
            ..TimelineContext::default()
        });
        timelines.retain(Timeline::has_gpu_times);
        timelines.pop().expect("a timeline")
    }

    /// The launch of each kernel, waits for some of them, and pauses in what is left in between.
    fn add_host(&self, collector: &mut TimelineCollector, rank: u32, seed: u64, shift_ns: u64) {
        let mut free_ns = 0;
        let starts = self.kernels.iter().skip(1).map(|next| next.start_ns);
        let nexts = starts.chain([u64::MAX]);
        for ((number, kernel), next_ns) in (1..).zip(&self.kernels).zip(nexts) {
            let at_ns = (kernel.start_ns - 5 * US).max(free_ns);
            let place = [u64::from(rank), number, 21];
            if random(seed, place, 4) == 0 && free_ns > 0 && at_ns > free_ns + 4 * US {
                let length_ns = US + random(seed, place, at_ns - free_ns - 3 * US);
                collector.add_pause(&Pause {
                    pid: 1 + rank,
                    tid: 1 + rank,
                    start_ns: free_ns + US + shift_ns,
                    end_ns: free_ns + US + length_ns + shift_ns,
                    ..Pause::default()
                });
            }
            free_ns = at_ns + 2 * US;
            let call = CudaCall {
                pid: 1 + rank,
                tid: 1 + rank,
                layer: CudaLayer::Runtime,
                function: "cudaLaunchKernel".into(),
                start_ns: at_ns + shift_ns,
                end_ns: free_ns + shift_ns,
                correlation: Some(number),
                ..CudaCall::default()
            };
            collector.add_call(&call);
            if kernel.group.is_some()
                && number.is_multiple_of(2)
                && next_ns > kernel.end_ns + 10 * US
            {
                collector.add_call(&CudaCall {
                    function: "cudaStreamSynchronize".into(),
                    start_ns: free_ns + US + shift_ns,
                    end_ns: kernel.end_ns + US + shift_ns,
                    stream: Some(kernel.stream),
                    correlation: None,
                    ..call
                });
                free_ns = kernel.end_ns + US;
            }
        }
    }
}

/// What was found, against the truth.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Collectives, or sends with receives, that are right: all recorded ranks, and no other.
    pub(crate) right: usize,
    pub(crate) wrong: usize,
}

/// How many of the found collectives, and of the transfers, are right.
pub(crate) fn compare(
    jobs: &RankJobs,
    traces: &[(u32, Trace)],
    timelines: &[Timeline],
) -> [Found; 2] {
    let mut truths: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    let mut by_span: HashMap<(u32, u64, u64), usize> = HashMap::new();
    for ((rank, trace), timeline) in traces.iter().zip(timelines) {
        let first_ns = trace.kernels.iter().map(|kernel| kernel.start_ns).min();
        let shift_ns = timeline.ops[0].start_ns - first_ns.expect("kernels");
        for kernel in &trace.kernels {
            truths.entry(kernel.truth).or_default().insert(*rank);
            let span = (*rank, kernel.start_ns + shift_ns, kernel.end_ns + shift_ns);
            by_span.insert(span, kernel.truth);
        }
    }
    let mut found = [Found::default(), Found::default()];
    for job in &jobs.jobs {
        let mut count = |collectives: &[ReplayCollective], at: usize| {
            for collective in collectives {
                let members = collective.members.iter().map(|member| {
                    let members = &job.members[member.timeline as usize];
                    let op = &timelines[members.timeline].ops[member.op];
                    (members.rank, by_span[&(members.rank, op.start_ns, op.end_ns)])
                });
                let members: Vec<(u32, usize)> = members.collect();
                let ranks: BTreeSet<u32> = members.iter().map(|(rank, _)| *rank).collect();
                let one = members.iter().all(|(_, truth)| *truth == members[0].1);
                if one && truths[&members[0].1] == ranks {
                    found[at].right += 1
                } else {
                    found[at].wrong += 1
                }
            }
        };
        count(&job.collectives, 0);
        count(&job.transfers, 1);
    }
    found
}

/// Collectives and transfers of at least two of the traces.
pub(crate) fn truths(traces: &[(u32, Trace)]) -> [usize; 2] {
    let mut ranks: BTreeMap<(bool, usize), usize> = BTreeMap::new();
    for kernel in traces.iter().flat_map(|(_, trace)| &trace.kernels) {
        *ranks.entry((kernel.peer.is_some(), kernel.truth)).or_default() += 1;
    }
    let of = |transfer: bool| {
        let shared = ranks
            .iter()
            .filter(|((is_transfer, _), count)| *is_transfer == transfer && **count > 1);
        shared.count()
    };
    [of(false), of(true)]
}
