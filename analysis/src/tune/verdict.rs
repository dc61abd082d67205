//! Conclusions from the differences of runs, or of blocks of steps.

use super::compare::FEWEST_RUNS;
use super::report::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneOutcome, TuneReport, TuneUnit, TunedSetting,
};
use crate::report::Basis;
use gctrace_stats::holm;
use std::cmp::Ordering;

/// A difference counts as one below this p.
const SIGNIFICANT: f64 = 0.05;
/// Half the width of an interval that is narrow enough, as a share of the first setting's mean, if none is asked
/// for.
const PRECISE: f64 = 0.005;
/// A gain below this share of the time is worth no setting.
const WORTH: f64 = 0.02;

impl TuneReport {
    /// The verdict on settings with known differences from the first, not yet adjusted for their number.
    pub fn judged(
        method: TuneMethod,
        unit: TuneUnit,
        measure: TuneMeasure,
        mut settings: Vec<TunedSetting>,
    ) -> Self {
        for clock in [TuneMeasure::Wall, TuneMeasure::Cpu] {
            let of_clock = |one: &TunedSetting| one.difference(clock).map(|found| found.p_value);
            let mut adjusted =
                holm(&settings.iter().filter_map(of_clock).collect::<Vec<f64>>()).into_iter();
            for setting in &mut settings {
                let found = match clock {
                    TuneMeasure::Wall => setting.wall_difference.as_mut(),
                    TuneMeasure::Cpu => setting.cpu_difference.as_mut(),
                };
                if let Some(found) = found {
                    found.holm_p_value = adjusted.next().unwrap_or(1.0);
                }
            }
        }
        let (outcome, best) = verdict(&settings, measure);
        Self {
            schema: "gctrace.tune/1",
            basis: Basis::Measured,
            outcome,
            best,
            apply: None,
            method,
            unit,
            measure,
            block_steps: None,
            steps: 0,
            warm_up_steps: 0,
            needed_steps: None,
            ranks: 1,
            other_processes: 0,
            agent_ns: None,
            settings,
        }
    }

    /// Whether measuring may end: every setting that could get a verdict has an interval of at most this share of the
    /// first setting's mean to either side. Without a given share: at most half a percent, or an interval that shows
    /// a gain or a loss. Intervals may be looked at any time.
    pub fn is_known(&self, precision: Option<f64>) -> bool {
        (1..self.settings.len()).all(|at| self.knows(at, precision))
    }

    /// The same of one setting.
    pub fn knows(&self, at: usize, precision: Option<f64>) -> bool {
        let Some(setting) = self.settings.get(at) else { return false };
        let Some(found) = setting.difference(self.measure) else { return false };
        setting.refused.is_none() && is_enough(found, precision)
    }

    /// Whether seeking may end: one is better beyond noise, or the best one gains too little for anyone, or its
    /// interval is as narrow as asked for.
    pub fn is_sought(&self, precision: Option<f64>) -> bool {
        let Some(best) = self.guess() else { return false };
        let Some(found) = best.difference(self.measure) else { return false };
        match precision {
            Some(precision) => found.half_ratio() <= precision,
            None => self.outcome == TuneOutcome::Gain || found.low_ratio > -WORTH,
        }
    }

    /// The setting that most likely takes the least time, of the settings that were run. With few runs the time of
    /// collections says more than the rest, as that varies by chance.
    pub fn guess(&self) -> Option<&TunedSetting> {
        let run = self.settings.iter().skip(1).filter_map(|setting| {
            let likely_ns = self.likely_ns(setting)?;
            if setting.pairs > 0 { Some((setting, likely_ns)) } else { None }
        });
        run.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(setting, _)| setting)
    }

    /// The guess, where none is proven, if its gain is worth a setting and its interval lies mostly below 0.
    pub fn guessed_gain(&self) -> Option<(&TunedSetting, &MeasuredDifference)> {
        if self.outcome != TuneOutcome::NoDifference || self.method != TuneMethod::Runs {
            return None;
        }
        let best = self.guess()?;
        let found = best.difference(self.measure)?;
        let is_likely = -found.mean_ratio >= found.half_ratio() / 4.0;
        if is_likely && found.mean_ratio <= -WORTH { Some((best, found)) } else { None }
    }

    fn likely_ns(&self, setting: &TunedSetting) -> Option<f64> {
        /// With this many runs half of a difference outside of collections counts.
        const HALF: f64 = 3.0;
        let parts = |one: &TunedSetting| {
            let all = one.time(self.measure)? as f64;
            let collecting = if let Some(ns) = one.pause_ns { (ns as f64).min(all) } else { 0.0 };
            Some((collecting, all - collecting, one.pairs as f64))
        };
        let (collecting, others, runs) = parts(setting)?;
        let all = self.settings.iter().filter_map(parts);
        let (sum, count) = all.fold((0.0, 0.0), |(sum, count), (_, others, runs)| {
            (sum + others * runs, count + runs)
        });
        let usual = sum / count;
        Some(collecting + usual + (others - usual) * runs / (runs + HALF))
    }

    /// The place of the setting to run next in a search for the best one: each once, then by turns the first and the
    /// apparently best one, ABBA. `last`: the setting of the last run.
    pub fn next_sought(&self, last: usize) -> Option<usize> {
        let first = self.settings.first()?.pairs;
        if let Some(at) = self.settings.iter().position(|setting| setting.pairs == 0) {
            return Some(at);
        }
        let best = self.guess()?;
        let place = self.settings.iter().position(|setting| std::ptr::eq(setting, best))?;
        Some(match first.cmp(&best.pairs) {
            _ if first < FEWEST_RUNS as u64 => 0,
            Ordering::Less => 0,
            Ordering::Greater => place,
            Ordering::Equal if last == 0 => 0,
            Ordering::Equal => place,
        })
    }

    /// Steps of a run that would be enough, given `measured` steps of each setting in pairs: intervals are half as
    /// wide after four times as many. `None`: each setting has enough, or too few to say.
    pub fn steps_for(&self, precision: Option<f64>, measured: u64) -> Option<u64> {
        let judged = self.settings.iter().filter(|one| one.refused.is_none());
        let wanting = judged.filter_map(|setting| {
            let found = setting.difference(self.measure)?;
            let times = (found.half_ratio() / precision.unwrap_or(PRECISE)).powi(2);
            if is_enough(found, precision) { None } else { Some(times) }
        });
        let times = wanting.max_by(f64::total_cmp)?;
        let steps = (times * (measured * self.settings.len() as u64) as f64) as u64;
        Some(crate::time::sum([steps, self.warm_up_steps]))
    }
}

fn is_enough(found: &MeasuredDifference, precision: Option<f64>) -> bool {
    found.half_ratio() <= precision.unwrap_or(PRECISE) || precision.is_none() && found.is_real()
}

impl TunedSetting {
    /// Its mean time by this clock.
    pub fn time(&self, measure: TuneMeasure) -> Option<u64> {
        match measure {
            TuneMeasure::Wall => self.wall_ns,
            TuneMeasure::Cpu => self.cpu_ns,
        }
    }

    /// The difference by this clock.
    pub fn difference(&self, measure: TuneMeasure) -> Option<&MeasuredDifference> {
        match measure {
            TuneMeasure::Wall => self.wall_difference.as_ref(),
            TuneMeasure::Cpu => self.cpu_difference.as_ref(),
        }
    }
}

impl MeasuredDifference {
    /// Whether it is one: p (Holm) below 5 %, and 0 outside the interval.
    pub fn is_real(&self) -> bool {
        self.holm_p_value < SIGNIFICANT && (self.low_ratio > 0.0 || self.high_ratio < 0.0)
    }

    /// Half the width of the interval, as a share of the first setting's mean.
    pub fn half_ratio(&self) -> f64 {
        (self.high_ratio - self.low_ratio) / 2.0
    }
}

fn verdict(settings: &[TunedSetting], measure: TuneMeasure) -> (TuneOutcome, Option<String>) {
    let judged = || {
        let compared = settings.iter().skip(1).filter(|setting| setting.refused.is_none());
        compared.filter_map(|setting| Some((setting, setting.difference(measure)?)))
    };
    let real = || judged().filter(|(_, found)| found.is_real());
    let gains = real().filter(|(_, found)| found.high_ratio < 0.0);
    let best = gains.min_by(|(_, one), (_, other)| one.mean_ratio.total_cmp(&other.mean_ratio));
    let outcome = match best {
        Some(_) => TuneOutcome::Gain,
        None if judged().next().is_none() => TuneOutcome::Refused,
        None if real().next().is_some() => TuneOutcome::Loss,
        None => TuneOutcome::NoDifference,
    };
    (outcome, best.map(|(setting, _)| setting.setting.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, found: Option<(f64, f64, f64)>) -> TunedSetting {
        TunedSetting {
            setting: name.to_owned(),
            pairs: 20,
            wall_ns: Some(1_000),
            cpu_ns: Some(1_000),
            standard_deviation_ns: None,
            pause_ns: None,
            collections: None,
            peak_rss_bytes: None,
            wall_difference: None,
            cpu_difference: found.map(|(low_ratio, high_ratio, p_value)| MeasuredDifference {
                mean_ns: 0,
                low_ns: 0,
                high_ns: 0,
                mean_ratio: f64::midpoint(low_ratio, high_ratio),
                low_ratio,
                high_ratio,
                p_value,
                holm_p_value: p_value,
            }),
            computed_share: None,
            refused: None,
        }
    }

    fn judged(found: &[(f64, f64, f64)]) -> TuneReport {
        let others = found.iter().map(|found| setting("other", Some(*found)));
        let settings = std::iter::once(setting("none", None)).chain(others).collect();
        TuneReport::judged(TuneMethod::Blocks, TuneUnit::Step, TuneMeasure::Cpu, settings)
    }

    #[test]
    fn blocks_end_once_each_setting_is_known() {
        let gain = (-0.08, -0.02, 0.01);
        assert!(judged(&[gain]).is_known(None) && !judged(&[gain]).is_known(Some(0.02)));
        assert!(judged(&[gain, (-0.004, 0.004, 1.0)]).is_known(None));
        let unsure = judged(&[gain, (-0.02, 0.02, 1.0)]);
        assert!(!unsure.is_known(None));
        // Four times as wide as half a percent to either side: sixteen times as many steps, with three settings.
        assert_eq!(unsure.steps_for(None, 100), Some(4_800));
        assert_eq!(judged(&[gain]).steps_for(None, 100), None);
    }

    /// Below 2 % it is worth no setting.
    #[test]
    fn a_gain_is_guessed_where_none_is_proven() {
        let runs =
            |found: &[(f64, f64, f64)]| TuneReport { method: TuneMethod::Runs, ..judged(found) };
        let unsure = (-0.2, 0.05, 1.0);
        let guessed = |report: &TuneReport| report.guessed_gain().map(|(_, found)| found.low_ratio);
        assert_eq!(guessed(&runs(&[unsure])), Some(-0.2));
        assert_eq!(guessed(&judged(&[unsure])), None, "blocks end by themselves");
        assert_eq!(guessed(&runs(&[(-0.05, 0.02, 1.0)])), None);
        assert_eq!(guessed(&runs(&[(-1.96, 1.85, 1.0)])), None);
        assert_eq!(guessed(&runs(&[(-0.2, -0.1, 0.01)])), None, "proven");
    }

    #[test]
    fn p_is_adjusted_for_the_number_of_settings() {
        assert_eq!(judged(&[(-0.08, -0.02, 0.04)]).outcome, TuneOutcome::Gain);
        let two = judged(&[(-0.08, -0.02, 0.04), (-0.02, 0.02, 1.0)]);
        assert_eq!(two.settings[1].cpu_difference.map(|found| found.holm_p_value), Some(0.08));
        assert_eq!((two.outcome, two.best), (TuneOutcome::NoDifference, None));
    }
}
