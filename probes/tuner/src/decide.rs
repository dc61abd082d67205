//! Decisions after a block while settings are compared, and while one is held.

use super::block::BlockKind;
use super::compare::Comparison;
use super::controller::{AutoPhase, Controller};
use super::explore::{collecting, is_off};
use super::gauge::Gauge;
use super::hold::{GAPS, Hold, HoldVerdict, LEAST_GAP, RESERVE};
use super::price::{BlockCost, ChargedOld, Figures};
use gctrace_settings::{AutoDecision, AutoGoal};
use gctrace_stats::whole;

/// Share of the price of full collections that a freeze leaves, for the decision alone.
const LEFT_BY_FREEZE: f64 = 0.1;
/// Pauses may be twice as long as before, and this much, in ns.
const PAUSE_NS: u64 = 10_000_000;

impl Controller {
    /// A block has ended while settings are compared.
    pub(super) fn explored(
        &mut self,
        kind: BlockKind,
        cost: BlockCost,
        steps: u64,
        figures: &Figures,
        gauge: &mut dyn Gauge,
    ) {
        let AutoPhase::Explore(exploration) = &mut self.phase else { return };
        let BlockKind::Tried(place) = kind else { return };
        exploration.queue.pop();
        if let Some(tried) = exploration.tried.get_mut(place) {
            tried.costs.push((cost, steps));
        }
        if !exploration.queue.is_empty() {
            return;
        }
        match exploration.halve() {
            None => exploration.begin_round(&mut self.coin),
            Some(best) => self.choose(best, figures, gauge),
        }
    }

    /// Compares the settings that were named, once the program was watched for a block of this cost.
    pub(super) fn begin_comparison(&mut self, cost: &BlockCost, share: f64) {
        let comparison = Comparison::new(&self.options.compared, self.own, cost);
        self.decide(AutoDecision::Compare { share, block_steps: comparison.block });
        self.phase = AutoPhase::Compare(comparison);
        // It has a price from the first block on.
        self.collect_all();
    }

    /// A block has ended while settings that were named are compared.
    pub(super) fn has_compared(&mut self, kind: BlockKind, cost: BlockCost) {
        if let (AutoPhase::Compare(comparison), BlockKind::Tried(place)) = (&mut self.phase, kind) {
            comparison.add(place, cost);
        }
    }

    /// Holds the best setting if it gains enough, or leaves the program's own.
    fn choose(&mut self, best: usize, figures: &Figures, gauge: &mut dyn Gauge) {
        let AutoPhase::Explore(exploration) = &self.phase else { return };
        let (own, best) = (&exploration.tried[0], &exploration.tried[best]);
        let (steps, lost_ns) = exploration.cost();
        let least_ns = self.options.worth / 2.0 * own.mean(|cost| cost.cpu_ns);
        let error_ns = (own.squared_error() + best.squared_error()).sqrt();
        let gain_ns = own.mean(collecting) - best.mean(collecting) - error_ns;
        let is_longest = self.options.goal == AutoGoal::Longest;
        let better = if gain_ns >= least_ns { best } else { own };
        let full_ns = ChargedOld::of(figures, 0.0).full_ns();
        let saved_ns = better.mean(|cost| cost.full_ns - cost.garbage_ns) * (1.0 - LEFT_BY_FREEZE);
        let is_wanted = saved_ns >= least_ns || is_longest && saved_ns > 0.0;
        // A setting names the step of its freeze.
        let freezes = is_wanted
            && !self.by_time
            && !is_off(better.thresholds)
            && !self.is_over_budget(lost_ns + full_ns);
        let (thresholds, allocations) = (better.thresholds, own.mean(|cost| cost.allocations));
        let (block, own_full_ns) = (exploration.block, own.mean(|cost| cost.full_ns));
        self.compared_settings = exploration.reported();
        self.explored_steps += steps;
        self.spent_ns += lost_ns;
        if thresholds == self.own && !freezes {
            self.decide(AutoDecision::OwnIsBest);
            self.watch_again(true);
            return;
        }
        let frozen = if freezes { Some(figures) } else { None };
        let hold = Hold::new(self.steps, thresholds, block, allocations, frozen);
        self.own_full_ns = if own_full_ns > 0.0 { whole(full_ns) } else { 0 };
        self.decide(AutoDecision::Hold { setting: hold.setting() });
        self.guard.begin(gauge);
        self.longest_held_ns = [0; 2];
        self.phase = AutoPhase::Hold(Box::new(hold));
        if freezes {
            self.freeze();
        }
    }

    /// A block has ended while a setting is held.
    pub(super) fn held(&mut self, kind: BlockKind, cost: BlockCost, steps: u64) {
        let AutoPhase::Hold(hold) = &mut self.phase else { return };
        hold.add(kind, cost, steps);
        // Then time is not the point, as long as none is lost.
        let is_longest = self.options.goal == AutoGoal::Longest;
        let verdict = hold.verdict();
        let (pairs, mean) = (hold.pairs.cpu.count() as u64, hold.pairs.cpu.mean());
        match verdict {
            HoldVerdict::GoOn => {}
            HoldVerdict::Proven { low, high } => {
                hold.is_proven = true;
                hold.is_proving = false;
                self.decide(AutoDecision::Proven { mean, low, high, pairs });
            }
            HoldVerdict::NotProven if mean < -RESERVE || is_longest => hold.is_proving = false,
            HoldVerdict::NotProven => {
                self.decide(AutoDecision::NotProven { pairs });
                self.watch_again(true);
            }
            HoldVerdict::Loss => {
                self.decide(AutoDecision::Loss);
                self.watch_again(true);
            }
            HoldVerdict::Changed { before, now } => {
                self.decide(AutoDecision::Changed { before, now });
                self.watch_again(false);
            }
        }
        self.spread_pairs();
        self.guard_pauses();
    }

    /// The distance to the next pair is chance.
    fn spread_pairs(&mut self) {
        if let AutoPhase::Hold(hold) = &mut self.phase
            && hold.gap == LEAST_GAP
        {
            hold.gap += self.coin.below(GAPS) as u64;
        }
    }

    /// Young collections must not become longer than all were before: full ones grow with the heap.
    fn guard_pauses(&mut self) {
        let before_ns = self.longest_own_ns.into_iter().max().unwrap_or(0).max(self.own_full_ns);
        let [pause_ns, _] = self.longest_held_ns;
        if matches!(self.phase, AutoPhase::Hold(_))
            && gctrace_units::beyond(pause_ns, PAUSE_NS) > gctrace_units::times(before_ns, 2)
        {
            self.stop(AutoDecision::Pause { pause_ns, before_ns });
        }
    }
}
