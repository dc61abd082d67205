//! The program is watched with its own settings, and given them back.

use super::block::is_other;
use super::controller::{AutoPhase, Controller, Moment};
use super::explore::{Exploration, off};
use super::gauge::{Action, Gauge};
use super::price::{BlockCost, ChargedOld, Figures};
use gctrace_settings::{AutoDecision, AutoEvent, AutoGoal, NEXT_TO_NOTHING_PER_S};
use gctrace_units::{beyond, duration_ns, times};

/// Steps until settings are compared again after a fruitless exploration; doubled with each.
const WAIT: u64 = 1_000;
/// Full collections of this length are worth avoiding with [`AutoGoal::Longest`], in ns: shorter ones are
/// not the longest pause of anything.
const NOTICEABLE_NS: f64 = 10e6;
/// Most events and parts that are kept.
const MOST: usize = 100;

impl Controller {
    /// A block has ended that watched.
    pub(super) fn has_watched(
        &mut self,
        cost: &BlockCost,
        figures: &Figures,
        gauge: &mut dyn Gauge,
    ) {
        let share = if cost.cpu_ns > 0.0 { cost.collecting_ns / cost.cpu_ns } else { 0.0 };
        self.share = Some(share);
        let before = self.watched.replace(cost.allocations);
        if cost.middle > 0.0 {
            self.period_ns = (cost.collecting_ns - cost.full_ns) / cost.middle;
        }
        if !self.options.compared.is_empty() {
            if self.is_on && self.guard.begin(gauge).is_some() {
                self.begin_comparison(cost, share);
            }
            return;
        }
        let full_ns = ChargedOld::of(figures, 0.0).full_ns();
        let is_noticeable =
            self.options.goal == AutoGoal::Longest && full_ns > NOTICEABLE_NS && cost.full_ns > 0.0;
        if share <= self.options.worth && !is_noticeable {
            if !std::mem::replace(&mut self.has_said_nothing, true) {
                self.decide(AutoDecision::NothingToGain { share });
            }
            return;
        }
        let is_steady = matches!(before, Some(before) if !is_other(before, cost.allocations));
        if !is_steady
            || !self.is_on
            || self.steps < self.explore_at
            || !self.may_begin(figures)
            || self.is_over_budget(0.0)
            || self.guard.begin(gauge).is_none()
        {
            return;
        }
        let longest_ns = self.longest_own_ns.into_iter().max().unwrap_or(0);
        let limit_ns = if self.options.goal == AutoGoal::Longest { Some(longest_ns) } else { None };
        let off = if self.frees(figures) { None } else { Some(off(self.own, self.by_time)) };
        if let Some(mut exploration) = Exploration::new(self.own, cost, limit_ns, off) {
            self.has_said_nothing = false;
            self.explorations += 1;
            exploration.begin_round(&mut self.coin);
            self.phase = AutoPhase::Explore(exploration);
            self.decide(AutoDecision::Explore { share });
        } else if !std::mem::replace(&mut self.has_said_nothing, true) {
            self.decide(AutoDecision::OwnIsBest);
        }
    }

    /// Whether the program has made as many steps, or has run as long, as it is to be left alone.
    fn may_begin(&self, figures: &Figures) -> bool {
        let ran_ns = duration_ns(self.first.wall_ns, figures.wall_ns);
        self.by_time || self.steps >= self.options.from_step || ran_ns >= self.options.wait_ns()
    }

    /// Whether collections free something: where they do not, nothing is lost without them.
    fn frees(&self, figures: &Figures) -> bool {
        let freed = beyond(figures.freed, self.first.freed);
        let ms = beyond(figures.cpu_ns, self.first.cpu_ns) / 1_000_000;
        times(freed, 1_000) > times(ms, NEXT_TO_NOTHING_PER_S)
    }

    /// Own settings for now; watches, and explores again after a while.
    pub(super) fn watch_again(&mut self, is_fruitless: bool) {
        self.end_part();
        self.phase = AutoPhase::Watch;
        self.watched = None;
        let wait = if is_fruitless { WAIT << self.explorations.min(20) } else { 0 };
        self.explore_at = self.steps + wait;
    }

    /// Gives back everything, for good.
    pub(super) fn stop(&mut self, why: AutoDecision) {
        self.decide(why);
        self.end_part();
        self.phase = AutoPhase::Stopped;
        self.moment = Moment::Running;
        self.queue.push_back(Action::SetThresholds(self.own));
    }

    /// A part ends: frozen objects are thawed.
    pub(super) fn end_part(&mut self) {
        let phase = std::mem::replace(&mut self.phase, AutoPhase::Watch);
        if let AutoPhase::Compare(comparison) = &phase {
            self.compared_settings = comparison.reported();
        }
        if let AutoPhase::Hold(hold) = phase {
            if hold.is_frozen() {
                // Without the collection the old generation would seem small, and full ones follow.
                self.queue.push_back(Action::Unfreeze);
                self.collect_all();
            }
            self.spent_ns += hold.lost_ns();
            if self.parts.len() < MOST {
                self.parts.push(hold.part());
                self.savings.extend(hold.saving());
            }
        }
    }

    pub(super) fn decide(&mut self, decision: AutoDecision) {
        if self.events.len() < MOST {
            self.events.push(AutoEvent { step: self.steps, decision });
        }
    }

    /// Freezes what lives, after a full collection.
    pub(super) fn freeze(&mut self) {
        self.collect_all();
        self.queue.push_back(Action::Freeze);
    }

    pub(super) fn collect_all(&mut self) {
        self.queue.push_back(Action::Collect(2));
        self.is_clean = true;
        (self.debt, self.put_off) = (0, 0.0);
    }
}
