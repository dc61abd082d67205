//! A small simulator of threads, streams and a GPU, as the truth for the replay: a run with pauses,
//! and the same run without. It knows nothing of the analysis.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test program uses its part of these; in some nothing is left over"
)]

use gctrace_analysis::gpu::calls::CallEffect;
use gctrace_analysis::gpu::replay::{ReplayChange, ReplayJob, ReplayModel};
use gctrace_analysis::gpu::timeline::{
    Call, CallIndex, EventWait, Op, Stream, StringTable, Thread, Timeline,
};
use gctrace_analysis::spans::PauseSpan;
use gctrace_analysis::spans::index::Index;
use gctrace_event::{GcReason, GpuOpKind};
use std::sync::Arc;

pub(crate) const US: u64 = 1_000;
/// From a launch to the start on a free stream.
pub(crate) const LATENCY: u64 = 6 * US;
/// Between two operations of a stream.
pub(crate) const GAP: u64 = US;
/// Time of a call that need not wait.
pub(crate) const CALL: u64 = 3 * US;
/// From the end of an operation to the return of the call that waited.
pub(crate) const RETURN: u64 = 4 * US;
/// From one thread's last call to the other's first.
pub(crate) const SWITCH: u64 = 12 * US;
/// Operations that a stream takes.
pub(crate) const DEPTH: usize = 1_024;

/// The next action of a program.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Computes on the host.
    Think(u64),
    /// Launches a kernel of that length.
    Launch { stream: usize, length: u64 },
    /// Copies back, and waits for it.
    CopyBack { stream: usize, length: u64 },
    /// `cudaStreamSynchronize`.
    StreamSynchronize(usize),
    /// `cudaDeviceSynchronize`.
    DeviceSynchronize,
    /// The second stream waits for what the first was given so far.
    Wait { from: usize, to: usize },
    /// The second thread works; the first waits for it.
    Backward(Vec<Action>),
    /// A collection of this length.
    Collect(u64),
}

const MAIN: usize = 0;
const AUTOGRAD: usize = 1;

/// Runs a program; pauses are measured, or left out.
pub(crate) fn run(program: &[Action], streams: usize, with_pauses: bool) -> Timeline {
    let mut machine = Machine::new(streams, with_pauses);
    machine.run(program, MAIN);
    machine.timeline.threads = vec![thread(100), thread(101)];
    machine.timeline.pid = 100;
    machine.sorted()
}

fn thread(tid: u32) -> Thread {
    Thread { tid, name: None }
}

struct Machine {
    timeline: Timeline,
    names: StringTable,
    with_pauses: bool,
    now: u64,
    free: Vec<u64>,
    /// Per stream: what its next operation waits for in other streams.
    blocked_until: Vec<u64>,
    /// Per stream: ends of its operations.
    ends: Vec<Vec<u64>>,
}

impl Machine {
    fn new(streams: usize, with_pauses: bool) -> Self {
        let mut timeline = Timeline::default();
        let numbers = (0u64..).take(streams);
        timeline.streams = numbers.map(|number| Stream { device: Some(0), number }).collect();
        Self {
            timeline,
            names: StringTable::default(),
            with_pauses,
            now: 1_000_000_000,
            free: vec![0; streams],
            blocked_until: vec![0; streams],
            ends: vec![Vec::new(); streams],
        }
    }

    fn run(&mut self, program: &[Action], thread: usize) {
        for action in program {
            self.step(action, thread);
        }
    }

    fn step(&mut self, action: &Action, thread: usize) {
        match action {
            Action::Think(length) => self.now += length,
            Action::Launch { stream, length } => {
                let call_start = self.now;
                let room = self.room(*stream);
                self.now = (call_start + CALL).max(room);
                self.op(thread, "cudaLaunchKernel", call_start, *stream, *length);
            }
            Action::CopyBack { stream, length } => {
                let call_start = self.now;
                let end = self.op(thread, "cudaMemcpyAsync", call_start, *stream, *length);
                self.now = (call_start + CALL).max(end + RETURN);
                if let Some(call) = self.timeline.calls.last_mut() {
                    call.end_ns = self.now;
                }
            }
            Action::StreamSynchronize(stream) => {
                let done = self.ends[*stream].last().copied().unwrap_or(0);
                self.wait(thread, "cudaStreamSynchronize", *stream, done);
            }
            Action::DeviceSynchronize => {
                let done = self.ends.iter().flatten().copied().max().unwrap_or(0);
                self.wait(thread, "cudaDeviceSynchronize", usize::MAX, done);
            }
            Action::Wait { from, to } => self.wait_event(thread, *from, *to),
            Action::Backward(program) => {
                self.now += SWITCH;
                self.run(program, AUTOGRAD);
                self.now += SWITCH;
            }
            Action::Collect(length) => self.collect(thread, *length),
        }
    }

    /// When the queue of a stream has room for one more.
    fn room(&self, stream: usize) -> u64 {
        let ends = &self.ends[stream];
        let first = (ends.len() + 1).checked_sub(DEPTH + 1);
        first.map_or(0, |done| ends[done])
    }

    fn op(
        &mut self,
        thread: usize,
        function: &str,
        call_start: u64,
        stream: usize,
        length: u64,
    ) -> u64 {
        let start =
            (call_start + LATENCY).max(self.free[stream] + GAP).max(self.blocked_until[stream]);
        let end = start + length;
        self.free[stream] = end;
        self.ends[stream].push(end);
        let call = self.call(thread, function, call_start, self.now.max(call_start), stream);
        let name = self.names.intern("kernel");
        self.timeline.ops.push(Op {
            start_ns: start,
            end_ns: end,
            stream: Index::new(stream),
            name,
            call: Some(call),
            kind: match function {
                "cudaLaunchKernel" => GpuOpKind::Kernel,
                _ => GpuOpKind::Memcpy,
            },
            group: None,
            sequence: None,
        });
        end
    }

    fn call(
        &mut self,
        thread: usize,
        function: &str,
        call_start: u64,
        end: u64,
        stream: usize,
    ) -> CallIndex {
        let call = Call {
            start_ns: call_start,
            end_ns: end,
            thread: Index::new(thread),
            function: self.names.intern(function),
            kind: CallEffect::of(function),
            stream: (stream < self.free.len()).then(|| Index::new(stream)),
            timed: true,
        };
        Index::push(&mut self.timeline.calls, call)
    }

    fn wait(&mut self, thread: usize, function: &str, stream: usize, done: u64) {
        let call_start = self.now;
        self.now = if done > call_start {
            (done + RETURN).max(call_start + CALL)
        } else {
            call_start + CALL
        };
        self.call(thread, function, call_start, self.now, stream);
    }

    fn wait_event(&mut self, thread: usize, from: usize, to: usize) {
        let call = |machine: &mut Self, function, stream| {
            let call_start = machine.now;
            machine.now += CALL;
            machine.call(thread, function, call_start, machine.now, stream)
        };
        let event_call = call(self, "cudaEventRecord", from);
        let waiting_call = call(self, "cudaStreamWaitEvent", to);
        self.blocked_until[to] = self.blocked_until[to].max(self.free[from] + GAP);
        self.timeline.waits.push(EventWait {
            call: waiting_call,
            stream: Some(Index::new(to)),
            event_stream: Some(Index::new(from)),
            event_call: Some(event_call),
        });
    }

    fn collect(&mut self, thread: usize, length: u64) {
        if !self.with_pauses {
            return;
        }
        let pause = pause(thread, self.now, self.now + length);
        self.timeline.pauses.push(pause);
        self.now += length;
    }

    fn sorted(mut self) -> Timeline {
        self.timeline.ops.sort_by_key(|op| (op.start_ns, op.end_ns));
        self.timeline.names = Arc::new(self.names);
        self.timeline
    }
}

pub(crate) fn pause(thread: usize, start_ns: u64, end_ns: u64) -> PauseSpan {
    PauseSpan {
        start_ns,
        end_ns,
        thread: Index::new(thread),
        cpu_ns: None,
        collected: None,
        objects: None,
        freed_kib: None,
        generation: 2,
        reason: GcReason::Automatic,
        stack: None,
    }
}

/// The last end of anything.
pub(crate) fn end_ns(timeline: &Timeline) -> u64 {
    let ops = timeline.ops.iter().map(|op| op.end_ns);
    let calls = timeline.calls.iter().map(|call| call.end_ns);
    ops.chain(calls).max().unwrap_or(0)
}

/// The replay of a change gives the measured times exactly.
pub(crate) fn assert_same(job: &ReplayJob<'_>, model: &ReplayModel<'_>, change: &ReplayChange) {
    let schedule = model.replay(change);
    for (at, timeline) in job.timelines.iter().enumerate() {
        for (index, op) in Index::enumerate(&timeline.ops) {
            let measured = (op.start_ns, op.end_ns.max(op.start_ns));
            assert_eq!(schedule.op(at, index), measured, "operation {index:?}");
        }
        for (index, call) in Index::enumerate(&timeline.calls) {
            let measured = (call.start_ns, call.end_ns.max(call.start_ns));
            assert_eq!(schedule.call(at, index), measured, "call {index:?}");
        }
    }
}
