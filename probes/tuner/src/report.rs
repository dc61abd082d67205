//! The controller's report.

use super::controller::{AutoPhase, Controller};
use super::hold::Hold;
use super::price::COMPUTED_ERROR;
use gctrace_settings::{AutoReport, AutoSaving};
use gctrace_stats::{float, signed, whole};

impl Controller {
    /// Its report by now. `agent_ns`: time of gctrace's own code at steps.
    pub fn report(&self, agent_ns: u64) -> AutoReport {
        let hold = match &self.phase {
            AutoPhase::Hold(hold) => Some(&**hold),
            _ => None,
        };
        let put_off_ns = self.skipped_ns - self.guarded_ns;
        let cost_ns = gctrace_units::sum([whole(self.spent_ns - put_off_ns.min(0.0)), agent_ns]);
        let compared = match &self.phase {
            AutoPhase::Compare(comparison) => comparison.reported(),
            AutoPhase::Explore(exploration) => exploration.reported(),
            _ => self.compared_settings.clone(),
        };
        let longest = |longest: [u64; 2]| longest.into_iter().max().filter(|ns| *ns > 0);
        let mut parts = self.parts.clone();
        parts.extend(hold.map(Hold::part));
        AutoReport {
            state: self.state(),
            unsupported: None,
            leader: None,
            followers: 0,
            own_thresholds: self.own.to_vec(),
            setting: hold.map(Hold::setting),
            by_time: self.by_time,
            collector_share: self.share,
            cpu_ns: self.run_ns(),
            explored_steps: self.explored_steps,
            cost_ns,
            saved: saved(&self.savings, hold.and_then(Hold::saving)).map(|gross| {
                let mean_ns = float_signed(gross.mean_ns);
                let computed_ns = gross.computed_share * mean_ns + put_off_ns;
                let more_ns = put_off_ns - self.spent_ns - float(agent_ns);
                // They come whole.
                let error_ns = COMPUTED_ERROR * computed_ns.abs() + float(self.own_full_ns) / 2.0;
                let with = |ns: i64, more_ns: f64| ns.saturating_add(signed(more_ns));
                AutoSaving {
                    mean_ns: with(gross.mean_ns, more_ns),
                    low_ns: with(gross.low_ns, more_ns - error_ns),
                    high_ns: with(gross.high_ns, more_ns + error_ns),
                    pairs: gross.pairs,
                    computed_share: share(computed_ns, mean_ns + more_ns),
                }
            }),
            inherited_frozen: None,
            parts,
            longest_own_ns: longest(self.longest_own_ns),
            longest_held_ns: longest(self.longest_held_ns),
            rss_bytes_before: self.guard.base,
            most_rss_bytes_held: self.guard.base.map(|_| self.guard.most),
            memory_alarms: self.guard.alarms,
            events: self.events.clone(),
            compared,
        }
    }
}

/// The sum. Ends of intervals are added: this makes it wider than it need be.
fn saved(all: &[AutoSaving], last: Option<AutoSaving>) -> Option<AutoSaving> {
    all.iter().copied().chain(last).reduce(|one, other| {
        let (mean, other_mean) = (float_signed(one.mean_ns), float_signed(other.mean_ns));
        let computed = one.computed_share * mean + other.computed_share * other_mean;
        let sum = mean + other_mean;
        AutoSaving {
            mean_ns: one.mean_ns.saturating_add(other.mean_ns),
            low_ns: one.low_ns.saturating_add(other.low_ns),
            high_ns: one.high_ns.saturating_add(other.high_ns),
            pairs: one.pairs + other.pairs,
            computed_share: share(computed, sum),
        }
    })
}

/// 0 of nothing.
fn share(part: f64, sum: f64) -> f64 {
    if sum == 0.0 { 0.0 } else { part / sum }
}

fn float_signed(number: i64) -> f64 {
    if number < 0 { -float(number.unsigned_abs()) } else { float(number.unsigned_abs()) }
}
