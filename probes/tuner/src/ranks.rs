//! The ranks of a job on one host: rank 0 decides, the others do as it does, so that no rank waits for one
//! with another setting.
//!
//! Rank 0 publishes its current state as a whole, not as a list of changes: a rank that joins late, or starts again,
//! reads where the others are.

use super::gauge::{Action, Gauge};
use super::guard::{MemoryAlarm, MemoryGuard, MemoryLook};
use super::price::Thresholds;
use gctrace_settings::{AutoDecision, AutoEvent, AutoOptions, AutoReport, AutoState};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Rank 0's current state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankOrders {
    /// Process id of rank 0; 0: there is none.
    pub leader: u32,
    /// `None`: the program's own.
    thresholds: Option<Thresholds>,
    is_frozen: bool,
    /// Collections of generation 1, and full ones, that it has asked for.
    collections: [u64; 2],
}

impl RankOrders {
    /// Nothing is in place.
    pub fn of(leader: u32) -> Self {
        Self { leader, ..Self::default() }
    }

    /// Rank 0 does this; `own` are the program's thresholds.
    pub fn note(&mut self, action: Action, own: Thresholds) {
        match action {
            Action::SetThresholds(set) => self.thresholds = (set != own).then_some(set),
            Action::Freeze => self.is_frozen = true,
            Action::Unfreeze => self.is_frozen = false,
            Action::Collect(generation) => {
                let [middle, full] = &mut self.collections;
                *(if generation == 2 { full } else { middle }) += 1;
            }
        }
    }
}

/// A rank that follows.
#[derive(Debug)]
pub struct Follower {
    own: Thresholds,
    in_place: Thresholds,
    is_frozen: bool,
    orders: RankOrders,
    /// Rank 0, dead or alive.
    leader: Option<u32>,
    queue: VecDeque<Action>,
    guard: MemoryGuard,
    /// A collection answers it.
    alarm: Option<MemoryAlarm>,
    /// All ranks are to give everything back.
    raises_alarm: bool,
    steps: u64,
    stopped: Option<AutoEvent>,
}

impl Follower {
    /// `own`: the program's thresholds, now in place.
    pub fn new(options: &AutoOptions, own: Thresholds) -> Self {
        Self {
            own,
            in_place: own,
            is_frozen: false,
            orders: RankOrders::default(),
            leader: None,
            queue: VecDeque::new(),
            guard: MemoryGuard::new(options.memory),
            alarm: None,
            raises_alarm: false,
            steps: 0,
            stopped: None,
        }
    }

    /// A step has ended; `orders`: read at this step. Returns the next action, as
    /// [`Controller::step`](super::Controller::step) does.
    pub fn step(
        &mut self,
        steps: u64,
        orders: Option<RankOrders>,
        gauge: &mut dyn Gauge,
    ) -> Option<Action> {
        self.steps += steps;
        if self.stopped.is_some() {
            return None;
        }
        if let Some(orders) = orders
            && orders != self.orders
        {
            self.follow(orders, gauge);
        } else if self.in_place != self.own || self.is_frozen {
            match self.guard.look(gauge) {
                MemoryLook::Well => {}
                MemoryLook::Unknown => self.stop(AutoDecision::MemoryUnknown),
                MemoryLook::Alarm(alarm) => {
                    self.alarm = Some(alarm);
                    self.queue.push_back(Action::Collect(2));
                }
            }
        }
        self.next(gauge)
    }

    fn follow(&mut self, orders: RankOrders, gauge: &mut dyn Gauge) {
        let held = self.in_place != self.own || self.is_frozen;
        let before = std::mem::replace(&mut self.orders, orders);
        let RankOrders { leader, thresholds, is_frozen, collections: [middle, full] } = self.orders;
        if leader != 0 {
            self.leader = Some(leader);
        }
        // Collections from before it joined are not its own.
        let is_known = before.leader == leader;
        let [middle_before, full_before] = before.collections;
        if self.is_frozen && !is_frozen {
            self.queue.push_back(Action::Unfreeze);
        }
        let freezes = is_frozen && !self.is_frozen;
        if is_known && full != full_before || !is_known && freezes {
            self.queue.push_back(Action::Collect(2));
        } else if is_known && middle != middle_before {
            self.queue.push_back(Action::Collect(1));
        }
        if freezes {
            self.queue.push_back(Action::Freeze);
        }
        self.is_frozen = is_frozen;
        self.place(thresholds.unwrap_or(self.own));
        if !held && (self.in_place != self.own || is_frozen) && self.guard.begin(gauge).is_none() {
            self.stop(AutoDecision::MemoryUnknown);
        }
    }

    fn place(&mut self, thresholds: Thresholds) {
        if thresholds != self.in_place {
            self.in_place = thresholds;
            self.queue.push_back(Action::SetThresholds(thresholds));
        }
    }

    /// The next action after an action.
    pub fn next(&mut self, gauge: &mut dyn Gauge) -> Option<Action> {
        let next = self.queue.pop_front();
        if next.is_none()
            && let Some(alarm) = self.alarm.take()
        {
            self.guard.alarms += 1;
            let full = gauge.figures().full.unwrap_or_default();
            if alarm.is_tight || alarm.was_garbage(full, gauge) {
                self.stop(alarm.decision());
                return self.queue.pop_front();
            }
            self.guard.begin(gauge);
        }
        next
    }

    fn stop(&mut self, decision: AutoDecision) {
        self.raises_alarm = true;
        self.stopped = Some(AutoEvent { step: self.steps, decision });
        if std::mem::take(&mut self.is_frozen) {
            self.queue.push_back(Action::Unfreeze);
        }
        self.place(self.own);
    }

    /// Whether all ranks are to give everything back; once.
    pub fn takes_alarm(&mut self) -> bool {
        std::mem::take(&mut self.raises_alarm)
    }

    /// The program has set thresholds: they are in place now.
    pub fn program_set(&mut self, thresholds: Thresholds, gauge: &mut dyn Gauge) -> Option<Action> {
        // It puts back the thresholds that it read: ours.
        if thresholds != self.in_place || thresholds == self.own {
            self.own = thresholds;
        }
        self.in_place = thresholds;
        if self.stopped.is_none() {
            self.place(self.orders.thresholds.unwrap_or(self.own));
        }
        self.next(gauge)
    }

    /// The program has thawed the objects frozen for it.
    pub fn program_unfroze(&mut self) {
        self.is_frozen = false;
    }

    /// The user takes everything back: the caller does that.
    pub fn take_back(&mut self) {
        self.stop(AutoDecision::TakenBack);
        self.queue.clear();
    }

    /// The program's thresholds, if others are in place.
    pub fn to_give_back(&self) -> Option<Thresholds> {
        if self.in_place != self.own { Some(self.own) } else { None }
    }

    /// Its report by now.
    pub fn report(&self) -> AutoReport {
        AutoReport {
            state: match self.stopped {
                None => AutoState::Following,
                Some(_) => AutoState::Stopped,
            },
            leader: self.leader,
            own_thresholds: self.own.to_vec(),
            rss_bytes_before: self.guard.base,
            most_rss_bytes_held: self.guard.base.map(|_| self.guard.most),
            memory_alarms: self.guard.alarms,
            events: self.stopped.iter().cloned().collect(),
            ..AutoReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Controller;
    use super::super::simulated::{STATIC, SimulatedProgram};
    use super::*;

    const OWN: Thresholds = [700, 10, 10];

    /// Runs rank 0, and a rank that follows from step `joins` on, in step; each reads the other's published data of
    /// that time. Returns the orders at the end.
    fn run(
        leader: &mut (SimulatedProgram, Controller),
        other: &mut (SimulatedProgram, Follower),
        steps: u64,
        joins: u64,
    ) -> RankOrders {
        let mut orders = RankOrders::of(1);
        for step in 0..steps {
            let (program, controller) = leader;
            program.step();
            let mut action = controller.step(1, program);
            while let Some(next) = action {
                orders.note(next, OWN);
                program.carry_out(next);
                action = controller.next(program);
            }
            let (program, follower) = &mut *other;
            program.step();
            if step < joins {
                continue;
            }
            let mut action = follower.step(1, Some(orders.clone()), program);
            while let Some(next) = action {
                program.carry_out(next);
                action = follower.next(program);
            }
            assert_eq!(program.thresholds, leader.0.thresholds, "step {step}");
            assert_eq!(follower.is_frozen, orders.is_frozen, "step {step}");
        }
        orders
    }

    fn pair() -> ((SimulatedProgram, Controller), (SimulatedProgram, Follower)) {
        let options = AutoOptions::default();
        let leader =
            (SimulatedProgram::new(STATIC, 600_000, 1), Controller::new(options.clone(), OWN, 5));
        (leader, (SimulatedProgram::new(STATIC, 600_000, 2), Follower::new(&options, OWN)))
    }

    #[test]
    fn the_other_rank_has_the_same_setting_at_each_step() {
        for joins in [0, 4_000, 9_000] {
            let (mut leader, mut other) = pair();
            let orders = run(&mut leader, &mut other, 12_000, joins);
            assert!(orders.thresholds.is_some() || orders.is_frozen, "{orders:?}");
            let report = other.1.report();
            assert_eq!((report.state, report.leader), (AutoState::Following, Some(1)));
            let asked = |program: &SimulatedProgram, generation| {
                let is_one = |action: &&(u64, Action)| action.1 == Action::Collect(generation);
                program.actions.iter().filter(is_one).count() as u64
            };
            assert_eq!(asked(&leader.0, 1), orders.collections[0]);
            if joins == 0 {
                let ([middle, full], young) = (orders.collections, asked(&other.0, 1));
                assert_eq!(asked(&other.0, 2), full);
                // One of all generations stands for one of the young, if both are due.
                assert!((middle - full..=middle).contains(&young), "{young} {orders:?}");
            }
            // Rank 0 has ended, or was killed.
            let (program, follower) = &mut other;
            let mut action = follower.step(1, Some(RankOrders::of(0)), program);
            while let Some(next) = action {
                program.carry_out(next);
                action = follower.next(program);
            }
            assert_eq!((program.thresholds, follower.to_give_back()), (OWN, None));
            assert!(!follower.is_frozen);
        }
    }

    #[test]
    fn a_rank_without_memory_has_all_give_back() {
        let (mut leader, mut other) = pair();
        run(&mut leader, &mut other, 12_000, 0);
        let (program, follower) = &mut other;
        program.headroom = Some(program.rss + (1 << 20));
        let mut steps = 0;
        while !follower.takes_alarm() {
            steps += 1;
            assert!(steps < 10_000);
            program.step();
            program.rss += 4 << 20;
            let mut action = follower.step(1, None, program);
            while let Some(next) = action {
                program.carry_out(next);
                action = follower.next(program);
            }
        }
        assert_eq!((program.thresholds, follower.is_frozen), (OWN, false));
        let (program, controller) = &mut leader;
        let mut action = controller.rank_alarmed(program);
        while let Some(next) = action {
            program.carry_out(next);
            action = controller.next(program);
        }
        assert_eq!((program.thresholds, controller.report(0).state), (OWN, AutoState::Stopped));
        assert_eq!(controller.rank_alarmed(program), None);
    }

    #[test]
    fn what_the_program_sets_is_its_own() {
        let (mut leader, mut other) = pair();
        let orders = run(&mut leader, &mut other, 12_000, 0);
        let (program, follower) = &mut other;
        assert!(orders.thresholds.is_some(), "{orders:?}");
        let again = follower.program_set([900, 10, 10], program);
        assert_eq!(again, orders.thresholds.map(Action::SetThresholds));
        assert_eq!(follower.to_give_back(), Some([900, 10, 10]));
    }
}
