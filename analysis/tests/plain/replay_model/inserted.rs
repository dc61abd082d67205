//! Pauses put into real traces, and taken out again by the replay: how far is the end from where it
//! was? Used by the tests and by the example that prints the table.

use gctrace_analysis::Analysis;
use gctrace_analysis::gpu::calls::CallEffect;
use gctrace_analysis::gpu::replay::{InsertedPause, ReplayChange, ReplayJob, ReplayModel};
use gctrace_analysis::gpu::timeline::{ThreadIndex, Timeline};
use gctrace_analysis::spans::PauseSpan;
use gctrace_analysis::spans::index::Index;
use gctrace_event::GcReason;
use gctrace_event::read::{ReadError, TraceReader};
use std::path::Path;
use test_kit::reports;

/// The processes of a trace that used a GPU.
pub(crate) fn read(path: &Path) -> Result<Vec<Timeline>, ReadError> {
    let mut analysis = Analysis::default();
    let name = path.to_string_lossy();
    reports::read(&mut analysis, &name, TraceReader::open(path)?)?;
    let timelines = analysis.timelines().iter();
    let timelines = timelines.filter(|timeline| timeline.has_gpu_times());
    Ok(timelines.map(|kept| kept.whole().into_owned()).collect())
}

/// A pause to put in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) thread: ThreadIndex,
    pub(crate) at_ns: u64,
    pub(crate) length_ns: u64,
}

/// How a pause is put into a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsertionMethod {
    /// By replay: the model learned from the trace computes what becomes later.
    Replay,
    /// By a simulation without threads: the calls of all threads are one sequence, and the pause
    /// delays everything that the host does after it.
    OneHost,
}

/// Result of removing an inserted pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The true cost of the pause: how much later the trace ended with it.
    pub(crate) cost_ns: i64,
    /// The cost according to the replay of the changed trace.
    pub(crate) replayed_ns: i64,
    /// The cost by the overlap rule: GPU idle time during the pause.
    pub(crate) overlap_ns: i64,
}

/// Puts a pause in and takes it out. `None` where the thread makes no call after it.
pub(crate) fn one(timeline: &Timeline, pause: Pause, way: InsertionMethod) -> Option<Outcome> {
    let pause = in_a_gap(timeline, pause)?;
    let changed = match way {
        InsertionMethod::Replay => by_replay(timeline, pause),
        InsertionMethod::OneHost => by_one_host(timeline, pause),
    };
    let job = ReplayJob::single(&changed);
    let model = ReplayModel::learn(&job);
    let with = end_ns(&changed);
    let without = model.replay(&ReplayChange::without_all(&job)).end_ns(0);
    Some(Outcome {
        cost_ns: with.cast_signed() - end_ns(timeline).cast_signed(),
        replayed_ns: with.cast_signed() - without.cast_signed(),
        overlap_ns: overlap_ns(&changed, pause).cast_signed(),
    })
}

/// The first time from the pause's on at which the thread is between two calls.
fn in_a_gap(timeline: &Timeline, pause: Pause) -> Option<Pause> {
    let calls = timeline.calls.iter().filter(|call| call.thread == pause.thread);
    let calls: Vec<_> = calls.collect();
    let next = calls.iter().position(|call| call.start_ns > pause.at_ns)?;
    let last = calls.get(next.checked_sub(1)?)?;
    let at_ns = pause.at_ns.max(last.end_ns + 1);
    (at_ns < calls[next].start_ns).then_some(Pause { at_ns, ..pause })
}

/// The last end of operations and of calls of threads that do more than ask for the state of
/// events.
fn end_ns(timeline: &Timeline) -> u64 {
    let mut works = vec![false; timeline.threads.len()];
    for call in &timeline.calls {
        works[call.thread.at()] |= call.kind != CallEffect::Query;
    }
    let calls = timeline.calls.iter().filter(|call| works[call.thread.at()]);
    let ends = calls.map(|call| call.end_ns);
    let ops = timeline.ops.iter().map(|op| op.end_ns);
    ends.chain(ops).max().unwrap_or(0)
}

fn by_replay(timeline: &Timeline, pause: Pause) -> Timeline {
    let job = ReplayJob::single(timeline);
    let inserted = InsertedPause {
        timeline: 0,
        thread: pause.thread,
        at_ns: pause.at_ns,
        length_ns: pause.length_ns,
    };
    let change = ReplayChange { inserted: vec![inserted], ..ReplayChange::default() };
    let schedule = ReplayModel::learn(&job).replay(&change);
    let calls = Index::all(&timeline.calls).map(|call| schedule.call(0, call));
    let ops = Index::all(&timeline.ops).map(|op| schedule.op(0, op));
    rewritten(timeline, calls.collect(), ops.collect(), pause)
}

/// The same trace with other times, and with the pause.
fn rewritten(
    timeline: &Timeline,
    calls: Vec<(u64, u64)>,
    ops: Vec<(u64, u64)>,
    pause: Pause,
) -> Timeline {
    let mut changed = timeline.clone();
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|call| calls[*call]);
    let mut place = vec![Index::new(0); calls.len()];
    changed.calls.clear();
    for (new, old) in order.into_iter().enumerate() {
        place[old] = Index::new(new);
        let mut call = timeline.calls[old];
        (call.start_ns, call.end_ns) = calls[old];
        changed.calls.push(call);
    }
    for (op, times) in changed.ops.iter_mut().zip(ops) {
        (op.start_ns, op.end_ns) = times;
        op.call = op.call.map(|call| place[call.at()]);
    }
    changed.ops.sort_by_key(|op| (op.start_ns, op.end_ns));
    for wait in &mut changed.waits {
        wait.call = place[wait.call.at()];
        wait.event_call = wait.event_call.map(|call| place[call.at()]);
    }
    changed.waits.sort_by_key(|wait| wait.call);
    changed.pauses.push(PauseSpan {
        start_ns: pause.at_ns,
        end_ns: pause.at_ns + pause.length_ns,
        thread: pause.thread,
        cpu_ns: None,
        collected: None,
        objects: None,
        freed_kib: None,
        generation: 2,
        reason: GcReason::Automatic,
        stack: None,
    });
    changed.pauses.sort_by_key(|pause| pause.start_ns);
    changed
}

/// An operation starts no earlier than this after its call, unless it did in the trace.
const LAUNCH_NS: u64 = 5_000;

fn by_one_host(timeline: &Timeline, pause: Pause) -> Timeline {
    let mut by_call: Vec<Vec<usize>> = vec![Vec::new(); timeline.calls.len()];
    for (index, op) in timeline.ops.iter().enumerate() {
        if let Some(call) = op.call {
            by_call[call.at()].push(index);
        }
    }
    let mut host = Host {
        timeline,
        ops: timeline.ops.iter().map(|op| (op.start_ns, op.end_ns)).collect(),
        free: vec![(0, 0); timeline.streams.len()],
        last: vec![None; timeline.streams.len()],
    };
    let mut later = 0;
    let mut paused = false;
    let mut calls = Vec::with_capacity(timeline.calls.len());
    for (index, call) in timeline.calls.iter().enumerate() {
        if !paused && call.start_ns > pause.at_ns {
            later += pause.length_ns;
            paused = true;
        }
        let start = call.start_ns + later;
        for op in &by_call[index] {
            host.start(*op, start, call.start_ns);
        }
        let end = host.end(index, start, &by_call[index]);
        calls.push((start, end));
        // The next action of the host is delayed like this call, minus the time it waited less.
        later = end.saturating_sub(call.end_ns);
    }
    rewritten(timeline, calls, host.ops, pause)
}

struct Host<'a> {
    timeline: &'a Timeline,
    ops: Vec<(u64, u64)>,
    /// Per stream: the end of its last operation, as measured and now.
    free: Vec<(u64, u64)>,
    last: Vec<Option<usize>>,
}

impl Host<'_> {
    fn start(&mut self, op: usize, call_ns: u64, measured_call_ns: u64) {
        let content = self.timeline.ops[op];
        let (measured_free, free) = self.free[content.stream.at()];
        let after_call = content.start_ns.saturating_sub(measured_call_ns);
        let after_stream = content.start_ns.saturating_sub(measured_free);
        // It waited for the nearer of the two; the other is a bound.
        let start = if after_call <= after_stream {
            (call_ns + after_call).max(free)
        } else {
            (free + after_stream).max(call_ns + after_call.min(LAUNCH_NS))
        };
        self.ops[op] = (start, start + content.duration_ns());
        self.free[content.stream.at()] = (content.end_ns, start + content.duration_ns());
        self.last[content.stream.at()] = Some(op);
    }

    fn end(&self, call: usize, start: u64, enqueued: &[usize]) -> u64 {
        let content = self.timeline.calls[call];
        let waits_for = match content.kind {
            CallEffect::Copy => enqueued.last().copied(),
            CallEffect::DeviceSynchronize
            | CallEffect::StreamSynchronize
            | CallEffect::EventSynchronize => {
                let last = self.last.iter().flatten().copied();
                last.max_by_key(|op| self.timeline.ops[*op].end_ns)
            }
            _ => None,
        };
        let waited = waits_for.filter(|op| self.timeline.ops[*op].end_ns <= content.end_ns);
        match waited {
            Some(op) if self.timeline.ops[op].end_ns >= content.start_ns => {
                let back = content.end_ns - self.timeline.ops[op].end_ns;
                (self.ops[op].1 + back).max(start + content.duration_ns().min(LAUNCH_NS))
            }
            Some(op) => (start + content.duration_ns()).max(self.ops[op].1),
            None => start + content.duration_ns(),
        }
    }
}

/// Idle time of the devices within a pause.
fn overlap_ns(timeline: &Timeline, pause: Pause) -> u64 {
    let (from, to) = (pause.at_ns, pause.at_ns + pause.length_ns);
    let Some((_, last)) = timeline.gpu_span() else {
        return 0;
    };
    let mut until = from;
    let mut idle = 0;
    for op in &timeline.ops {
        idle += op.start_ns.min(to).saturating_sub(until);
        until = until.max(op.end_ns);
        if until >= to {
            break;
        }
    }
    idle + to.min(last).saturating_sub(until)
}
