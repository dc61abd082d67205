//! A case: the prediction of the replay for every run with collections, next to the runs without,
//! and which runs count.
//!
//! Figures are judged in `figure.rs`.

#![expect(clippy::panic, reason = "helpers of tests fail by panicking")]

use super::figure::{Figure, PausedRuns, RIGHT_RUNS, UnpausedRuns, Verdict};
use super::{Recorded, figure};
use gctrace_analysis::gpu::ranks;
use gctrace_analysis::gpu::replay::{ReplayChange, ReplayJob, ReplayModel, ReplaySchedule};
use gctrace_analysis::gpu::timeline::{OpIndex, Timeline};
use gctrace_analysis::report::{IdleCause, IdleRow};
use gctrace_event::GpuOpKind;
use std::collections::BTreeSet;

/// The traces of each rank have timestamps later by this than the previous rank's:
/// kineto_of_simgpu.py.
const AHEAD_NS: i64 = 3_000_000;
/// How far off the analysis may be in finding that. The simulator ends a collective for all ranks
/// at once, but the ranks read their wall clocks one after the other.
const CLOCKS_NS: u64 = 100_000;

/// Over runs whose threads had the CPUs they needed, if there are enough: medians, in ns.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Of runs with collections: all pauses together.
    pub(crate) pauses: i64,
    /// The cost by the overlap rule: time in pauses during which the GPU was idle.
    pub(crate) overlap: i64,
    /// From the first call to the last end.
    pub(crate) length: Figure,
    /// Time between the first and the last operation in which none ran; all ranks together.
    pub(crate) idle: Figure,
    pub(crate) calm: BaselineRun,
}

impl Outcome {
    pub(crate) fn verdict(&self) -> Verdict {
        let verdicts = [&self.length, &self.idle].map(Figure::verdict);
        if !self.calm.is_enough() {
            Verdict::Open
        } else if verdicts.contains(&Verdict::Wrong) {
            Verdict::Wrong
        } else if verdicts == [Verdict::Right; 2] {
            Verdict::Right
        } else {
            Verdict::Open
        }
    }
}

/// How many runs of each kind, with collections and without, nothing disturbed.
///
/// Threads that compete for processors are no part of the replay's model. So a run in which they
/// waited for one longer than a prediction may be off shows nothing about it, be it that other
/// programs run or that the case has more busy threads than there are processors.
#[derive(Debug)]
pub(crate) struct BaselineRun {
    pub(crate) runs: [usize; 2],
    /// Number of runs of each kind.
    pub(crate) of: usize,
    /// Medians over all runs of a kind.
    pub(crate) waited: [i64; 2],
    /// Limit of the time that a run may have waited.
    pub(crate) allowed: i64,
}

impl BaselineRun {
    pub(crate) fn is_enough(&self) -> bool {
        self.runs.iter().all(|runs| *runs >= RIGHT_RUNS)
    }

    /// At this rate there will not be enough after the remaining tries either. The first try may be
    /// bad luck.
    pub(crate) fn is_hopeless(&self, tries: usize, of: usize) -> bool {
        tries > 1 && self.runs.iter().any(|runs| runs * of < RIGHT_RUNS * tries)
    }
}

/// All runs of a case so far.
#[derive(Default)]
pub(crate) struct Trial {
    /// What the odd runs are without; `None`: pauses.
    without_cause: Option<IdleCause>,
    with: Vec<Prediction>,
    without: Vec<Run>,
}

impl Trial {
    /// `without_cause`: what the odd runs are without, if it is not pauses.
    pub(crate) fn of(without_cause: Option<IdleCause>) -> Self {
        Self { without_cause, ..Self::default() }
    }

    pub(crate) fn add(&mut self, with: &[Recorded], without: &[Recorded]) {
        let cause = self.without_cause;
        self.with.extend(with.iter().map(|run| predict(run, cause)));
        self.without.extend(without.iter().map(Run::of));
    }

    /// Whether the kernel counts how long threads wait for a CPU.
    pub(crate) fn knows_waits(&self) -> bool {
        self.without.iter().all(|run| run.waited_ns.is_some())
    }

    pub(crate) fn judge(&self) -> Outcome {
        let with: Vec<&Prediction> = self.with.iter().collect();
        let without: Vec<&Run> = self.without.iter().collect();
        let all = figures(&with, &without);
        let allowed = all.iter().map(Figure::bound).min().unwrap_or(0);
        let calm_with = with.iter().filter(|with| with.run.waited() <= allowed);
        let calm_with: Vec<_> = calm_with.copied().collect();
        let calm_without = without.iter().filter(|run| run.waited() <= allowed);
        let calm_without: Vec<_> = calm_without.copied().collect();
        let calm = BaselineRun {
            runs: [calm_with.len(), calm_without.len()],
            of: with.len(),
            waited: [
                median_of(&with, |with| with.run.waited()),
                median_of(&without, |run| run.waited()),
            ],
            allowed,
        };
        if calm.is_enough() {
            outcome(&calm_with, figures(&calm_with, &calm_without), calm)
        } else {
            outcome(&with, all, calm)
        }
    }
}

fn outcome(with: &[&Prediction], figures: [Figure; 2], calm: BaselineRun) -> Outcome {
    let [length, idle] = figures;
    Outcome {
        pauses: median_of(with, |run| run.pauses),
        overlap: median_of(with, |run| run.overlap),
        length,
        idle,
        calm,
    }
}

/// Length and idle time.
fn figures(with: &[&Prediction], without: &[&Run]) -> [Figure; 2] {
    let values: [fn(&Measured) -> i64; 2] = [|run| run.length, |run| run.idle];
    values.map(|value| {
        let with = with.iter().map(|with| PausedRuns {
            measured: value(&with.run.measured),
            replayed: value(&with.replayed),
            waited: with.run.waited(),
        });
        let without = without
            .iter()
            .map(|run| UnpausedRuns { measured: value(&run.measured), waited: run.waited() });
        Figure::of(&with.collect::<Vec<_>>(), &without.collect::<Vec<_>>())
    })
}

fn median_of<T>(runs: &[&T], value: fn(&T) -> i64) -> i64 {
    figure::median(&runs.iter().map(|run| value(run)).collect::<Vec<_>>())
}

struct Measured {
    length: i64,
    idle: i64,
}

/// One run as measured.
struct Run {
    measured: Measured,
    waited_ns: Option<i64>,
}

impl Run {
    fn of(run: &Recorded) -> Self {
        let (start, end) = span(&job(run));
        Self {
            measured: Measured { length: end - start, idle: run.ranks.iter().map(idle).sum() },
            waited_ns: run.waited_ns,
        }
    }

    /// Where the kernel does not count, nothing is left out.
    fn waited(&self) -> i64 {
        self.waited_ns.unwrap_or(0)
    }
}

struct Prediction {
    run: Run,
    replayed: Measured,
    pauses: i64,
    overlap: i64,
}

/// By the idle ledger: a run without a cause.
fn predict_without(run: &Recorded, cause: IdleCause) -> Measured {
    let measured = Run::of(run).measured;
    let ledgers = run.ranks.iter().flat_map(|timeline| {
        ReplayModel::learn(&ReplayJob::single(timeline)).idle_ledgers(timeline)
    });
    let rows = ledgers.flat_map(|ledger| ledger.rows).filter(|row| row.cause == cause);
    let rows: Vec<IdleRow> = rows.collect();
    assert!(rows.iter().any(|row| row.remedy.is_some()), "{cause:?}: {rows:?}");
    rows.iter().fold(measured, |without, row| Measured {
        length: without.length - row.saves_ns.unwrap_or(0).cast_signed(),
        idle: without.idle - row.alone_ns.unwrap_or(0),
    })
}

fn predict(run: &Recorded, cause: Option<IdleCause>) -> Prediction {
    let job = job(run);
    let model = ReplayModel::learn(&job);
    assert_identity(&job, &model.replay(&ReplayChange::default()));
    let without = model.replay(&ReplayChange::without_all(&job));
    let (start, _) = span(&job);
    let idle = (0..).zip(&job.timelines).flat_map(|(at, timeline)| {
        let devices: BTreeSet<u32> =
            timeline.streams.iter().filter_map(|stream| stream.device).collect();
        devices.into_iter().map(move |device| (at, device))
    });
    let idle = idle.map(|(at, device)| without.idle_ns(at, device).cast_signed());
    let pauses = run.ranks.iter().flat_map(|rank| &rank.pauses);
    Prediction {
        run: Run::of(run),
        replayed: match cause {
            Some(cause) => predict_without(run, cause),
            None => Measured {
                length: without.makespan_end_ns().cast_signed() - start,
                idle: idle.sum(),
            },
        },
        pauses: pauses.map(|pause| pause.duration_ns().cast_signed()).sum(),
        overlap: run.ranks.iter().map(overlap).sum(),
    }
}

/// With every pause kept the replay gives the measured times.
fn assert_identity(job: &ReplayJob<'_>, same: &ReplaySchedule<'_>) {
    assert_eq!(same.makespan_end_ns().cast_signed(), span(job).1);
    for (at, (timeline, offset)) in job.timelines.iter().zip(&job.offsets_ns).enumerate() {
        for (op, measured) in OpIndex::enumerate(&timeline.ops) {
            let timestamps = [measured.start_ns, measured.end_ns];
            let [start, end] = timestamps.map(|timestamp| timestamp.saturating_add_signed(*offset));
            assert_eq!(same.op(at, op), (start, end));
        }
    }
}

/// The job of a run; of several ranks as the analysis finds it, by their collectives.
fn job(run: &Recorded) -> ReplayJob<'_> {
    let timelines: Vec<&Timeline> = run.ranks.iter().collect();
    if let [timeline] = timelines.as_slice() {
        return ReplayJob::single(timeline);
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
fn span(job: &ReplayJob<'_>) -> (i64, i64) {
    let ranks = || job.timelines.iter().zip(&job.offsets_ns);
    let first = |rank: &Timeline| rank.calls.first().unwrap().start_ns.cast_signed();
    let last = |rank: &Timeline| {
        let ops = rank.ops.iter().map(|op| op.end_ns);
        let ends = ops.chain(rank.calls.iter().map(|call| call.end_ns));
        ends.max().unwrap().cast_signed()
    };
    (
        ranks().map(|(rank, offset)| first(rank) + offset).min().unwrap(),
        ranks().map(|(rank, offset)| last(rank) + offset).max().unwrap(),
    )
}

/// Operations of a rank, which has one device, as disjoint intervals.
fn busy(timeline: &Timeline) -> Vec<(u64, u64)> {
    let mut busy: Vec<(u64, u64)> = Vec::new();
    for op in timeline.ops.iter().filter(|op| op.kind != GpuOpKind::HostFunction) {
        match busy.last_mut() {
            Some((_, end)) if op.start_ns <= *end => *end = op.end_ns.max(*end),
            _ => busy.push((op.start_ns, op.end_ns)),
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
    let within = |start: u64, end: u64| -> u64 {
        let parts = busy.iter().map(|(from, to)| {
            let to = end.min(*to);
            to.saturating_sub(start.max(*from))
        });
        parts.sum()
    };
    let pauses = timeline.pauses.iter();
    let idle = pauses.map(|pause| pause.duration_ns() - within(pause.start_ns, pause.end_ns));
    idle.sum::<u64>().cast_signed()
}
