//! A case judged: what the replay predicts for every run with collections against what the runs
//! without took.

use super::Recorded;
use gctrace_analysis::gpu::ranks;
use gctrace_analysis::gpu::replay::Change;
use gctrace_analysis::gpu::replay::Job;
use gctrace_analysis::gpu::replay::Model;
use gctrace_analysis::gpu::timeline::Timeline;

/// A prediction may be off by this share of the real difference, ...
const SHARE_PERCENT: i64 = 5;
/// ... or by this, whichever is more.
const LEAST_NS: i64 = 1_000_000;

/// The traces of each rank say times that are so much later than those of the rank before:
/// kineto_of_simgpu.py.
const AHEAD_NS: i64 = 3_000_000;
/// How far off the analysis may be in finding that. The simulator ends a collective for all ranks at
/// once, but the ranks read their wall clocks one after the other.
const CLOCKS_NS: u64 = 100_000;

/// Medians over the runs, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Of runs with collections: all pauses together.
    pub(crate) pauses: i64,
    /// With collections less without.
    pub(crate) real: i64,
    /// The same as the replay says of the runs with collections.
    pub(crate) predicted: i64,
    /// What the overlap rule says: time in pauses during which the GPU was idle.
    pub(crate) overlap: i64,
    /// Predicted less real.
    pub(crate) error: i64,
    /// Of runs without collections: the third quartile less the first.
    pub(crate) noise: i64,
}

impl Outcome {
    /// How far off a prediction may be.
    pub(crate) fn bound(&self) -> i64 {
        (self.real * SHARE_PERCENT / 100).max(LEAST_NS)
    }
}

/// `runs`: with collections and without in turn.
pub(crate) fn judge(runs: &[Recorded]) -> Outcome {
    let with: Vec<Prediction> = runs.iter().step_by(2).map(predict).collect();
    let without: Vec<i64> = runs.iter().skip(1).step_by(2).map(length).collect();
    let truth = quantile(&without, 50);
    let of = |figure: fn(&Prediction) -> i64| -> i64 {
        quantile(&with.iter().map(figure).collect::<Vec<_>>(), 50)
    };
    Outcome {
        pauses: of(|run| run.pauses),
        real: of(|run| run.length) - truth,
        predicted: of(|run| run.length - run.replayed),
        overlap: of(|run| run.overlap),
        // Of each run for itself: runs differ by their pauses.
        error: truth - of(|run| run.replayed),
        noise: quantile(&without, 75) - quantile(&without, 25),
    }
}

fn quantile(values: &[i64], percent: usize) -> i64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len().saturating_sub(1) * percent + 50) / 100;
    sorted.get(at).copied().unwrap_or(0)
}

struct Prediction {
    length: i64,
    replayed: i64,
    pauses: i64,
    overlap: i64,
}

fn predict(run: &Recorded) -> Prediction {
    let job = job(run);
    let model = Model::learn(&job);
    let (begin, end) = span(&job);
    let same = model.replay(&Change::default());
    assert_eq!(same.makespan_end_ns().cast_signed(), end, "identity");
    for (at, (timeline, offset)) in job.timelines.iter().zip(&job.offsets_ns).enumerate() {
        for (op, measured) in timeline.ops.iter().enumerate() {
            let moments = [measured.begin_ns, measured.end_ns];
            let [begin, end] = moments.map(|moment| moment.saturating_add_signed(*offset));
            assert_eq!(same.op(at, op), (begin, end));
        }
    }
    let without = model.replay(&Change::without_all(&job));
    let pauses = run.ranks.iter().flat_map(|rank| &rank.pauses);
    Prediction {
        length: end - begin,
        replayed: without.makespan_end_ns().cast_signed() - begin,
        pauses: pauses.map(|pause| pause.duration_ns().cast_signed()).sum(),
        overlap: run.ranks.iter().map(overlap).sum(),
    }
}

/// Of several ranks as the analysis finds it, by their collectives.
fn job(run: &Recorded) -> Job<'_> {
    let timelines: Vec<&Timeline> = run.ranks.iter().collect();
    if let [timeline] = timelines.as_slice() {
        return Job::single(timeline);
    }
    let jobs = ranks::jobs(&timelines);
    let [job] = jobs.jobs.as_slice() else {
        panic!("{} jobs, {:?} alone", jobs.jobs.len(), jobs.alone);
    };
    assert_eq!(job.members.len(), timelines.len());
    for member in &job.members {
        let ahead = i64::from(member.rank) * AHEAD_NS;
        let apart = (member.offset_ns + ahead).unsigned_abs();
        assert!(apart < CLOCKS_NS, "{member:?}");
    }
    job.job(&timelines)
}

/// From the first call to the end of the last call or operation of all ranks.
fn span(job: &Job<'_>) -> (i64, i64) {
    let ranks = || job.timelines.iter().zip(&job.offsets_ns);
    let first = |rank: &Timeline| rank.calls.first().unwrap().begin_ns.cast_signed();
    let last = |rank: &Timeline| {
        let ops = rank.ops.iter().map(|op| op.end_ns);
        let ends = ops.chain(rank.calls.iter().map(|call| call.end_ns));
        ends.max().unwrap().cast_signed()
    };
    (
        ranks()
            .map(|(rank, offset)| first(rank) + offset)
            .min()
            .unwrap(),
        ranks()
            .map(|(rank, offset)| last(rank) + offset)
            .max()
            .unwrap(),
    )
}

fn length(run: &Recorded) -> i64 {
    let (begin, end) = span(&job(run));
    end - begin
}

/// Time in pauses during which no operation ran.
fn overlap(timeline: &Timeline) -> i64 {
    let pauses = timeline.pauses.iter();
    pauses
        .map(|pause| {
            let mut idle = 0;
            let mut at = pause.begin_ns;
            let mut ops: Vec<(u64, u64)> = timeline
                .ops
                .iter()
                .map(|op| (op.begin_ns, op.end_ns))
                .collect();
            ops.sort_unstable();
            for (begin, end) in ops {
                idle += begin.min(pause.end_ns).saturating_sub(at);
                at = at.max(end);
            }
            idle += pause.end_ns.saturating_sub(at);
            idle.cast_signed()
        })
        .sum()
}
