//! The replay on timelines of any kind: damaged clocks, operations of one stream at the same time,
//! missing links. Unchanged it is exact, and a shorter pause makes nothing later.

use crate::simulated;

use gctrace_analysis::gpu::calls::CallEffect;
use gctrace_analysis::gpu::replay::{
    AttributionBudget, CollectiveMember, InsertedPause, JoinedSkeletons, PauseLength, ReplayChange,
    ReplayCollective, ReplayJob, ReplayModel, attribute,
};
use gctrace_analysis::gpu::timeline::{
    Call, CallIndex, EventWait, Op, ProcessTimeline, StepSource, StepSpan, Stream, StreamIndex,
    StringTable, Thread, ThreadIndex, Timeline,
};
use gctrace_analysis::spans::index::Index;
use gctrace_event::GpuOpKind;
use proptest::prelude::*;
use simulated::{assert_same, end_ns, pause};
use std::sync::Arc;

const STREAMS: usize = 3;
const THREADS: usize = 3;

fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => 0..400u64,
        4 => 0..100_000u64,
        1 => Just(0),
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

fn span() -> impl Strategy<Value = (u64, u64)> {
    let length = prop_oneof![3 => 0..50u64, 1 => Just(0), 1 => any_time()];
    (any_time(), length).prop_map(|(start, length)| (start, start.saturating_add(length)))
}

fn stream() -> impl Strategy<Value = Option<StreamIndex>> {
    prop::option::weighted(0.8, (0..STREAMS).prop_map(Index::new))
}

fn thread() -> impl Strategy<Value = ThreadIndex> {
    (0..THREADS).prop_map(Index::new)
}

fn call() -> impl Strategy<Value = CallIndex> {
    prop_oneof![4 => 0..4usize, 1 => 0..40usize].prop_map(Index::new)
}

fn any_call() -> impl Strategy<Value = Call> {
    let kinds = prop::sample::select(vec![
        CallEffect::Launch,
        CallEffect::GraphLaunch,
        CallEffect::Copy,
        CallEffect::StreamSynchronize,
        CallEffect::DeviceSynchronize,
        CallEffect::EventSynchronize,
        CallEffect::StreamWaitEvent,
        CallEffect::Query,
        CallEffect::Memory,
        CallEffect::Other,
    ]);
    (span(), thread(), kinds, stream(), any::<bool>()).prop_map(
        |((start_ns, end_ns), thread, kind, stream, timed)| Call {
            start_ns,
            end_ns: if timed { end_ns } else { start_ns },
            thread,
            function: Index::new(kind as usize),
            kind,
            stream,
            timed,
        },
    )
}

fn any_op() -> impl Strategy<Value = Op> {
    let stream = (0..STREAMS).prop_map(Index::new);
    (span(), stream, prop::option::of(call())).prop_map(|((start_ns, end_ns), stream, call)| Op {
        start_ns,
        end_ns,
        stream,
        name: Index::new(0),
        call,
        kind: GpuOpKind::Kernel,
        group: None,
        sequence: None,
    })
}

fn any_wait() -> impl Strategy<Value = EventWait> {
    (call(), stream(), stream(), prop::option::of(call())).prop_map(
        |(call, stream, event_stream, event_call)| EventWait {
            call,
            stream,
            event_stream,
            event_call,
        },
    )
}

/// One for each kind of call.
fn names() -> Arc<StringTable> {
    let mut names = StringTable::default();
    for kind in 0..16 {
        names.intern(&kind.to_string());
    }
    Arc::new(names)
}

/// Arbitrary records: damaged clocks, operations of one stream at the same time, no links.
fn any_timeline() -> impl Strategy<Value = Timeline> {
    let calls = prop::collection::vec(any_call(), 0..40);
    let ops = prop::collection::vec(any_op(), 0..40);
    let pauses = prop::collection::vec((span(), 0..THREADS), 0..6);
    let waits = prop::collection::vec(any_wait(), 0..6);
    (calls, ops, pauses, waits).prop_map(|(mut calls, mut ops, pauses, mut waits)| {
        calls.sort_by_key(|call| call.start_ns);
        ops.sort_by_key(|op| (op.start_ns, op.end_ns));
        waits.sort_by_key(|wait| wait.call);
        let exists = |call: &CallIndex| call.at() < calls.len();
        ops.iter_mut().for_each(|op| op.call = op.call.filter(exists));
        waits.retain(|wait| exists(&wait.call));
        waits.iter_mut().for_each(|wait| wait.event_call = wait.event_call.filter(exists));
        let pauses = pauses.into_iter();
        let mut pauses: Vec<_> =
            pauses.map(|((start, end), thread)| pause(thread, start, end)).collect();
        pauses.sort_by_key(|pause| pause.start_ns);
        Timeline {
            process: ProcessTimeline {
                pid: 1,
                threads: (1..=THREADS as u32).map(|tid| Thread { tid, name: None }).collect(),
                pauses,
                ..ProcessTimeline::default()
            },
            streams: (0..STREAMS as u64)
                .map(|number| Stream { device: Some((number / 2) as u32), number })
                .collect(),
            names: names(),
            calls,
            ops,
            waits,
            ..Timeline::default()
        }
    })
}

/// The same with times within some minutes, and with steps: absurd times are clamped, by the
/// schedule otherwise than by a skeleton.
fn timeline_with_steps() -> impl Strategy<Value = Timeline> {
    const LIMIT: u64 = 1 << 40;
    let steps = prop::collection::vec((span(), thread()), 0..12);
    (any_timeline(), steps).prop_map(|(mut timeline, steps)| {
        let limit = |start_ns: &mut u64, end_ns: &mut u64| {
            let length_ns = (*end_ns - *start_ns) % LIMIT;
            *start_ns %= LIMIT;
            *end_ns = *start_ns + length_ns;
        };
        let mut order: Vec<CallIndex> = Index::all(&timeline.calls).collect();
        for call in &mut timeline.calls {
            limit(&mut call.start_ns, &mut call.end_ns);
        }
        order.sort_by_key(|call| timeline.calls[*call].start_ns);
        let mut place = order.clone();
        for (new, old) in Index::all(&timeline.calls).zip(&order) {
            place[old.at()] = new;
        }
        timeline.calls.sort_by_key(|call| call.start_ns);
        for op in &mut timeline.ops {
            limit(&mut op.start_ns, &mut op.end_ns);
            op.call = op.call.map(|call| place[call.at()]);
        }
        timeline.ops.sort_by_key(|op| (op.start_ns, op.end_ns));
        for wait in &mut timeline.waits {
            wait.call = place[wait.call.at()];
            wait.event_call = wait.event_call.map(|call| place[call.at()]);
        }
        timeline.waits.sort_by_key(|wait| wait.call);
        for pause in &mut timeline.pauses {
            limit(&mut pause.start_ns, &mut pause.end_ns);
        }
        timeline.pauses.sort_by_key(|pause| pause.start_ns);
        for ((mut start_ns, mut end_ns), thread) in steps {
            limit(&mut start_ns, &mut end_ns);
            timeline.steps.push(StepSpan {
                start_ns,
                end_ns,
                thread,
                cpu_ns: None,
                number: 0,
                source: StepSource::ProfilerStep,
            });
        }
        timeline.steps.sort_by_key(|step| step.start_ns);
        timeline
    })
}

/// A pause longer than all the time that the replay reckons with: without it the job ends before
/// the clock's zero.
#[test]
fn shares_sum_to_the_cost_if_a_clock_starts_within_a_pause() {
    let call = |thread, at_ns| Call {
        start_ns: at_ns,
        end_ns: at_ns,
        thread: Index::new(thread),
        function: Index::new(0),
        kind: CallEffect::Launch,
        stream: Some(Index::new(0)),
        timed: false,
    };
    let timeline = Timeline {
        process: ProcessTimeline {
            pid: 1,
            threads: vec![Thread { tid: 1, name: None }, Thread { tid: 2, name: None }],
            pauses: vec![pause(0, 0, (1 << 60) + 1)],
            ..ProcessTimeline::default()
        },
        streams: vec![Stream { device: Some(0), number: 0 }],
        names: names(),
        calls: vec![call(1, 0), call(0, u64::MAX)],
        ..Timeline::default()
    };
    let job = ReplayJob::single(&timeline);
    let attribution = attribute(&job, &ReplayModel::learn(&job), AttributionBudget { single: 2 });
    let sum: u64 = attribution.shares.iter().map(|share| share.share_ns).sum();
    assert_eq!((sum, attribution.cost_ns), ((1 << 60) + 1, (1 << 60) + 1));
}

proptest! {

    #[test]
    fn unchanged_is_as_measured_whatever_the_trace(
        timelines in prop::collection::vec(any_timeline(), 1..3),
        members in prop::collection::vec((0..3u32, 0..40usize), 0..6),
    ) {
        let exists = |(timeline, op): &&(u32, usize)| {
            let timeline = timelines.get(*timeline as usize);
            timeline.is_some_and(|timeline| *op < timeline.ops.len())
        };
        let member = |(timeline, op): &(u32, usize)| CollectiveMember {
            timeline: *timeline,
            op: Index::new(*op),
        };
        let members = members.chunks(2).map(|members| ReplayCollective {
            members: members.iter().filter(exists).map(member).collect(),
        });
        let job = ReplayJob {
            timelines: timelines.iter().collect(),
            offsets_ns: vec![0, 0],
            collectives: members.collect(),
        };
        let model = ReplayModel::learn(&job);
        assert_same(&job, &model, &ReplayChange::default());
        let attribution = attribute(&job, &model, AttributionBudget { single: 2 });
        let sum: u128 = attribution.shares.iter().map(|share| u128::from(share.share_ns)).sum();
        prop_assert_eq!(sum, u128::from(attribution.cost_ns));
        for (rank, timeline) in timelines.iter().enumerate() {
            for device in 0..3 {
                let idle = model.replay(&ReplayChange::default()).idle_ns(rank, device);
                prop_assert!(u128::from(idle) <= u128::from(end_ns(timeline)));
            }
            for call in &timeline.calls {
                let at_ns = call.start_ns;
                let schedule = model.replay(&ReplayChange::default());
                prop_assert_eq!(schedule.timestamp(rank, call.thread, at_ns), at_ns);
            }
        }
    }

    #[test]
    fn a_ledger_closes_whatever_the_trace(timeline in any_timeline()) {
        let model = ReplayModel::learn(&ReplayJob::single(&timeline));
        for ledger in model.idle_ledgers(&timeline) {
            let busy_ns = ledger.compute_ns + ledger.communication_ns + ledger.copies_ns;
            prop_assert_eq!(busy_ns + ledger.idle_ns, ledger.span_ns);
            let booked_ns: u64 = ledger.rows.iter().map(|row| row.time_ns).sum();
            prop_assert_eq!(booked_ns, ledger.idle_ns, "{:?}", ledger);
            for row in &ledger.rows {
                let placed_ns: u64 = row.places.iter().map(|place| place.time_ns).sum();
                prop_assert!(placed_ns <= row.time_ns, "{:?}", row);
            }
        }
    }

    #[test]
    fn a_shorter_pause_makes_nothing_later(
        timeline in any_timeline(),
        lengths in prop::collection::vec((0..6usize, 0..60u64, 0..60u64), 0..6),
        inserted in prop::collection::vec((thread(), any_time(), any_time()), 0..3),
    ) {
        let job = ReplayJob::single(&timeline);
        let model = ReplayModel::learn(&job);
        let change = |longer: bool| ReplayChange {
            lengths: lengths.iter().filter(|length| length.0 < timeline.pauses.len()).map(|(pause, length, more)| PauseLength {
                timeline: 0,
                pause: Index::new(*pause),
                length_ns: length + if longer { *more } else { 0 },
            }).collect(),
            inserted: inserted.iter().map(|(thread, at_ns, length_ns)| InsertedPause {
                timeline: 0,
                thread: *thread,
                at_ns: *at_ns,
                length_ns: if longer { *length_ns } else { length_ns / 2 },
            }).collect(),
        };
        let (shorter, longer) = (model.replay(&change(false)), model.replay(&change(true)));
        for op in Index::all(&timeline.ops) {
            let (a, b) = (shorter.op(0, op), longer.op(0, op));
            prop_assert!(a.0 <= b.0 && a.1 <= b.1, "operation {op:?}: {a:?} {b:?}");
        }
        for call in Index::all(&timeline.calls) {
            let (a, b) = (shorter.call(0, call), longer.call(0, call));
            prop_assert!(a.0 <= b.0 && a.1 <= b.1, "call {call:?}: {a:?} {b:?}");
        }
    }

    #[test]
    fn a_skeleton_is_as_the_replay_whatever_the_trace(
        timeline in timeline_with_steps(),
        lengths in prop::collection::vec((0..6usize, 0..1u64 << 41), 0..6),
        inserted in prop::collection::vec((thread(), 0..1u64 << 40, 0..1u64 << 30), 0..3),
    ) {
        let job = ReplayJob::single(&timeline);
        let model = ReplayModel::learn(&job);
        let lengths = lengths.iter().filter(|length| length.0 < timeline.pauses.len());
        let change = ReplayChange {
            lengths: lengths.map(|(pause, length_ns)| PauseLength {
                timeline: 0,
                pause: Index::new(*pause),
                length_ns: *length_ns,
            }).collect(),
            inserted: inserted.iter().map(|(thread, at_ns, length_ns)| InsertedPause {
                timeline: 0,
                thread: *thread,
                at_ns: *at_ns,
                length_ns: *length_ns,
            }).collect(),
        };
        let skeleton = model.skeleton(&timeline, &[], std::slice::from_ref(&change));
        let joined = JoinedSkeletons::join(&[&skeleton], &[0], &[]);
        let changes = [ReplayChange::default(), ReplayChange::without_all(&job), change];
        for (scenario, change) in changes.iter().enumerate() {
            let (full, joined) = (model.replay(change), joined.replay(|_| scenario));
            prop_assert_eq!(joined.end_ns(0), full.end_ns(0));
            let timestamp = |thread, at_ns| full.timestamp(0, thread, at_ns);
            for (start_ns, end_ns) in joined.steps_ns(0) {
                let mut steps = timeline.steps.iter();
                prop_assert!(steps.any(|step| {
                    timestamp(step.thread, step.start_ns) == start_ns
                        && timestamp(step.thread, step.end_ns) == end_ns
                }), "{} {}", start_ns, end_ns);
            }
        }
    }
}
