//! Whole runs compared: differences within pairs of neighbors, and how sure they are.

use super::report::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneRefusal, TuneReport, TuneUnit, TunedSetting,
};
use crate::statistics::permutation::sign_flips;
use crate::statistics::{bootstrap, detectable_mean, mean, standard_deviation};

/// Fewer pairs of runs than this give no verdict: with five, even differences of one sign are chance in 6 %
/// of the cases.
pub const FEWEST_PAIRS: usize = 8;

/// The means of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Wall time per step (or of the run), in ns.
    pub wall_ns: f64,
    /// CPU time per step of the thread that makes steps (or of the run), in ns; `None`: unknown.
    pub cpu_ns: Option<f64>,
    /// Time of collections per step (or of the run), in ns; `None`: unknown.
    pub pause_ns: Option<f64>,
    /// Collections in the run, by generation.
    pub collections: [f64; 3],
    /// Largest resident memory, in bytes; `None`: unknown.
    pub peak_rss_bytes: Option<u64>,
}

/// Runs with one setting each, in groups of one run per setting.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredRuns {
    /// What the times are of.
    pub unit: TuneUnit,
    /// The groups, in order of time; in each one entry per setting, in the order of the settings.
    pub groups: Vec<Vec<Measured>>,
}

/// Compares each setting with the first. `settings` name the entries of each group. By wall time if the CPU time of
/// a run is unknown.
#[must_use]
pub fn compare(settings: &[String], runs: &MeasuredRuns, measure: TuneMeasure) -> TuneReport {
    let column = |setting: usize| -> Vec<Measured> {
        runs.groups.iter().filter_map(|group| group.get(setting).copied()).collect()
    };
    let columns: Vec<Vec<Measured>> = (0..settings.len()).map(column).collect();
    let has_cpu = columns.iter().flatten().all(|run| run.cpu_ns.is_some());
    let measure = if has_cpu { measure } else { TuneMeasure::Wall };
    let first = columns.first().map_or(&[][..], Vec::as_slice);
    let tuned = settings.iter().zip(&columns).enumerate().map(|(at, (name, column))| {
        let difference = |clock| {
            (at > 0).then(|| difference(&times(column, clock)?, &times(first, clock)?)).flatten()
        };
        let pairs = column.len() as u64;
        let is_few = at > 0 && column.len() < FEWEST_PAIRS;
        TunedSetting {
            wall_difference: difference(TuneMeasure::Wall),
            cpu_difference: difference(TuneMeasure::Cpu),
            refused: is_few.then_some(TuneRefusal::FewPairs { pairs, needed: FEWEST_PAIRS as u64 }),
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
    let times = times(column, measure);
    let collections = [0, 1, 2].map(|generation: usize| {
        mean_of(&|measured| measured.collections.get(generation).copied()).unwrap_or(0.0)
    });
    TunedSetting {
        setting: name.to_owned(),
        pairs: column.len() as u64,
        wall_ns: mean_of(&|measured| Some(measured.wall_ns)).map(whole),
        cpu_ns: mean_of(&|measured| measured.cpu_ns).map(whole),
        standard_deviation_ns: times.and_then(|times| standard_deviation(&times)).map(whole),
        pause_ns: mean_of(&|measured| measured.pause_ns).map(whole),
        collections: Some(collections),
        peak_rss_bytes: column.iter().filter_map(|measured| measured.peak_rss_bytes).max(),
        wall_difference: None,
        cpu_difference: None,
        computed_share: None,
        refused: None,
    }
}

/// Per run, by this clock; `None` if it is missing in one.
fn times(column: &[Measured], measure: TuneMeasure) -> Option<Vec<f64>> {
    let time = |measured: &Measured| match measure {
        TuneMeasure::Wall => Some(measured.wall_ns),
        TuneMeasure::Cpu => measured.cpu_ns,
    };
    column.iter().map(time).collect()
}

fn difference(these: &[f64], first: &[f64]) -> Option<MeasuredDifference> {
    let pairs = these.iter().zip(first);
    let differences: Vec<f64> = pairs.map(|(this, first)| this - first).collect();
    let estimate = bootstrap::paired(&differences)?;
    let usual = mean(first).filter(|mean| *mean > 0.0)?;
    let p_value = sign_flips(&differences)?;
    let detectable = detectable_mean(standard_deviation(&differences)?, differences.len())?;
    Some(MeasuredDifference {
        mean_ns: signed(estimate.value),
        low_ns: signed(estimate.low),
        high_ns: signed(estimate.high),
        mean_ratio: estimate.value / usual,
        low_ratio: estimate.low / usual,
        high_ratio: estimate.high / usual,
        p_value,
        holm_p_value: p_value,
        detectable_ratio: Some(detectable / usual),
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[expect(clippy::cast_possible_truncation, reason = "saturates")]
fn signed(value: f64) -> i64 {
    value.round() as i64
}

#[cfg(test)]
mod tests {
    use super::super::report::TuneOutcome;
    use super::*;

    /// Normal noise by the sum of twelve.
    fn noise(rng: &mut fastrand::Rng, spread: f64) -> f64 {
        ((0..12).map(|_| rng.f64()).sum::<f64>() - 6.0) * spread
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("setting {at}")).collect()
    }

    /// Groups of runs with steps of 1 ms that drift by a few percent, with a noise of 2 % between runs; setting
    /// n is `gains[n]` ns faster, half of it CPU time.
    fn run(seed: u64, gains: &[f64], groups: u32) -> TuneReport {
        let mut rng = fastrand::Rng::with_seed(seed);
        let groups = (0..groups).map(|group| {
            let drift = 20e3 * (f64::from(group) / 3.0 + seed as f64).sin();
            let run = |gain: &f64| {
                let wall_ns = 1e6 + drift + noise(&mut rng, 2e4) - gain;
                Measured {
                    wall_ns,
                    cpu_ns: Some(wall_ns / 2.0),
                    pause_ns: Some(1e3),
                    collections: [10.0, 1.0, 0.0],
                    peak_rss_bytes: None,
                }
            };
            gains.iter().map(run).collect()
        });
        let runs = MeasuredRuns { unit: TuneUnit::Step, groups: groups.collect() };
        compare(&names(gains.len()), &runs, TuneMeasure::Wall)
    }

    #[test]
    fn a_known_gain_is_in_the_interval_and_found() {
        let mut held = 0;
        for seed in 0..20 {
            let report = run(seed, &[0.0, 30e3], 16);
            let found = report.settings[1].wall_difference.unwrap();
            held += u32::from((found.low_ns..=found.high_ns).contains(&-30_000));
            assert_eq!(report.outcome, TuneOutcome::Gain, "{found:?}");
            assert_eq!(report.best.as_deref(), Some("setting 1"));
            assert!(found.is_real() && found.detectable_ratio < Some(0.03));
            assert!(report.is_known(Some(0.02)) && !report.is_known(Some(1e-6)));
            assert!(!report.is_known(None), "runs do not stop by where intervals lie: {found:?}");
        }
        assert!(held >= 17, "{held} of 20");
    }

    #[test]
    fn identical_settings_differ_by_chance_only() {
        let mut claimed = 0;
        for seed in 0..20 {
            let report = run(seed, &[0.0, 0.0, 0.0], 16);
            claimed += u32::from(report.outcome != TuneOutcome::NoDifference);
        }
        // 5 % of 20 are 1; more than 4 have a chance of 0.3 %.
        assert!(claimed <= 4, "{claimed} of 20");
    }

    #[test]
    fn the_best_of_several_and_a_loss() {
        let report = run(3, &[0.0, 40e3, 80e3, -50e3], 16);
        assert_eq!(report.best.as_deref(), Some("setting 2"));
        let worse = report.settings[3].wall_difference.unwrap();
        assert!(worse.is_real() && worse.low_ns > 0, "{worse:?}");
        assert!(report.settings[0].wall_difference.is_none());
        let cpu = report.settings[2].cpu_difference.unwrap();
        assert!((cpu.mean_ns + 40_000).abs() < 15_000, "half the wall time: {cpu:?}");
        let report = run(3, &[0.0, -50e3], 16);
        assert_eq!((report.outcome, report.best), (TuneOutcome::Loss, None));
    }

    #[test]
    fn runs_without_cpu_time_are_compared_by_wall_time() {
        let group = |at: u32| {
            [0.0, 90e3].map(|gain| Measured {
                wall_ns: 1e6 + f64::from(at) * 1e3 - gain,
                cpu_ns: (at > 0).then_some(5e5),
                pause_ns: None,
                collections: [0.0; 3],
                peak_rss_bytes: None,
            })
        };
        let groups = (0..8).map(|at| group(at).to_vec()).collect();
        let runs = MeasuredRuns { unit: TuneUnit::Step, groups };
        let report = compare(&names(2), &runs, TuneMeasure::Cpu);
        assert_eq!((report.measure, report.outcome), (TuneMeasure::Wall, TuneOutcome::Gain));
    }

    #[test]
    fn too_few_runs_or_none_give_no_verdict() {
        let report = run(1, &[0.0, 90e3], 7);
        let few = TuneRefusal::FewPairs { pairs: 7, needed: 8 };
        assert_eq!(report.settings[1].refused, Some(few));
        assert_eq!((report.outcome, report.best.clone()), (TuneOutcome::Refused, None));
        assert!(!report.is_known(Some(1.0)));
        assert_eq!(run(1, &[0.0, 0.0], 0).outcome, TuneOutcome::Refused);
        assert_eq!(run(1, &[], 0).settings, []);
    }
}
