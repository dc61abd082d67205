//! What the controller reports.

use super::controller::{AutoPhase, Controller};
use super::hold::Hold;
use super::price::{float, whole};
use gctrace_settings::{AutoReport, AutoSaving};

impl Controller {
    /// What it did by now. `agent_ns`: time of gctrace's own code at steps.
    pub(crate) fn report(&self, agent_ns: u64) -> AutoReport {
        let hold = match &self.phase {
            AutoPhase::Hold(hold) => Some(&**hold),
            _ => None,
        };
        let guarded_ns = (self.guarded_ns - self.charged_ns.max(0.0)).max(0.0);
        let cost_ns = whole(self.spent_ns + guarded_ns).saturating_add(agent_ns);
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
            collector_share: self.share,
            cpu_ns: self.run_ns(),
            explored_steps: self.explored_steps,
            cost_ns,
            saved: saved(&self.savings, hold.and_then(Hold::saving)).map(|gross| {
                let less = |ns: i64| ns.saturating_sub_unsigned(cost_ns);
                AutoSaving {
                    mean_ns: less(gross.mean_ns),
                    low_ns: less(gross.low_ns),
                    high_ns: less(gross.high_ns),
                    ..gross
                }
            }),
            parts,
            longest_own_ns: longest(self.longest_own_ns),
            longest_held_ns: longest(self.longest_held_ns),
            rss_bytes_before: self.guard.base,
            most_rss_bytes_held: self.guard.base.map(|_| self.guard.most),
            memory_alarms: self.guard.alarms,
            events: self.events.clone(),
        }
    }
}

/// The sum. Ends of intervals are added, which makes it wider than it need be.
fn saved(all: &[AutoSaving], last: Option<AutoSaving>) -> Option<AutoSaving> {
    all.iter().copied().chain(last).reduce(|one, other| {
        let (mean, other_mean) = (float_signed(one.mean_ns), float_signed(other.mean_ns));
        let computed = one.computed_share * mean + other.computed_share * other_mean;
        let sum = mean + other_mean;
        AutoSaving {
            mean_ns: one.mean_ns.saturating_add(other.mean_ns),
            low_ns: one.low_ns.saturating_add(other.low_ns),
            high_ns: one.high_ns.saturating_add(other.high_ns),
            pairs: one.pairs.saturating_add(other.pairs),
            computed_share: if sum == 0.0 { 0.0 } else { computed / sum },
        }
    })
}

fn float_signed(number: i64) -> f64 {
    if number < 0 { -float(number.unsigned_abs()) } else { float(number.unsigned_abs()) }
}
