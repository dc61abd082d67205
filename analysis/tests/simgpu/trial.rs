//! A case judged: what the replay predicts for every run with collections against what the runs
//! without took.

use super::Recorded;
use gctrace_analysis::gpu::ranks;
use gctrace_analysis::gpu::replay::Change;
use gctrace_analysis::gpu::replay::Job;
use gctrace_analysis::gpu::replay::Model;
use gctrace_analysis::gpu::replay::Schedule;
use gctrace_analysis::gpu::timeline::Timeline;
use std::collections::BTreeSet;

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
    /// What the overlap rule says they cost: time in pauses during which the GPU was idle.
    pub(crate) overlap: i64,
    /// From the first call to the last end.
    pub(crate) length: Figure,
    /// Time between the first and the last operation in which none ran; of all ranks together.
    pub(crate) idle: Figure,
}

impl Outcome {
    pub(crate) fn figures(&self) -> [&Figure; 2] {
        [&self.length, &self.idle]
    }
}

/// What collections add to a figure.
#[derive(Debug)]
pub(crate) struct Figure {
    /// With collections less without.
    pub(crate) real: i64,
    /// The same as the replay says of the runs with collections.
    pub(crate) predicted: i64,
    /// Predicted less real.
    pub(crate) error: i64,
    /// By how much the error can be off by chance, with a probability of about 5 %: from how much runs
    /// without collections differ, and those with them once replayed without.
    pub(crate) noise: i64,
}

impl Figure {
    /// `with`: as measured and as replayed without the collections.
    fn of(with: &[(i64, i64)], without: &[i64]) -> Self {
        let median = |values: Vec<i64>| quantile(&values, 50);
        let measured = median(with.iter().map(|run| run.0).collect());
        let truth = quantile(without, 50);
        let replayed: Vec<i64> = with.iter().map(|run| run.1).collect();
        Self {
            real: measured - truth,
            predicted: median(with.iter().map(|run| run.0 - run.1).collect()),
            // Of each run for itself: runs differ by their pauses.
            error: truth - quantile(&replayed, 50),
            noise: noise([without, &replayed]),
        }
    }

    /// The runs are alike enough to tell whether a prediction is within its bound.
    pub(crate) fn can_be_judged(&self) -> bool {
        self.noise <= self.bound()
    }

    pub(crate) fn is_right(&self) -> bool {
        self.error.abs() <= self.bound()
    }

    /// How far off a prediction may be.
    pub(crate) fn bound(&self) -> i64 {
        (self.real.abs() * SHARE_PERCENT / 100).max(LEAST_NS)
    }
}

/// `runs`: with collections and without in turn.
pub(crate) fn judge(runs: &[Recorded]) -> Outcome {
    let with: Vec<Prediction> = runs.iter().step_by(2).map(predict).collect();
    let without: Vec<Measured> = runs.iter().skip(1).step_by(2).map(measure).collect();
    let pairs = |figure: fn(&Measured) -> i64| -> Vec<(i64, i64)> {
        let both = |run: &Prediction| (figure(&run.measured), figure(&run.replayed));
        with.iter().map(both).collect()
    };
    let alone = |figure: fn(&Measured) -> i64| -> Vec<i64> { without.iter().map(figure).collect() };
    let median = |figure: fn(&Prediction) -> i64| -> i64 {
        quantile(&with.iter().map(figure).collect::<Vec<_>>(), 50)
    };
    Outcome {
        pauses: median(|run| run.pauses),
        overlap: median(|run| run.overlap),
        length: Figure::of(&pairs(|run| run.length), &alone(|run| run.length)),
        idle: Figure::of(&pairs(|run| run.idle), &alone(|run| run.idle)),
    }
}

/// Twice the standard error of the difference of two medians. That of a median of n normal values is
/// 1.25 standard deviations by the root of n, and 1.35 of these lie between the quartiles.
fn noise(of: [&[i64]; 2]) -> i64 {
    let errors = of.map(|values| {
        let quartiles = quantile(values, 75) - quantile(values, 25);
        1.25 / 1.35 * quartiles as f64 / (values.len() as f64).sqrt()
    });
    (2.0 * errors[0].hypot(errors[1])) as i64
}

fn quantile(values: &[i64], percent: usize) -> i64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len().saturating_sub(1) * percent + 50) / 100;
    sorted.get(at).copied().unwrap_or(0)
}

struct Measured {
    length: i64,
    idle: i64,
}

fn measure(run: &Recorded) -> Measured {
    let (begin, end) = span(&job(run));
    Measured {
        length: end - begin,
        idle: run.ranks.iter().map(idle).sum(),
    }
}

struct Prediction {
    measured: Measured,
    replayed: Measured,
    pauses: i64,
    overlap: i64,
}

fn predict(run: &Recorded) -> Prediction {
    let job = job(run);
    let model = Model::learn(&job);
    assert_identity(&job, &model.replay(&Change::default()));
    let without = model.replay(&Change::without_all(&job));
    let (begin, _) = span(&job);
    let idle = (0..).zip(&job.timelines).flat_map(|(at, timeline)| {
        let devices: BTreeSet<u32> = timeline
            .streams
            .iter()
            .map(|stream| stream.device)
            .collect();
        devices.into_iter().map(move |device| (at, device))
    });
    let idle = idle.map(|(at, device)| without.idle_ns(at, device).cast_signed());
    let pauses = run.ranks.iter().flat_map(|rank| &rank.pauses);
    Prediction {
        measured: measure(run),
        replayed: Measured {
            length: without.makespan_end_ns().cast_signed() - begin,
            idle: idle.sum(),
        },
        pauses: pauses.map(|pause| pause.duration_ns().cast_signed()).sum(),
        overlap: run.ranks.iter().map(overlap).sum(),
    }
}

/// With every pause kept the replay gives the measured times.
fn assert_identity(job: &Job<'_>, same: &Schedule) {
    assert_eq!(same.makespan_end_ns().cast_signed(), span(job).1);
    for (at, (timeline, offset)) in job.timelines.iter().zip(&job.offsets_ns).enumerate() {
        for (op, measured) in timeline.ops.iter().enumerate() {
            let moments = [measured.begin_ns, measured.end_ns];
            let [begin, end] = moments.map(|moment| moment.saturating_add_signed(*offset));
            assert_eq!(same.op(at, op), (begin, end));
        }
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

/// Operations of a rank, which has one device, as stretches that do not touch.
fn busy(timeline: &Timeline) -> Vec<(u64, u64)> {
    let mut busy: Vec<(u64, u64)> = Vec::new();
    for op in &timeline.ops {
        match busy.last_mut() {
            Some((_, end)) if op.begin_ns <= *end => *end = op.end_ns.max(*end),
            _ => busy.push((op.begin_ns, op.end_ns)),
        }
    }
    busy
}

fn idle(timeline: &Timeline) -> i64 {
    let busy = busy(timeline);
    let gaps = busy.windows(2).map(|pair| pair[1].0 - pair[0].1);
    gaps.sum::<u64>().cast_signed()
}

/// Time in pauses during which no operation ran.
fn overlap(timeline: &Timeline) -> i64 {
    let busy = busy(timeline);
    let within = |begin: u64, end: u64| -> u64 {
        let parts = busy.iter().map(|(from, to)| {
            let to = end.min(*to);
            to.saturating_sub(begin.max(*from))
        });
        parts.sum()
    };
    let pauses = timeline.pauses.iter();
    let idle = pauses.map(|pause| pause.duration_ns() - within(pause.begin_ns, pause.end_ns));
    idle.sum::<u64>().cast_signed()
}
