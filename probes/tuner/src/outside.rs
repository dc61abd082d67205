//! Reactions to changes by the program, another rank or the user while the controller works.

use super::controller::{AutoPhase, Controller, Moment};
use super::gauge::{Action, Gauge};
use super::price::{SUSPENDED, Thresholds};
use gctrace_settings::AutoDecision;

impl Controller {
    /// The program has set thresholds: they are in place now. Returns the next action.
    pub fn program_set(&mut self, thresholds: Thresholds, gauge: &mut dyn Gauge) -> Option<Action> {
        // It puts back the thresholds that it read: ours.
        let is_ours = thresholds == self.in_place && thresholds != self.own;
        let [first, second, third] = thresholds;
        let third = if third >= SUSPENDED { self.own[2] } else { third };
        let own = if is_ours { self.own } else { [first, second, third] };
        self.in_place = thresholds;
        let is_new = own != self.own;
        self.own = own;
        if is_new {
            self.decide(AutoDecision::OwnChanged { thresholds: own.to_vec() });
        }
        self.begin_anew(is_new, gauge)
    }

    /// The program has switched automatic collection on or off, or it was so from the start. While it is
    /// off nothing is tried.
    pub fn program_switched(&mut self, is_on: bool, gauge: &mut dyn Gauge) -> Option<Action> {
        self.is_on = is_on;
        self.begin_anew(true, gauge)
    }

    /// The program has thawed the objects frozen for it.
    pub fn program_unfroze(&mut self, gauge: &mut dyn Gauge) -> Option<Action> {
        self.decide(AutoDecision::Unfrozen);
        if !matches!(self.phase, AutoPhase::Stopped) {
            self.watch_again(true);
        }
        self.begin_anew(false, gauge)
    }

    /// The block that runs says nothing any more, nor does the phase if the program is another.
    fn begin_anew(&mut self, is_other: bool, gauge: &mut dyn Gauge) -> Option<Action> {
        if matches!(self.phase, AutoPhase::Stopped) || self.cpu_ns.is_none() {
            return None;
        }
        self.drop_pair();
        if is_other && !matches!(self.phase, AutoPhase::SetUp) {
            self.watch_again(false);
        }
        let figures = gauge.figures();
        self.prepare(&figures);
        self.next(gauge)
    }

    /// Another rank has hardly any memory left.
    pub fn rank_alarmed(&mut self, gauge: &mut dyn Gauge) -> Option<Action> {
        if matches!(self.phase, AutoPhase::Stopped) {
            return None;
        }
        self.stop(AutoDecision::RankMemory);
        self.next(gauge)
    }

    /// The thresholds that the program wants.
    pub fn own(&self) -> Thresholds {
        self.own
    }

    /// The user takes everything back: the caller does that.
    pub fn take_back(&mut self) {
        if !matches!(self.phase, AutoPhase::Stopped) {
            self.decide(AutoDecision::TakenBack);
            self.end_part();
            self.queue.clear();
            self.phase = AutoPhase::Stopped;
            self.moment = Moment::Running;
        }
    }

    /// The program's thresholds, if others are in place.
    pub fn to_give_back(&self) -> Option<Thresholds> {
        if self.in_place != self.own { Some(self.own) } else { None }
    }
}
