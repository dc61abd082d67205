//! The replay against a simulator that knows the truth, and on timelines of any kind.

use crate::simulated;

use gctrace_analysis::gpu::calls::CallEffect;
use gctrace_analysis::gpu::replay::{
    AttributionBudget, CollectiveMember, InsertedPause, ReplayChange, ReplayCollective, ReplayJob,
    ReplayModel, attribute,
};
use gctrace_analysis::gpu::timeline::{
    Call, CallIndex, NameIndex, Op, ProcessTimeline, Stream, Thread, Timeline,
};
use gctrace_analysis::spans::index::Index;
use gctrace_event::GpuOpKind;
use proptest::prelude::*;
use simulated::{Action, CALL, LATENCY, US, assert_same, end_ns, pause};
use std::sync::Arc;

const MS: u64 = 1_000_000;

/// The cost of all pauses by replay, and the true cost.
fn costs(program: &[Action], streams: usize) -> (i64, i64) {
    let measured = simulated::run(program, streams, true);
    let truth = end_ns(&measured).cast_signed()
        - end_ns(&simulated::run(program, streams, false)).cast_signed();
    let job = ReplayJob::single(&measured);
    let model = ReplayModel::learn(&job);
    let without = model.replay(&ReplayChange::without_all(&job));
    let replayed = end_ns(&measured).cast_signed() - without.end_ns(0).cast_signed();
    (replayed, truth)
}

fn host_bound(steps: usize, pause_ns: u64) -> Vec<Action> {
    let launch = |stream| Action::Launch { stream, length: 5 * US };
    let mut program = Vec::new();
    for step in 0..steps {
        for _ in 0..20 {
            program.extend([Action::Think(20 * US), launch(0)]);
        }
        if step == steps / 2 {
            program.push(Action::Collect(pause_ns));
        }
    }
    program
}

#[test]
fn with_a_saturated_host_a_pause_costs_its_length() {
    let (replayed, truth) = costs(&host_bound(10, 20 * MS), 1);
    assert_eq!(truth, 20_000_000);
    assert_eq!(replayed, 20_000_000);
}

/// The host runs far ahead of kernels of 200 us.
fn gpu_bound(launches: usize, pause_ns: u64) -> Vec<Action> {
    let mut program = Vec::new();
    for launch in 0..launches {
        let length = 200 * US;
        program.extend([Action::Think(5 * US), Action::Launch { stream: 0, length }]);
        if launch == launches / 2 {
            program.push(Action::Collect(pause_ns));
        }
    }
    program.push(Action::DeviceSynchronize);
    program
}

#[test]
fn behind_a_deep_queue_a_pause_costs_nothing() {
    let (replayed, truth) = costs(&gpu_bound(800, 20 * MS), 1);
    assert_eq!((replayed, truth), (0, 0));
    let measured = simulated::run(&gpu_bound(800, 20 * MS), 1, true);
    let job = ReplayJob::single(&measured);
    let model = ReplayModel::learn(&job);
    let attribution = attribute(&job, &model, AttributionBudget::for_model(&model));
    let cost = attribution.pauses[0];
    assert_eq!((cost.cost_ns, cost.hidden_ns), (0, 20 * MS));
}

#[test]
fn a_full_queue_blocks_launches() {
    // 3,000 launches of 200 us: the host is blocked by the queue of 1,024 for most of the time.
    let (replayed, truth) = costs(&gpu_bound(3_000, 20 * MS), 1);
    assert_eq!((replayed, truth), (0, 0));
    // A pause longer than the queue drains it.
    let (replayed, truth) = costs(&gpu_bound(3_000, 300 * MS), 1);
    assert!(truth > 90_000_000, "{truth}");
    assert!((replayed - truth).abs() < 20_000, "{replayed} {truth}");
}

#[test]
fn a_pause_that_drains_the_queue_is_paid_later() {
    // Each step queues 10 ms of work in 1 ms and then thinks 9 ms: the GPU is just kept busy. A
    // pause of 8 ms right after queueing is hidden at first, and late for the next step.
    let mut program = Vec::new();
    for step in 0..12 {
        for _ in 0..50 {
            program.push(Action::Think(17 * US));
            let length = 199 * US;
            program.push(Action::Launch { stream: 0, length });
        }
        if step == 6 {
            program.push(Action::Collect(8 * MS));
        }
        program.push(Action::Think(8_800 * US));
    }
    program.push(Action::DeviceSynchronize);
    let (replayed, truth) = costs(&program, 1);
    assert!(truth > 2_000_000 && truth < 8_000_000, "{truth}");
    assert!((replayed - truth).abs() < 20_000, "{replayed} {truth}");
}

#[test]
fn parts_of_a_cost_add_up_to_the_length() {
    for program in [host_bound(10, 20 * MS), gpu_bound(300, 40 * MS)] {
        let measured = simulated::run(&program, 1, true);
        let job = ReplayJob::single(&measured);
        let model = ReplayModel::learn(&job);
        let attribution = attribute(&job, &model, AttributionBudget::for_model(&model));
        let cost = attribution.pauses[0];
        let parts = cost.exposed_ns + cost.deferred_ns;
        assert_eq!(parts, cost.cost_ns);
        assert_eq!(parts + cost.hidden_ns, cost.length_ns);
        // At once: nothing is queued behind either pause when it starts to cost.
        assert!(cost.exposed_ns + 2 * LATENCY >= cost.cost_ns, "{cost:?}");
    }
}

#[test]
fn a_wait_that_the_pause_made_short_becomes_long_again() {
    let mut program = Vec::new();
    for step in 0..10 {
        let length = 3 * MS;
        program.extend([Action::Think(100 * US), Action::Launch { stream: 0, length }]);
        if step == 5 {
            program.push(Action::Collect(50 * MS));
        }
        program.push(Action::StreamSynchronize(0));
    }
    let (replayed, truth) = costs(&program, 1);
    assert!(truth > 46_000_000 && truth < 48_000_000, "{truth}");
    assert!((replayed - truth).abs() < 20_000, "{replayed} {truth}");
}

fn with_backward(pause_in_backward: bool) -> Vec<Action> {
    let launches = |count: usize, think: u64| {
        let one = move |_| {
            let length = 30 * US;
            [Action::Think(think), Action::Launch { stream: 0, length }]
        };
        (0..count).flat_map(one).collect::<Vec<_>>()
    };
    let mut program = Vec::new();
    for step in 0..8 {
        program.extend(launches(40, 20 * US));
        let mut backward = launches(60, 8 * US);
        if step == 4 && pause_in_backward {
            backward.insert(60, Action::Collect(15 * MS));
        }
        program.push(Action::Backward(backward));
        if step == 4 && !pause_in_backward {
            program.push(Action::Collect(15 * MS));
        }
        let length = 2 * US;
        program.push(Action::CopyBack { stream: 0, length });
    }
    program
}

#[test]
fn threads_that_hand_over() {
    for in_backward in [false, true] {
        let (replayed, truth) = costs(&with_backward(in_backward), 1);
        assert!(truth > 10_000_000, "{truth}");
        assert!((replayed - truth).abs() < 20_000, "{replayed} {truth}");
    }
}

/// Two ranks: each step a kernel and a collective; the collective starts when both are ready.
fn two_ranks(pauses: [&[usize]; 2], with_pauses: bool) -> (Vec<Timeline>, Vec<ReplayCollective>) {
    const STEPS: usize = 20;
    let mut ranks = vec![Rank::default(), Rank::default()];
    let mut collectives = Vec::new();
    for step in 0..STEPS {
        let mut arrived = Vec::new();
        for (rank, paused) in ranks.iter_mut().zip(pauses) {
            if with_pauses && paused.contains(&step) {
                rank.collect(10 * MS);
            }
            rank.launch(500 * US);
            arrived.push(rank.ready());
        }
        let met = arrived.iter().copied().max().unwrap_or(0);
        let members = ranks.iter_mut().zip(arrived).zip(0u32..);
        let members = members.map(|((rank, start), timeline)| {
            rank.op(start, met + 200 * US);
            CollectiveMember { timeline, op: Index::new(rank.timeline.ops.len() - 1) }
        });
        collectives.push(ReplayCollective { members: members.collect() });
        for rank in &mut ranks {
            rank.synchronize();
        }
    }
    let timelines = ranks.into_iter().map(|rank| rank.timeline).collect();
    (timelines, collectives)
}

struct Rank {
    timeline: Timeline,
    now: u64,
    free: u64,
}

impl Default for Rank {
    fn default() -> Self {
        let timeline = Timeline {
            process: ProcessTimeline {
                pid: 1,
                threads: vec![Thread { tid: 1, name: None }],
                ..ProcessTimeline::default()
            },
            streams: vec![Stream { device: Some(0), number: 7 }],
            ..Timeline::default()
        };
        Self { timeline, now: MS, free: 0 }
    }
}

impl Rank {
    fn collect(&mut self, length: u64) {
        self.timeline.pauses.push(pause(0, self.now, self.now + length));
        self.now += length;
    }

    fn call(&mut self, kind: CallEffect, length: u64) -> CallIndex {
        let call = Call {
            start_ns: self.now,
            end_ns: self.now + length,
            thread: Index::new(0),
            function: self.name(&format!("{kind:?}")),
            kind,
            stream: Some(Index::new(0)),
            timed: true,
        };
        self.now += length;
        Index::push(&mut self.timeline.calls, call)
    }

    fn name(&mut self, text: &str) -> NameIndex {
        Arc::make_mut(&mut self.timeline.names).intern(text)
    }

    fn launch(&mut self, length: u64) {
        self.now += 50 * US;
        let start = (self.now + LATENCY).max(self.free + US);
        self.op(start, start + length);
    }

    /// Launches an operation with these times.
    fn op(&mut self, start_ns: u64, end_ns: u64) {
        let call = self.call(CallEffect::Launch, CALL);
        self.free = end_ns;
        let name = self.name("kernel");
        self.timeline.ops.push(Op {
            start_ns,
            end_ns,
            stream: Index::new(0),
            name,
            call: Some(call),
            kind: GpuOpKind::Kernel,
            group: None,
            sequence: None,
        });
    }

    fn ready(&self) -> u64 {
        (self.now + LATENCY).max(self.free + US)
    }

    fn synchronize(&mut self) {
        let length = self.free.saturating_sub(self.now) + 4 * US;
        self.call(CallEffect::StreamSynchronize, length);
    }
}

#[test]
fn a_rank_waits_for_the_pauses_of_the_other() {
    let pauses: [&[usize]; 2] = [&[5, 12], &[12, 17]];
    let (timelines, collectives) = two_ranks(pauses, true);
    let (truth, _) = two_ranks(pauses, false);
    let job =
        ReplayJob { timelines: timelines.iter().collect(), offsets_ns: vec![0, 0], collectives };
    let model = ReplayModel::learn(&job);
    assert_same(&job, &model, &ReplayChange::default());
    let without = model.replay(&ReplayChange::without_all(&job));
    for (rank, truth) in truth.iter().enumerate() {
        let error = without.end_ns(rank).abs_diff(end_ns(truth));
        assert!(error < 10_000, "rank {rank}: {error}");
    }
    // Of the two at step 12 each alone costs nothing; one rank's alone delay both.
    let first = model.replay(&ReplayChange::without(&job, |rank, _| rank == 0));
    let saved = end_ns(&timelines[1]) - first.end_ns(1);
    assert!(saved.abs_diff(10 * MS) < 10_000, "{saved}");
}

#[test]
fn polling_threads_are_left_out() {
    let mut measured = simulated::run(&host_bound(10, 20 * MS), 1, true);
    let end = end_ns(&measured) + 5 * MS;
    measured.threads.push(Thread { tid: 102, name: None });
    for at_ns in (1_000_000_000..end).step_by(1_000_000) {
        measured.calls.push(Call {
            start_ns: at_ns,
            end_ns: at_ns + US,
            thread: Index::new(2),
            function: measured.calls[0].function,
            kind: CallEffect::Query,
            stream: None,
            timed: true,
        });
    }
    let calls = std::mem::take(&mut measured.calls);
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|call| calls[*call].start_ns);
    for op in &mut measured.ops {
        let old = op.call.map(CallIndex::at);
        let new = order.iter().position(|call| Some(*call) == old);
        op.call = new.map(Index::new);
    }
    measured.calls = order.iter().map(|call| calls[*call]).collect();
    let job = ReplayJob::single(&measured);
    let model = ReplayModel::learn(&job);
    let with = model.replay(&ReplayChange::default()).end_ns(0);
    let without = model.replay(&ReplayChange::without_all(&job)).end_ns(0);
    assert_eq!(with - without, 20 * MS);
}

#[test]
fn timestamps_move_with_their_thread() {
    let measured = simulated::run(&host_bound(10, 20 * MS), 1, true);
    let collected = measured.pauses[0];
    let job = ReplayJob::single(&measured);
    let without = ReplayModel::learn(&job).replay(&ReplayChange::without_all(&job));
    let timestamp = |at_ns| without.timestamp(0, Index::new(0), at_ns);
    assert_eq!(timestamp(collected.start_ns), collected.start_ns);
    assert_eq!(timestamp(collected.start_ns + MS), collected.start_ns);
    assert_eq!(timestamp(collected.end_ns), collected.start_ns);
    assert_eq!(timestamp(collected.end_ns + MS), collected.start_ns + MS);
    let end = end_ns(&measured) + MS;
    assert_eq!(timestamp(end), end - 20 * MS);
}

fn action(streams: usize) -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..60u64).prop_map(|us| Action::Think(us * US)),
        8 => (0..streams, 2..150u64).prop_map(|(stream, us)| Action::Launch {
            stream,
            length: us * US
        }),
        1 => (0..streams, 1..20u64).prop_map(|(stream, us)| Action::CopyBack {
            stream,
            length: us * US
        }),
        1 => (0..streams).prop_map(Action::StreamSynchronize),
        1 => (0..streams, 0..streams)
            .prop_filter("two streams", |(from, to)| from != to)
            .prop_map(|(from, to)| Action::Wait { from, to }),
    ]
}

/// A training loop: the same actions again and again, with collections in between.
fn training() -> impl Strategy<Value = Vec<Action>> {
    let forward = prop::collection::vec(action(2), 10..60);
    let backward = prop::collection::vec(action(2), 10..60);
    let pauses = prop::collection::vec((0..20usize, 0..60usize, 100..30_000u64), 1..4);
    (forward, prop::option::of(backward), pauses).prop_map(|(forward, backward, pauses)| {
        // A pause before the first call costs the GPU nothing.
        let mut program = vec![Action::Launch { stream: 0, length: US }];
        for step in 0..20 {
            let here = pauses.iter().filter(|(at, _, _)| *at == step);
            let mut actions = forward.clone();
            for (_, place, us) in here {
                let place = place % (actions.len() + 1);
                actions.insert(place, Action::Collect(us * US));
            }
            program.extend(actions);
            program.extend(backward.clone().map(Action::Backward));
        }
        program.push(Action::DeviceSynchronize);
        program
    })
}

/// In a random program chance looks like cause now and then; the limit is 1 ms or 5 %, and pauses
/// are short here.
const CHANCE_NS: i64 = 1_000_000;

proptest! {

    #[test]
    fn removing_pauses_gives_the_run_without_them(program in training()) {
        let (replayed, truth) = costs(&program, 2);
        prop_assert!((replayed - truth).abs() < CHANCE_NS, "{replayed} {truth}");
    }

    #[test]
    fn inserting_a_pause_and_removing_it_returns_the_original(
        program in training(),
        place in 0.1..0.9f64,
        length_ns in 1..50 * MS,
    ) {
        let measured = simulated::run(&program, 2, false);
        let job = ReplayJob::single(&measured);
        let model = ReplayModel::learn(&job);
        let last = measured.calls.last().unwrap().start_ns;
        let first = measured.calls[0].start_ns;
        let at_ns = first + ((last - first) as f64 * place) as u64;
        let inserted = InsertedPause { timeline: 0, thread: Index::new(0), at_ns, length_ns };
        let change = ReplayChange { inserted: vec![inserted], ..ReplayChange::default() };
        let with = model.replay(&change);
        prop_assert!(with.end_ns(0) >= end_ns(&measured));
        prop_assert!(with.end_ns(0) <= end_ns(&measured) + length_ns + MS);
        let none = ReplayChange {
            inserted: vec![InsertedPause { length_ns: 0, ..inserted }],
            ..ReplayChange::default()
        };
        assert_same(&job, &model, &none);
    }

    #[test]
    fn shares_add_up(program in training()) {
        let measured = simulated::run(&program, 2, true);
        let job = ReplayJob::single(&measured);
        let model = ReplayModel::learn(&job);
        for budget in [AttributionBudget { single: 100 }, AttributionBudget { single: 1 }] {
            let attribution = attribute(&job, &model, budget);
            let sum: u64 = attribution.shares.iter().map(|share| share.share_ns).sum();
            prop_assert_eq!(sum, attribution.cost_ns);
            prop_assert_eq!(attribution.shares.len(), measured.pauses.len());
            for cost in &attribution.pauses {
                prop_assert_eq!(cost.exposed_ns + cost.deferred_ns, cost.cost_ns);
                if cost.cost_ns <= cost.length_ns {
                    prop_assert_eq!(cost.cost_ns + cost.hidden_ns, cost.length_ns);
                }
            }
        }
    }
}
