//! The comparison: differences within pairs of neighbors, how sure they are, and the verdict.

use super::blocks::{Measured, MeasuredBlocks, MeasuredSetting};
use super::report::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneOutcome, TuneRefusal, TuneReport, TunedSetting,
};
use crate::report::Basis;
use crate::statistics::permutation::sign_flips;
use crate::statistics::{bootstrap, detectable_mean, holm, mean, standard_deviation};

/// Fewer pairs than this give no verdict: with five, even differences of one sign are chance in 6 %
/// of the cases.
pub const FEWEST_PAIRS: usize = 8;
/// Fewer collections than this per block, of the kind that matters, give no verdict on blocks: one
/// collection belongs to the block before it in part.
pub const FEWEST_EVENTS: f64 = 3.0;
/// Share of the time of all collections from which full collections are those that matter.
const FULL_MATTERS: f64 = 0.2;
/// p below which a difference is one.
const SIGNIFICANT: f64 = 0.05;

/// Compares each setting with the first. `settings` name the entries of each group.
#[must_use]
pub fn compare(
    settings: &[MeasuredSetting],
    measured: &MeasuredBlocks,
    measure: TuneMeasure,
) -> TuneReport {
    let columns: Vec<Vec<Measured>> = (0..settings.len())
        .map(|setting| {
            let groups = measured.groups.iter();
            groups.filter_map(|group| group.get(setting).copied()).collect()
        })
        .collect();
    let mut tuned: Vec<TunedSetting> = settings
        .iter()
        .zip(&columns)
        .map(|(setting, column)| tuned(&setting.name, column, measure))
        .collect();
    for clock in [TuneMeasure::Wall, TuneMeasure::Cpu] {
        compare_by(clock, &mut tuned, &columns);
    }
    for (at, setting) in tuned.iter_mut().enumerate().skip(1) {
        setting.refused = refusal(at, settings, &columns, measured);
    }
    let (outcome, best) = verdict(&tuned, measure);
    TuneReport {
        schema: "gctrace.tune/1",
        basis: Basis::Measured,
        outcome,
        best,
        apply: None,
        method: measured.method,
        unit: measured.unit,
        measure,
        block_steps: measured.block_steps,
        steps: measured.steps,
        warm_up_steps: measured.warm_up_steps,
        ranks: 1,
        other_processes: 0,
        unreadable_rows: 0,
        agent_ns: None,
        settings: tuned,
    }
}

impl TuneReport {
    /// Whether every setting that could get a verdict has an interval of at most this share of the
    /// first setting's mean to either side. Says nothing about where the interval is: whoever
    /// stops measuring by that finds differences that are chance.
    #[must_use]
    pub fn is_precise(&self, ratio: f64) -> bool {
        let compared = || self.settings.iter().skip(1);
        let narrow = |setting: &TunedSetting| {
            let difference = setting.difference(self.measure);
            difference.is_some_and(|found| found.high_ratio - found.low_ratio <= 2.0 * ratio)
        };
        compared().all(|setting| setting.refused.is_none() && narrow(setting))
    }
}

impl TunedSetting {
    /// The difference by this clock.
    #[must_use]
    pub fn difference(&self, measure: TuneMeasure) -> Option<&MeasuredDifference> {
        match measure {
            TuneMeasure::Wall => self.wall_difference.as_ref(),
            TuneMeasure::Cpu => self.cpu_difference.as_ref(),
        }
    }
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
        collections,
        peak_rss_bytes: column.iter().filter_map(|measured| measured.peak_rss_bytes).max(),
        wall_difference: None,
        cpu_difference: None,
        refused: None,
    }
}

/// Per block, by this clock; `None` if it is missing in one.
fn times(column: &[Measured], measure: TuneMeasure) -> Option<Vec<f64>> {
    let time = |measured: &Measured| match measure {
        TuneMeasure::Wall => Some(measured.wall_ns),
        TuneMeasure::Cpu => measured.cpu_ns,
    };
    column.iter().map(time).collect()
}

fn compare_by(clock: TuneMeasure, tuned: &mut [TunedSetting], columns: &[Vec<Measured>]) {
    let [first, others @ ..] = columns else {
        return;
    };
    let first = times(first, clock);
    let found: Vec<Option<MeasuredDifference>> =
        others.iter().map(|column| difference(&times(column, clock)?, first.as_ref()?)).collect();
    let raw: Vec<f64> = found.iter().flatten().map(|found| found.p_value).collect();
    let mut adjusted = holm(&raw).into_iter();
    for (setting, found) in tuned.iter_mut().skip(1).zip(found) {
        let found = found.map(|found| MeasuredDifference {
            holm_p_value: adjusted.next().unwrap_or(1.0),
            ..found
        });
        match clock {
            TuneMeasure::Wall => setting.wall_difference = found,
            TuneMeasure::Cpu => setting.cpu_difference = found,
        }
    }
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
        detectable_ratio: detectable / usual,
    })
}

fn refusal(
    at: usize,
    settings: &[MeasuredSetting],
    columns: &[Vec<Measured>],
    measured: &MeasuredBlocks,
) -> Option<TuneRefusal> {
    let column = columns.get(at)?;
    if column.len() < FEWEST_PAIRS {
        return Some(TuneRefusal::FewPairs {
            pairs: column.len() as u64,
            needed: FEWEST_PAIRS as u64,
        });
    }
    if measured.method == TuneMethod::Runs {
        return None;
    }
    let of_both = [0, at].into_iter().filter_map(|at| {
        let setting = settings.get(at).filter(|setting| setting.collects);
        Some(events(columns.get(setting.map(|_| at)?)?))
    });
    let (full, per_block) = of_both.min_by(|one, other| one.1.total_cmp(&other.1))?;
    (per_block < FEWEST_EVENTS).then(|| TuneRefusal::FewCollections {
        full,
        per_block,
        needed: FEWEST_EVENTS,
        block_steps: measured
            .block_steps
            .filter(|_| per_block > 0.0)
            .map(|steps| longer(steps, FEWEST_EVENTS / per_block)),
    })
}

/// Collections per block of the kind that matters: full ones, if they take a good part of the time
/// of all (the first member), or all.
fn events(column: &[Measured]) -> (bool, f64) {
    let sum = |value: &dyn Fn(&Measured) -> f64| column.iter().map(value).sum::<f64>();
    let (all, full) = (
        sum(&|measured| measured.pause_ns.unwrap_or(0.0)),
        sum(&|measured| measured.full_pause_ns.unwrap_or(0.0)),
    );
    let full = all > 0.0 && full >= FULL_MATTERS * all;
    let counts: Vec<f64> = column
        .iter()
        .map(|measured| match measured.collections {
            [_, _, oldest] if full => oldest,
            all => all.iter().sum(),
        })
        .collect();
    (full, mean(&counts).unwrap_or(0.0))
}

/// A block so many times as long, and a little more, to two digits.
fn longer(steps: u64, times: f64) -> u64 {
    let exact = whole(super::blocks::float(steps) * times * 1.2).max(1);
    let unit = 10_u64.pow(exact.ilog10().saturating_sub(1));
    exact.div_ceil(unit).saturating_mul(unit)
}

fn verdict(tuned: &[TunedSetting], measure: TuneMeasure) -> (TuneOutcome, Option<String>) {
    let judged = || {
        let compared = tuned.iter().skip(1).filter(|setting| setting.refused.is_none());
        compared.filter_map(|setting| Some((setting, setting.difference(measure)?)))
    };
    let real = || judged().filter(|(_, found)| is_real(found));
    let gains = real().filter(|(_, found)| found.high_ratio < 0.0);
    let best = gains.min_by_key(|(_, found)| found.mean_ns);
    let outcome = match best {
        Some(_) => TuneOutcome::Gain,
        None if judged().next().is_none() => TuneOutcome::Refused,
        None if real().next().is_some() => TuneOutcome::Loss,
        None => TuneOutcome::NoDifference,
    };
    (outcome, best.map(|(setting, _)| setting.setting.clone()))
}

/// Interval and p value agree that there is one.
fn is_real(found: &MeasuredDifference) -> bool {
    found.holm_p_value < SIGNIFICANT && (found.low_ratio > 0.0 || found.high_ratio < 0.0)
}

impl MeasuredDifference {
    /// Whether it is one: p (Holm) below 5 %, and 0 outside the interval.
    #[must_use]
    pub fn is_real(&self) -> bool {
        is_real(self)
    }
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
    use super::super::blocks::blocks;
    use super::super::blocks::tests::table;
    use super::*;

    /// Normal noise by the sum of twelve.
    fn noise(rng: &mut fastrand::Rng, spread: f64) -> f64 {
        ((0..12).map(|_| rng.f64()).sum::<f64>() - 6.0) * spread
    }

    fn settings(names: &[&str]) -> Vec<MeasuredSetting> {
        let setting = |name: &&str| MeasuredSetting {
            name: (*name).to_owned(),
            collects: *name != "disable",
        };
        names.iter().map(setting).collect()
    }

    /// Steps of 1 ms that drift by a few percent, with a noise of 5 %; setting n is `gains[n]` ns faster.
    fn run(seed: u64, gains: &[i64], block: u64, per_step: [u64; 3]) -> TuneReport {
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = gains.len() as u64;
        let steps = table((50 + block * 48, 50, block, count), |step, setting| {
            let drift = 20.0 * (step as f64 / 70.0 + seed as f64).sin() + 0.02 * step as f64;
            let wall = 1e6 + drift * 1e3 + noise(&mut rng, 5e4) - gains[setting] as f64;
            (whole(wall), per_step, 1_000)
        });
        let names: Vec<String> = (0..count).map(|at| format!("setting {at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let measured = blocks(&steps, gains.len(), block);
        compare(&settings(&names), &measured, TuneMeasure::Wall)
    }

    #[test]
    fn a_known_gain_is_in_the_interval_and_found() {
        let mut held = 0;
        for seed in 0..20 {
            let report = run(seed, &[0, 30_000], 25, [1, 0, 0]);
            let found = report.settings[1].wall_difference.unwrap();
            held += u32::from((found.low_ns..=found.high_ns).contains(&-30_000));
            assert_eq!(report.outcome, TuneOutcome::Gain, "{found:?}");
            assert_eq!(report.best.as_deref(), Some("setting 1"));
            assert!(found.is_real() && found.detectable_ratio < 0.03);
        }
        assert!(held >= 17, "{held} of 20");
    }

    #[test]
    fn identical_settings_differ_by_chance_only() {
        let mut claimed = 0;
        for seed in 0..20 {
            let report = run(seed, &[0, 0, 0], 25, [1, 0, 0]);
            claimed += u32::from(report.outcome != TuneOutcome::NoDifference);
        }
        // 5 % of 20 are 1; more than 4 have a chance of 0.3 %.
        assert!(claimed <= 4, "{claimed} of 20");
    }

    #[test]
    fn the_best_of_several_and_a_loss() {
        let report = run(3, &[0, 40_000, 80_000, -50_000], 25, [1, 0, 0]);
        assert_eq!(report.best.as_deref(), Some("setting 2"));
        let worse = report.settings[3].wall_difference.unwrap();
        assert!(worse.is_real() && worse.low_ns > 0, "{worse:?}");
        assert!(report.settings[0].wall_difference.is_none());
        let cpu = report.settings[2].cpu_difference.unwrap();
        assert!((cpu.mean_ns + 40_000).abs() < 15_000, "half the wall time: {cpu:?}");
        let report = run(3, &[0, -50_000], 25, [1, 0, 0]);
        assert_eq!((report.outcome, report.best), (TuneOutcome::Loss, None));
    }

    #[test]
    fn too_few_collections_or_pairs_give_no_verdict() {
        let report = run(1, &[0, 90_000], 2, [1, 0, 0]);
        let Some(TuneRefusal::FewCollections { full: false, per_block, block_steps, .. }) =
            report.settings[1].refused
        else {
            panic!("{report:?}");
        };
        assert_eq!(report.outcome, TuneOutcome::Refused);
        assert_eq!(report.best, None);
        assert_eq!((per_block, block_steps), (2.0, Some(4)));
        assert!(!report.is_precise(1.0));
        let short = table((50 + 14 * 25, 50, 25, 2), |_, _| (1_000, [1, 0, 0], 5));
        let report = compare(&settings(&["a", "b"]), &blocks(&short, 2, 25), TuneMeasure::Wall);
        let Some(TuneRefusal::FewPairs { pairs, needed: 8 }) = report.settings[1].refused else {
            panic!("{report:?}");
        };
        assert!(pairs < 8);
    }

    /// Rare full collections that take most of the time are the ones that count.
    #[test]
    fn full_collections_count_where_they_cost() {
        let steps = |full_ns: u64| {
            table((50 + 25 * 40, 50, 25, 2), move |step, _| match step % 100 {
                0 => (1_000 + full_ns, [1, 0, 1], 10 + full_ns),
                _ => (1_000, [1, 0, 0], 10),
            })
        };
        let report = |full_ns| {
            let measured = blocks(&steps(full_ns), 2, 25);
            compare(&settings(&["a", "b"]), &measured, TuneMeasure::Wall)
        };
        assert_eq!(report(50).settings[1].refused, None);
        let refused = report(5_000).settings[1].refused;
        let Some(TuneRefusal::FewCollections { full: true, per_block, block_steps, .. }) = refused
        else {
            panic!("{refused:?}");
        };
        assert!((0.2..0.35).contains(&per_block), "{per_block}");
        assert!((250..=500).contains(&block_steps.unwrap()), "{block_steps:?}");
    }

    #[test]
    fn a_setting_without_collections_is_compared() {
        let steps = table((50 + 25 * 40, 50, 25, 2), |step, setting| match setting {
            0 => (1_000 + step % 7, [1, 0, 0], 100),
            _ => (900 + step % 7, [0; 3], 0),
        });
        let measured = blocks(&steps, 2, 25);
        let report = compare(&settings(&["none", "disable"]), &measured, TuneMeasure::Cpu);
        assert_eq!(report.best.as_deref(), Some("disable"));
        assert!(report.is_precise(0.01) && !report.is_precise(1e-9));
    }

    #[test]
    fn nothing_is_no_verdict() {
        let nothing = blocks(&super::super::StepTable::default(), 2, 25);
        let report = compare(&settings(&["a", "b"]), &nothing, TuneMeasure::Wall);
        assert_eq!(report.outcome, TuneOutcome::Refused);
        assert_eq!(compare(&[], &nothing, TuneMeasure::Wall).settings, []);
    }
}
