//! Whole runs compared: differences between means of runs, and how sure they are, however often one looks.

use super::report::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneRefusal, TuneReport, TuneUnit, TunedSetting,
};
use gctrace_stats::{float, mean, signed, standard_deviation, student, student_outside, whole};

/// Runs with the first setting that a difference from it needs: one alone may be an outlier.
pub const FEWEST_RUNS: usize = 2;
/// Runs of a search until the best guess is the answer: more would make its interval narrower, hardly change the
/// answer.
pub const MOST_RUNS: usize = 12;
/// Before it is seen how much runs vary, it counts as this much, as a share of their mean, with the weight of so
/// many runs. Programs on machines that others use vary by 5 to 20 %.
const USUAL_NOISE: f64 = 0.1;
const USUAL_WEIGHT: u32 = 3;
/// p of intervals, and of claims by chance over all looks.
const SIGNIFICANT: f64 = 0.05;

/// The means of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Wall time per step (or of the run), in ns.
    pub wall_ns: f64,
    /// CPU time per step of the thread that makes steps (or of the run), in ns; `None`: unknown.
    pub cpu_ns: Option<f64>,
    /// Wall time of collections per step (or of the run), in ns; `None`: unknown.
    pub pause_ns: Option<f64>,
    /// CPU time of collections likewise.
    pub collecting_ns: Option<f64>,
    /// Collections in the run, by generation.
    pub collections: [f64; 3],
    /// Largest resident memory, in bytes; `None`: unknown.
    pub peak_rss_bytes: Option<u64>,
}

/// Runs with one setting each.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredRuns {
    /// Unit of the times.
    pub unit: TuneUnit,
    /// The runs of each setting, in the order of the settings.
    pub of_settings: Vec<Vec<Measured>>,
    /// How often runs were looked at by now, this time included.
    pub looks: u32,
}

/// Compares each setting with the first. `settings`: the settings of the runs. By wall time if the CPU time of a run
/// is unknown.
pub fn compare(settings: &[String], runs: &MeasuredRuns, measure: TuneMeasure) -> TuneReport {
    let columns = &runs.of_settings;
    let has_cpu = columns.iter().flatten().all(|run| run.cpu_ns.is_some());
    let measure = if has_cpu { measure } else { TuneMeasure::Wall };
    let clocks = [TuneMeasure::Wall, TuneMeasure::Cpu].map(|clock| ComparedClock::of(runs, clock));
    let tuned = settings.iter().zip(columns).enumerate().map(|(at, (name, column))| {
        let [wall_difference, cpu_difference] =
            clocks.each_ref().map(|clock| clock.as_ref().filter(|_| at > 0)?.difference(at));
        let is_few = at > 0 && wall_difference.is_none();
        let pairs = column.len() as u64;
        let refusal = TuneRefusal::FewPairs { pairs, needed: FEWEST_RUNS as u64 };
        TunedSetting {
            wall_difference,
            cpu_difference,
            refused: if is_few { Some(refusal) } else { None },
            ..tuned(name, column, measure)
        }
    });
    TuneReport::judged(TuneMethod::Runs, runs.unit, measure, tuned.collect())
}

fn tuned(name: &str, column: &[Measured], measure: TuneMeasure) -> TunedSetting {
    let mean_of = |value: &dyn Fn(&Measured) -> Option<f64>| {
        let values: Option<Vec<f64>> = column.iter().map(value).collect();
        mean(&values?)
    };
    let times: Option<Vec<f64>> = column.iter().map(|run| Some(run.time(measure)?.all)).collect();
    let collections = [0, 1, 2].map(|generation: usize| {
        mean_of(&|measured| measured.collections.get(generation).copied()).unwrap_or(0.0)
    });
    TunedSetting {
        setting: name.to_owned(),
        pairs: column.len() as u64,
        wall_ns: mean_of(&|measured| Some(measured.wall_ns)).map(whole),
        cpu_ns: mean_of(&|measured| measured.cpu_ns).map(whole),
        standard_deviation_ns: times.and_then(|times| standard_deviation(&times)).map(whole),
        pause_ns: mean_of(&|measured| measured.collecting_ns.or(measured.pause_ns)).map(whole),
        collections: Some(collections),
        peak_rss_bytes: column.iter().filter_map(|measured| measured.peak_rss_bytes).max(),
        wall_difference: None,
        cpu_difference: None,
        computed_share: None,
        refused: None,
    }
}

/// A time of a run by one clock.
#[derive(Clone, Copy)]
struct RunTime {
    all: f64,
    /// Its time of collections; `None`: unknown.
    collecting: Option<f64>,
}

impl Measured {
    fn time(&self, clock: TuneMeasure) -> Option<RunTime> {
        Some(match clock {
            TuneMeasure::Wall => RunTime { all: self.wall_ns, collecting: self.pause_ns },
            TuneMeasure::Cpu => RunTime { all: self.cpu_ns?, collecting: self.collecting_ns },
        })
    }
}

/// All runs by one clock.
///
/// A setting changes mostly the time of collections; the rest of a run has no reason to differ by the setting, and
/// all runs together show how much it varies by chance. If it does differ, this takes a part of that for noise.
/// Claims become rarer then, and none becomes false. A claim is about the difference of the whole time: a setting may
/// move costs out of collections, to caches and page faults.
struct ComparedClock {
    of_settings: Vec<Vec<RunTime>>,
    /// Squared standard deviation of a run, as a share of its time, and degrees of freedom.
    variance: f64,
    freedom: u32,
    looks: u32,
}

impl ComparedClock {
    /// `None`: a time is unknown, or there is none.
    fn of(runs: &MeasuredRuns, clock: TuneMeasure) -> Option<Self> {
        let times = |column: &Vec<Measured>| column.iter().map(|run| run.time(clock)).collect();
        let of_settings: Vec<Vec<RunTime>> =
            runs.of_settings.iter().map(times).collect::<Option<_>>()?;
        let of = |column: &[RunTime], part: fn(&RunTime) -> f64| -> Vec<f64> {
            column.iter().map(part).collect()
        };
        let mut others = Spread::default();
        if of_settings.iter().flatten().all(|time| time.collecting.is_some()) {
            let every = of_settings.iter().flat_map(|one| of(one, RunTime::others));
            others.add(&every.collect::<Vec<_>>());
        } else {
            // The rest without collections is unknown: only runs with the same setting are alike.
            of_settings.iter().for_each(|one| others.add(&of(one, RunTime::others)));
        }
        let mut all = others;
        of_settings.iter().for_each(|one| all.add(&of(one, RunTime::collections)));
        let (others, all) = (others.estimate(), all.estimate());
        let (variance, _) = if all.0 > others.0 { all } else { others };
        Some(Self { of_settings, variance, freedom: others.1, looks: runs.looks.max(1) })
    }

    /// Difference of a setting from the first one.
    fn difference(&self, at: usize) -> Option<MeasuredDifference> {
        let first = self.of_settings.first()?;
        if first.len() < FEWEST_RUNS {
            return None;
        }
        let these = self.of_settings.get(at)?;
        let all = self.compared(these, first, |time| time.all)?;
        let collecting = self.compared(these, first, RunTime::collections)?;
        let usual = mean(&first.iter().map(|time| time.all).collect::<Vec<_>>())?;
        if usual <= 0.0 {
            return None;
        }
        // Looks are much alike, as each has one run more: chance has little more room over all than over two. Simulated
        // with up to 40 runs (tests).
        let looks = 2.0 + 2.0 * f64::from(self.looks).ln();
        let quantile = student(1.0 - SIGNIFICANT / looks / 2.0, self.freedom)?;
        let p_of = |one: ComparedMeans| {
            let p = if one.error > 0.0 {
                student_outside(one.difference / one.error, f64::from(self.freedom))
            } else {
                Some(if one.difference == 0.0 { 1.0 } else { 0.0 })
            };
            p.map(|p| (p * looks).min(1.0))
        };
        let is_known = these.iter().chain(first).all(|time| time.collecting.is_some());
        // Less time with the same number of collections is chance.
        let p_value = match all.difference < 0.0 && is_known {
            true if collecting.difference >= 0.0 => 1.0,
            true => p_of(all)?.max(p_of(collecting)?),
            false => p_of(all)?,
        };
        let (low, high) =
            (all.difference - quantile * all.error, all.difference + quantile * all.error);
        Some(MeasuredDifference {
            mean_ns: signed(all.difference),
            low_ns: signed(low),
            high_ns: signed(high),
            mean_ratio: all.difference / usual,
            low_ratio: low / usual,
            high_ratio: high / usual,
            p_value,
            holm_p_value: p_value,
        })
    }

    fn compared(
        &self,
        these: &[RunTime],
        first: &[RunTime],
        part: fn(&RunTime) -> f64,
    ) -> Option<ComparedMeans> {
        let of = |column: &[RunTime]| {
            let mean = mean(&column.iter().map(part).collect::<Vec<_>>())?;
            Some((mean, mean * mean * self.variance / float(column.len() as u64)))
        };
        let ((this, this_error), (first, first_error)) = (of(these)?, of(first)?);
        Some(ComparedMeans { difference: this - first, error: (this_error + first_error).sqrt() })
    }
}

#[derive(Clone, Copy)]
struct ComparedMeans {
    difference: f64,
    /// Its standard error.
    error: f64,
}

impl RunTime {
    fn collections(&self) -> f64 {
        self.collecting.unwrap_or(0.0)
    }

    fn others(&self) -> f64 {
        self.all - self.collections()
    }
}

/// Squares of deviations from means, as shares of these.
#[derive(Clone, Copy, Default)]
struct Spread {
    squares: f64,
    freedom: u32,
}

impl Spread {
    fn add(&mut self, values: &[f64]) {
        if let Some(mean) = mean(values)
            && mean > 0.0
        {
            self.squares += values.iter().map(|value| (value / mean - 1.0).powi(2)).sum::<f64>();
            self.freedom += gctrace_units::u32_or_most(values.len() - 1);
        }
    }

    /// Variance, with the usual noise included, and degrees of freedom.
    fn estimate(self) -> (f64, u32) {
        let usual = f64::from(USUAL_WEIGHT) * USUAL_NOISE.powi(2);
        let freedom = self.freedom.saturating_add(USUAL_WEIGHT);
        ((usual + self.squares) / f64::from(freedom), freedom)
    }
}

#[cfg(test)]
mod tests;
