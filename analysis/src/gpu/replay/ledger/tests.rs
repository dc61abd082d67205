//! The ledgers of programs of any kind, beside replays without each set of causes.

use super::*;
use crate::gpu::calls::CallEffect;
use crate::gpu::idle::IdleCause;
use crate::gpu::timeline::{
    AnnotationSpan, Call, Op, ProcessTimeline, Stream, StringTable, Thread,
};
use crate::spans::PauseSpan;
use crate::spans::index::Index;
use gctrace_event::{GcReason, GpuOpKind};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::sync::Arc;

const STREAMS: usize = 2;
const US: u64 = 1_000;
const LATENCY: u64 = 5 * US;
const GAP: u64 = US;
const CALL: u64 = 3 * US;
/// From the end of an operation to the return of the call that waited for it.
const RETURN: u64 = 6 * US;

/// What a program does next; lengths in ns.
#[derive(Clone, Copy, Debug)]
enum Action {
    Think(u64),
    Launch(usize, u64),
    Function(usize, u64),
    CopyBack(usize, u64),
    Synchronize(usize),
    Allocate(u64),
    Collect(u64),
    Annotated(&'static str, u64),
}

/// A program of one thread, as it runs.
#[derive(Default)]
struct Machine {
    timeline: Timeline,
    names: StringTable,
    now: u64,
    free_ns: [u64; STREAMS],
}

impl Machine {
    fn call(&mut self, function: &str, start_ns: u64, stream: Option<usize>) {
        self.timeline.calls.push(Call {
            start_ns,
            end_ns: self.now,
            thread: Index::new(0),
            function: self.names.intern(function),
            kind: CallEffect::of(function),
            stream: stream.map(Index::new),
            timed: true,
        });
    }

    /// Returns the end.
    fn enqueue(&mut self, (kind, function): (GpuOpKind, &str), stream: usize, length: u64) -> u64 {
        let call_ns = self.now;
        let start_ns = (call_ns + LATENCY).max(self.free_ns[stream] + GAP);
        let end_ns = start_ns + length;
        self.free_ns[stream] = end_ns;
        self.now += CALL;
        self.timeline.ops.push(Op {
            start_ns,
            end_ns,
            stream: Index::new(stream),
            name: self.names.intern(function),
            call: Some(Index::new(self.timeline.calls.len())),
            kind,
            group: None,
            sequence: None,
        });
        self.call(function, call_ns, Some(stream));
        end_ns
    }

    fn step(&mut self, action: Action) {
        let start_ns = self.now;
        match action {
            Action::Think(length) => self.now += length,
            Action::Launch(stream, length) => {
                self.enqueue((GpuOpKind::Kernel, "cudaLaunchKernel"), stream, length);
            }
            Action::Function(stream, length) => {
                self.enqueue((GpuOpKind::HostFunction, "cudaLaunchHostFunc"), stream, length);
            }
            Action::CopyBack(stream, length) => {
                let end_ns = self.enqueue((GpuOpKind::Memcpy, "cudaMemcpyAsync"), stream, length);
                self.now = end_ns + RETURN;
                self.timeline.calls.last_mut().expect("the copy").end_ns = self.now;
            }
            Action::Synchronize(stream) => {
                self.now = (start_ns + CALL).max(self.free_ns[stream] + RETURN);
                self.call("cudaStreamSynchronize", start_ns, Some(stream));
            }
            Action::Allocate(length) => {
                self.now += length;
                self.call("cudaMalloc", start_ns, None);
            }
            Action::Collect(length) => {
                self.now += length;
                self.timeline.process.pauses.push(PauseSpan {
                    start_ns,
                    end_ns: self.now,
                    thread: Index::new(0),
                    cpu_ns: None,
                    collected: None,
                    objects: None,
                    freed_kib: None,
                    generation: 2,
                    reason: GcReason::Automatic,
                    stack: None,
                });
            }
            Action::Annotated(name, length) => {
                self.now += length;
                self.timeline.annotations.push(AnnotationSpan {
                    start_ns,
                    end_ns: self.now,
                    thread: Index::new(0),
                    name: self.names.intern(name),
                });
            }
        }
    }
}

fn run(program: &[Action]) -> Timeline {
    let mut machine = Machine { now: 1_000_000 * US, ..Machine::default() };
    // The device's time begins with it, whatever is removed.
    machine.step(Action::Launch(0, 10 * US));
    program.iter().for_each(|action| machine.step(*action));
    machine.step(Action::Launch(0, 10 * US));
    let Machine { mut timeline, names, .. } = machine;
    timeline.process = ProcessTimeline {
        pid: 1,
        threads: vec![Thread { tid: 1, name: None }],
        ..timeline.process
    };
    let numbers = 0..STREAMS as u64;
    timeline.streams = numbers.map(|number| Stream { device: Some(0), number }).collect();
    timeline.ops.sort_by_key(|op| (op.start_ns, op.end_ns));
    timeline.names = Arc::new(names);
    timeline
}

fn program() -> impl Strategy<Value = Vec<Action>> {
    let length = || prop_oneof![3 => US..60 * US, 1 => 60 * US..2_000 * US];
    let stream = || prop_oneof![3 => Just(0usize), 1 => Just(1)];
    let names = || prop::sample::select(vec!["save_checkpoint", "barrier", "load_data"]);
    let action = prop_oneof![
        6 => length().prop_map(Action::Think),
        12 => (stream(), length()).prop_map(|(stream, length)| Action::Launch(stream, length)),
        1 => (stream(), length()).prop_map(|(stream, length)| Action::Function(stream, length)),
        1 => (stream(), length()).prop_map(|(stream, length)| Action::CopyBack(stream, length)),
        2 => stream().prop_map(Action::Synchronize),
        1 => length().prop_map(Action::Allocate),
        1 => length().prop_map(Action::Collect),
        1 => (names(), length()).prop_map(|(name, length)| Action::Annotated(name, length)),
    ];
    prop::collection::vec(action, 1..60)
}

/// The device's time from first to last operation without some causes, and its idle time.
#[derive(Clone, Copy, Debug)]
struct Without {
    span_ns: i64,
    idle_ns: i64,
}

/// Without each set of the causes: by the bits of its number.
fn without_each(
    causes: &DelayCauses<'_>,
    removals: &Removals,
    gaps: &DeviceGaps,
    present: &[IdleCause],
) -> Vec<Without> {
    let sets = 0..1usize << present.len();
    let without = sets.map(|set| {
        let mut run = causes.network.run();
        for (_, cause) in present.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1) {
            run.change_at(removals.cause(*cause).expect("it has delays"));
        }
        let (idle_ns, _) = gaps.replayed(causes.layout, &run);
        Without { span_ns: gaps.span_ns(causes.layout, &run), idle_ns }
    });
    without.collect()
}

fn check(program: &[Action]) -> TestCaseResult {
    let timeline = run(program);
    let model = ReplayModel::learn(&ReplayJob::single(&timeline));
    let ledgers = model.idle_ledgers(&timeline);
    let [ledger] = ledgers.as_slice() else { panic!("{ledgers:?}") };
    let busy_ns = ledger.compute_ns + ledger.communication_ns + ledger.copies_ns;
    prop_assert_eq!(busy_ns + ledger.idle_ns, ledger.span_ns);
    prop_assert_eq!(ledger.rows.iter().map(|row| row.time_ns).sum::<u64>(), ledger.idle_ns);
    let checked = model.with_causes(&timeline, |causes, removals| {
        let works = DeviceTimeline::of(&timeline);
        let gaps = DeviceGaps::of(&works[0], causes.layout, &timeline);
        let present: Vec<IdleCause> = removals.causes.keys().copied().collect();
        let without = without_each(causes, removals, &gaps, &present);
        for (set, less) in without.iter().enumerate() {
            for (bit, cause) in present.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 0) {
                let more = without[set | 1 << bit];
                prop_assert!(more.span_ns <= less.span_ns, "{cause} after set {set:b}");
            }
        }
        for (bit, cause) in present.iter().enumerate() {
            let Some(row) = ledger.rows.iter().find(|row| row.cause == *cause) else {
                continue;
            };
            let (all, one) = (without.len() - 1, 1 << bit);
            let first_ns = without[0].idle_ns - without[one].idle_ns;
            let last_ns = without[all & !one].idle_ns - without[all].idle_ns;
            prop_assert_eq!((row.alone_ns, row.last_ns), (Some(first_ns), Some(last_ns)));
            let saves_ns = (without[0].span_ns - without[one].span_ns).unsigned_abs();
            prop_assert_eq!(row.saves_ns, Some(saves_ns));
        }
        // In order, the causes up to one have no more than what goes with some of them.
        let (mut set, mut given_ns) = (0, 0);
        for cause in IdleCause::REMOVABLE {
            let row = ledger.rows.iter().find(|row| row.cause == cause);
            given_ns += row.filter(|_| cause != IdleCause::Host).map_or(0, |row| row.time_ns);
            if let Some(bit) = present.iter().position(|one| *one == cause) {
                set |= 1 << bit;
                let gone_ns = (0..=set).filter(|some| some & !set == 0);
                let gone_ns = gone_ns.map(|some| without[0].idle_ns - without[some].idle_ns).max();
                prop_assert!(
                    signed(given_ns) <= gone_ns.unwrap_or_default(),
                    "{cause}: {given_ns}"
                );
            }
        }
        Ok(())
    });
    checked.expect("one timeline")
}

/// Without the function on the host it idles longer, and a synchronization then gains more than there was.
#[test]
fn what_one_cause_adds_the_next_does_not_gain() {
    let program = [
        Action::Launch(0, 3_001),
        Action::Function(1, 92_985),
        Action::Synchronize(0),
        Action::Launch(0, 28_437),
        Action::Launch(1, 1_003),
        Action::Launch(0, 33_047),
        Action::Think(1_889_683),
    ];
    check(&program).unwrap_or_else(|error| panic!("{error}"));
}

proptest! {
    /// Each idle nanosecond has one cause. Removing more never saves less. What goes with a cause as the
    /// first and as the last is what the row says.
    #[test]
    fn ledgers_close_whatever_the_order(program in program()) {
        check(&program)?;
    }
}
