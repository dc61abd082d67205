//! Skeletons of ranks, joined, against the replay of the whole job: the same times in every
//! scenario, to the nanosecond.

use crate::{ranks_job, ranks_layouts};

use gctrace_analysis::gpu::replay::{
    InsertedPause, JoinedReplay, JoinedSkeletons, PauseLength, ReplayChange, ReplayJob,
    ReplayModel, ReplaySchedule, Skeleton,
};
use gctrace_analysis::gpu::timeline::{OpIndex, Timeline};
use gctrace_analysis::spans::PauseSpan;
use gctrace_analysis::spans::index::Index;
use gctrace_event::Record;
use proptest::prelude::*;
use ranks_job::{Plan, RankRun, START, found, paused, run, timelines};
use ranks_layouts::schedules::{expert_parallel, in_step, interleaved};
use ranks_layouts::{Layout, Naming, simulate};

/// A job with both replays of it.
struct Both<'a> {
    job: &'a ReplayJob<'a>,
    full: ReplayModel<'a>,
    skeletons: Vec<Skeleton>,
    /// Changes of the job that the skeletons have as scenarios.
    changes: &'a [ReplayChange],
}

impl<'a> Both<'a> {
    /// Of every so many operations one is cut that is no collective.
    fn new(job: &'a ReplayJob<'a>, changes: &'a [ReplayChange], cut_every: usize) -> Self {
        let skeletons = (0u32..).zip(&job.timelines).map(|(at, timeline)| {
            let members = job.collectives.iter().flat_map(|one| &one.members);
            let members = members.filter(|member| member.timeline == at);
            let others = Index::all(&timeline.ops).step_by(cut_every);
            let meets: Vec<OpIndex> = members.map(|member| member.op).chain(others).collect();
            let changes: Vec<ReplayChange> =
                changes.iter().map(|change| of_one(change, at)).collect();
            ReplayModel::learn(&ReplayJob::single(timeline)).skeleton(timeline, &meets, &changes)
        });
        Self { job, full: ReplayModel::learn(job), skeletons: skeletons.collect(), changes }
    }

    fn joined(&self) -> JoinedSkeletons<'_> {
        let skeletons: Vec<&Skeleton> = self.skeletons.iter().collect();
        JoinedSkeletons::join(&skeletons, &self.job.offsets_ns, &self.job.collectives)
    }

    /// Every scenario: as measured, without the pauses of each rank, of all, and the changes.
    fn assert_equal(&self) {
        let joined = self.joined();
        let measured = self.full.replay(&ReplayChange::default());
        let as_measured = joined.replay(|_| JoinedSkeletons::MEASURED);
        self.assert_same("measured", &as_measured, &measured);
        for rank in 0..self.job.timelines.len() {
            let change = ReplayChange::without(self.job, |at, _| at == rank);
            let without = joined.replay(|at| {
                if at == rank { JoinedSkeletons::WITHOUT_PAUSES } else { JoinedSkeletons::MEASURED }
            });
            self.assert_same("without a rank's", &without, &self.full.replay(&change));
        }
        let without = joined.replay(|_| JoinedSkeletons::WITHOUT_PAUSES);
        let change = ReplayChange::without_all(self.job);
        self.assert_same("without all", &without, &self.full.replay(&change));
        for (at, change) in self.changes.iter().enumerate() {
            let changed = joined.replay(|_| JoinedSkeletons::FIRST_CHANGE + at);
            self.assert_same("changed", &changed, &self.full.replay(change));
        }
    }

    fn assert_same(&self, what: &str, joined: &JoinedReplay<'_>, full: &ReplaySchedule<'_>) {
        for (at, timeline) in self.job.timelines.iter().enumerate() {
            assert_eq!(joined.end_ns(at), full.end_ns(at), "{what}: end of {at}");
            let steps = timeline.steps.iter().map(|step| {
                let timestamp = |at_ns| full.timestamp(at, step.thread, at_ns);
                (timestamp(step.start_ns), timestamp(step.end_ns))
            });
            let steps: Vec<(u64, u64)> = steps.collect();
            let joined_steps: Vec<(u64, u64)> = joined.steps_ns(at).collect();
            assert_eq!(joined_steps, steps, "{what}: steps of {at}");
            let stepping = stepping_ns(timeline, at, full);
            assert_eq!(joined.stepping_ns(at), stepping, "{what}: stepping of {at}");
        }
    }
}

/// From the start of the first step until everything launched in the steps has finished.
fn stepping_ns(timeline: &Timeline, at: usize, schedule: &ReplaySchedule<'_>) -> Option<u64> {
    let (first, last) = (timeline.steps.first()?, timeline.steps.last()?);
    let start_ns = schedule.timestamp(at, first.thread, first.start_ns);
    let asked = Index::enumerate(&timeline.ops).filter(|(_, op)| {
        let call = timeline.call(op);
        call.is_some_and(|call| (first.start_ns..=last.end_ns).contains(&call.start_ns))
    });
    let ends_ns = asked.map(|(op, _)| schedule.op(at, op).1);
    let returned_ns = schedule.timestamp(at, last.thread, last.end_ns);
    Some(ends_ns.fold(returned_ns, u64::max) - start_ns)
}

/// The part of a change of one timeline, as if it were alone.
fn of_one(change: &ReplayChange, timeline: u32) -> ReplayChange {
    let lengths = change.lengths.iter();
    let lengths = lengths.filter(|length| length.timeline == timeline);
    let inserted = change.inserted.iter();
    let inserted = inserted.filter(|inserted| inserted.timeline == timeline);
    ReplayChange {
        lengths: lengths.map(|one| PauseLength { timeline: 0, ..*one }).collect(),
        inserted: inserted.map(|one| InsertedPause { timeline: 0, ..*one }).collect(),
    }
}

/// Changes of all ranks at once: shorter, longer, and additional pauses.
fn changes(job: &ReplayJob<'_>, seed: u64) -> Vec<ReplayChange> {
    let mut random = seed;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % limit
    };
    let change = |_| {
        let mut change = ReplayChange::default();
        for (timeline, content) in (0u32..).zip(&job.timelines) {
            for (pause, span) in Index::enumerate(&content.pauses) {
                change.lengths.push(PauseLength {
                    timeline,
                    pause,
                    length_ns: below(2 * PauseSpan::duration_ns(span)),
                });
            }
            for _ in 0..below(4) {
                let step = content.steps[below(content.steps.len() as u64) as usize];
                change.inserted.push(InsertedPause {
                    timeline,
                    thread: step.thread,
                    at_ns: step.start_ns + below(2) * below(500_000),
                    length_ns: below(20_000_000),
                });
            }
        }
        change
    };
    (0..3).map(change).collect()
}

/// Every rank on a clock of its own.
fn assert_equal(plan: &Plan) -> Vec<Skeleton> {
    let moved: Vec<RankRun> = run(plan, START)
        .iter()
        .map(|run| run.on_clock(i64::from(run.rank) * 2_345_678_901))
        .collect();
    assert_equal_runs(plan, &moved, usize::MAX)
}

fn assert_equal_runs(plan: &Plan, runs: &[RankRun], cut_every: usize) -> Vec<Skeleton> {
    let timelines = timelines(runs);
    let found = found(&timelines);
    assert_eq!(found.jobs.len(), 1);
    let all: Vec<&Timeline> = timelines.iter().collect();
    let job = found.jobs[0].job(&all);
    assert!(!job.collectives.is_empty());
    let changes = changes(&job, plan.seed);
    let both = Both::new(&job, &changes, cut_every);
    both.assert_equal();
    both.skeletons
}

/// Every rank on a clock of its own. Returns how many members of collectives, sends and receives
/// waited, and how many did not.
fn assert_equal_layout(layout: Layout, naming: Naming) -> [usize; 2] {
    let layout = Layout { hosted: true, ..layout };
    let timelines: Vec<Timeline> = (0u32..)
        .zip(simulate(&layout))
        .map(|(rank, trace)| trace.timeline(rank, naming, &layout, u64::from(rank) * 2_345_678_901))
        .collect();
    assert!(timelines.iter().any(|timeline| !timeline.pauses.is_empty()));
    let found = found(&timelines);
    assert_eq!(found.jobs.len(), 1);
    let all: Vec<&Timeline> = timelines.iter().collect();
    let job = found.jobs[0].job(&all);
    let changes = changes(&job, layout.seed);
    Both::new(&job, &changes, usize::MAX).assert_equal();
    let mut count = [0, 0];
    for collective in &job.collectives {
        let spans = collective.members.iter().map(|member| {
            let at = member.timeline as usize;
            let op = &job.timelines[at].ops[member.op];
            let on_clock = |at_ns| i128::from(at_ns) + i128::from(job.offsets_ns[at]);
            (on_clock(op.start_ns), on_clock(op.end_ns))
        });
        let spans: Vec<(i128, i128)> = spans.collect();
        let last_ns = spans.iter().map(|(start_ns, _)| *start_ns).max();
        for (_, end_ns) in spans {
            // Far beyond the errors of the clocks.
            count[usize::from(last_ns > Some(end_ns + 100_000))] += 1;
        }
    }
    count
}

#[test]
fn skeletons_of_groups_and_pipelines() {
    for naming in [Naming::Sequence, Naming::Group] {
        for eager in [false, true] {
            let layout = Layout { eager, ..interleaved(4, 2, 8, 2, 7) };
            let [waited, not] = assert_equal_layout(layout, naming);
            assert!(waited > 1_000, "{waited}");
            assert_eq!(not > 0, eager, "{not}");
        }
        assert_equal_layout(expert_parallel(6), naming);
        assert_equal_layout(in_step(12, 4, 6, 100_000, 300_000, 9), naming);
    }
    // Only what is certain is a collective.
    assert_equal_layout(in_step(8, 4, 20, 300_000, 400_000, 2), Naming::Nothing);
}

#[test]
fn skeletons_of_simulated_jobs() {
    for (one_stream, blocking, think_ns, ranks, together) in [
        (true, false, 20_000, 2, 0),
        (true, false, 110_000, 2, 0),
        (true, true, 20_000, 3, 0),
        (false, false, 20_000, 2, 0),
        (false, false, 110_000, 2, 0),
        (false, true, 20_000, 3, 0),
        (false, true, 90_000, 4, 2),
        (false, false, 20_000, 4, 2),
        (false, false, 90_000, 6, 3),
    ] {
        assert_equal(&paused(Plan {
            ranks,
            one_stream,
            blocking,
            think_ns,
            together,
            ..Plan::default()
        }));
    }
}

/// One rank was recorded later than the others, one not as long.
#[test]
fn ranks_recorded_at_different_times() {
    let plan =
        Plan { ranks: 4, together: 2, numbered: true, ..Plan::default() }.with_random_pauses(10);
    let mut runs = run(&plan, START);
    let (first, last) = (runs[1].steps[4].0, runs[2].steps[15].1);
    runs[1] = runs[1].between(first, u64::MAX);
    runs[2] = runs[2].between(0, last);
    assert_equal_runs(&plan, &runs, usize::MAX);
}

/// Operations that no other rank takes part in take as long as measured, cut or not.
#[test]
fn more_cuts_than_collectives() {
    for blocking in [false, true] {
        let plan = paused(Plan { blocking, ..Plan::default() });
        assert_equal_runs(&plan, &run(&plan, START), 7);
    }
}

/// More operations than a queue holds, and a host that never waits for them.
#[test]
fn a_host_that_never_synchronizes() {
    for kernel_ns in [15_000, 25_000, 60_000] {
        let plan =
            Plan { steps: 36, kernels: [20, 10, 10], kernel_ns, together: 0, ..Plan::default() };
        assert_equal(&plan.with_random_pauses(8));
    }
}

/// Hosts that wait at the end of each step have queues that never decide: also those that wait for a
/// collective, on a stream that the trace does not name. Hosts that never wait add the collectives
/// that their full queues wait for.
#[test]
fn a_skeleton_is_small() {
    // Whether hosts wait, kernels after the last collective, how many times fewer nodes.
    for (blocking, last, fewer) in [(true, 10, 20), (true, 0, 20), (false, 10, 15)] {
        let plan = Plan {
            blocking,
            kernel_ns: 60_000,
            steps: 80,
            kernels: [30, 10, last],
            ..Plan::default()
        };
        let plan = plan.with_random_pauses(8);
        let mut runs = run(&plan, START);
        for record in runs.iter_mut().flat_map(|run| &mut run.records) {
            if let Record::CudaCall(call) = record
                && call.function == "cudaStreamSynchronize"
                && last == 0
            {
                call.stream = None;
            }
        }
        // Two for each call and each kernel, and five calls around each collective.
        let times = 80 * (30 + 3 * 10 + last as usize + 3 * 6) * 4;
        for skeleton in assert_equal_runs(&plan, &runs, usize::MAX) {
            assert!(
                skeleton.nodes() * fewer < times && skeleton.edges() < 4 * skeleton.nodes(),
                "{blocking} {last}: {} nodes, {} edges of {times}",
                skeleton.nodes(),
                skeleton.edges()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(5)))]

    #[test]
    fn skeletons_of_random_jobs(
        seed in 1..100_000u64,
        ranks in 2..7u32,
        together in 0..4u32,
        switches in prop::array::uniform3(any::<bool>()),
        think_ns in 5_000..150_000u64,
        kernel_ns in 5_000..150_000u64,
        pauses in 0..12u64,
        steps in prop::sample::select(vec![12, 12, 12, 60]),
    ) {
        let [blocking, one_stream, numbered] = switches;
        let plan = Plan {
            seed,
            ranks,
            together: if one_stream { 0 } else { together },
            blocking,
            one_stream,
            numbered: numbered || together > 0,
            think_ns,
            kernel_ns,
            steps,
            ..Plan::default()
        };
        let plan = plan.with_random_pauses(pauses);
        // Without numbers, collectives in which nobody waits are ambiguous.
        let timelines = timelines(&run(&plan, START));
        prop_assume!(plan.numbered || found(&timelines).jobs.iter().any(|job| !job.collectives.is_empty()));
        assert_equal(&plan);
    }
}

/// A skeleton needs nothing of the timeline: written and read, it is the same.
#[test]
fn written_and_read() {
    let skeletons = assert_equal(&paused(Plan::default()));
    for skeleton in skeletons {
        let text = serde_json::to_string(&skeleton).expect("a text");
        let read: Skeleton = serde_json::from_str(&text).expect("a skeleton");
        assert_eq!(read, skeleton);
    }
}
