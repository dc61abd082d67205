//! A case judged: what the replay predicts for every run with collections against what the runs
//! without took.

use super::Recorded;
use gctrace_analysis::gpu::replay::Change;
use gctrace_analysis::gpu::replay::Collective;
use gctrace_analysis::gpu::replay::Job;
use gctrace_analysis::gpu::replay::Member;
use gctrace_analysis::gpu::replay::Model;
use gctrace_analysis::gpu::timeline::NONE;
use gctrace_analysis::gpu::timeline::Timeline;

/// A prediction may be off by this share of the real difference, ...
const SHARE_PERCENT: i64 = 5;
/// ... or by this, whichever is more.
const LEAST_NS: i64 = 1_000_000;

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
    let begin = begin(run);
    let same = model.replay(&Change::default());
    assert_eq!(
        same.makespan_end_ns().cast_signed() - begin,
        length(run),
        "identity"
    );
    for (at, timeline) in run.ranks.iter().enumerate() {
        for (op, measured) in timeline.ops.iter().enumerate() {
            assert_eq!(same.op(at, op), (measured.begin_ns, measured.end_ns));
        }
    }
    let without = model.replay(&Change::without_all(&job));
    let pauses = run.ranks.iter().flat_map(|rank| &rank.pauses);
    Prediction {
        length: length(run),
        replayed: without.makespan_end_ns().cast_signed() - begin,
        pauses: pauses.map(|pause| pause.duration_ns().cast_signed()).sum(),
        overlap: run.ranks.iter().map(overlap).sum(),
    }
}

/// The runs are of one machine and one clock.
fn job(run: &Recorded) -> Job<'_> {
    Job {
        timelines: run.ranks.iter().collect(),
        offsets_ns: vec![0; run.ranks.len()],
        collectives: collectives(&run.ranks),
    }
}

fn collectives(ranks: &[Timeline]) -> Vec<Collective> {
    let of = |timeline: &Timeline| -> Vec<u32> {
        let ops = (0..).zip(&timeline.ops);
        ops.filter(|(_, op)| op.group != NONE)
            .map(|(at, _)| at)
            .collect()
    };
    let by_rank: Vec<Vec<u32>> = ranks.iter().map(of).collect();
    let count = by_rank.first().map_or(0, Vec::len);
    let meeting = |number: usize| Collective {
        members: (0..)
            .zip(&by_rank)
            .map(|(timeline, ops)| Member {
                timeline,
                op: ops[number],
            })
            .collect(),
    };
    (0..count).map(meeting).collect()
}

fn begin(run: &Recorded) -> i64 {
    let first = run.ranks.iter().filter_map(|rank| rank.calls.first());
    first.map(|call| call.begin_ns).min().unwrap().cast_signed()
}

/// From the first call to the end of the last call or operation of all ranks.
fn length(run: &Recorded) -> i64 {
    let ends = run.ranks.iter().flat_map(|rank| {
        let ops = rank.ops.iter().map(|op| op.end_ns);
        ops.chain(rank.calls.iter().map(|call| call.end_ns))
    });
    ends.max().unwrap().cast_signed() - begin(run)
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
