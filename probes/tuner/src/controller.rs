//! The controller: chooses the next block of steps and its thresholds, and draws conclusions from it.
//!
//! Watch, explore, prove, hold: see docs/mechanisms.md, "A setting found while it runs". Driven by [`Controller::step`]
//! at each step and [`Controller::next`] after each [`Action`]; it asks a [`Gauge`] for facts about the program.

use super::block::{Block, BlockKind, is_other};
use super::compare::Comparison;
use super::explore::Exploration;
use super::gauge::{Action, Gauge};
use super::guard::{MemoryAlarm, MemoryGuard, MemoryLook};
use super::hold::Hold;
use super::price::{
    BlockCost, ChargedOld, Figures, MeasuredFull, SUSPENDED, Thresholds, block_cost, worked_ms,
};
use gctrace_settings::{
    AutoDecision, AutoEvent, AutoOptions, AutoPart, AutoSaving, AutoState, ComparedSetting,
};
use gctrace_stats::coin::Coin;
use gctrace_stats::float;
use gctrace_units::{beyond, duration_ns, u32_or_most};
use std::collections::VecDeque;

/// Steps before anything is measured: caches and lazily made state settle.
const SET_UP: u64 = 50;
/// Steps of a block that watches.
const WATCH: u64 = 200;
/// A block that watches, or the set-up, ends earlier once it took this long, in ns: steps of seconds say
/// enough.
const LONG_NS: u64 = 10_000_000_000;
/// And has this many steps.
const FEWEST: u64 = 10;

/// What follows the actions that are due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// The block goes on.
    Running,
    /// The block has ended here, and is being closed.
    Closing(Figures),
    /// The memory guard has asked for a collection.
    Alarm(MemoryAlarm),
    /// A block begins.
    Preparing,
}

pub(super) enum AutoPhase {
    SetUp,
    Watch,
    Explore(Exploration),
    Compare(Comparison),
    Hold(Box<Hold>),
    Stopped,
}

/// The controller of one process.
pub struct Controller {
    pub(super) options: AutoOptions,
    pub(super) coin: Coin,
    /// A step is a millisecond of the process's work.
    pub(super) by_time: bool,
    /// The thresholds that the program wants.
    pub(super) own: Thresholds,
    /// Whether it wants automatic collection.
    pub(super) is_on: bool,
    /// The thresholds in place.
    pub(super) in_place: Thresholds,
    pub(super) phase: AutoPhase,
    pub(super) steps: u64,
    pub(super) queue: VecDeque<Action>,
    pub(super) moment: Moment,
    block: Block,
    /// Steps of the block so far.
    block_steps: u64,
    pub(super) begin: Figures,
    /// When steps began.
    pub(super) first: Figures,
    /// Nothing young waits since the last block.
    pub(super) is_clean: bool,
    /// Collections of generation 1 that do not count towards the next full one: collections that close blocks, and
    /// collections in blocks with a suspended old generation.
    pub(super) debt: u32,
    /// Full collections that the rule would have had in compared blocks since the last one.
    pub(super) put_off: f64,
    /// Nothing is compared until the collector has made the full collection that was put off.
    pub(super) awaits_full: bool,
    /// Full collections at the last look.
    fulls: u64,
    /// The last full collection in the program's own rhythm, by the rule. Its price is the price with the program's own
    /// settings. If a heap was traversed longer ago, less of it is in the caches: half as much again was seen with a
    /// third as many full collections.
    own_full: Option<MeasuredFull>,
    /// Steps of compared blocks, and full collections in them: the program asked for those.
    compared: [u64; 2],
    pub(super) guard: MemoryGuard,
    /// CPU time in ns when steps began, and now.
    pub(super) cpu_ns: Option<[u64; 2]>,
    pub(super) share: Option<f64>,
    /// Containers per step in the last block that watched.
    pub(super) watched: Option<f64>,
    /// CPU time of young collections in a period of generation 1, as last watched, in ns.
    pub(super) period_ns: f64,
    pub(super) has_said_nothing: bool,
    pub(super) explorations: u32,
    /// Not before this step is explored again.
    pub(super) explore_at: u64,
    pub(super) explored_steps: u64,
    /// Cost by now, in ns of CPU time.
    pub(super) spent_ns: f64,
    /// Collections for the memory guard, in ns of CPU time: no search is given up for them.
    pub(super) guarded_ns: f64,
    /// Full collections charged to blocks by the rule since settings are compared, minus full collections that ran in
    /// them, in ns of CPU time: saved, as long as the program's own settings would have had them. The guard's
    /// collections put them off.
    pub(super) skipped_ns: f64,
    /// The longest collection with own settings and with a held one: young and full.
    pub(super) longest_own_ns: [u64; 2],
    pub(super) longest_held_ns: [u64; 2],
    /// Time of a full collection with own settings, in ns, if they come to one.
    pub(super) own_full_ns: u64,
    pub(super) parts: Vec<AutoPart>,
    /// Savings of the proven parts.
    pub(super) savings: Vec<AutoSaving>,
    pub(super) events: Vec<AutoEvent>,
    /// The comparison that has ended.
    pub(super) compared_settings: Vec<ComparedSetting>,
}

impl Controller {
    /// `own`: the program's thresholds, now in place. The order of all pairs follows from `seed`.
    pub fn new(options: AutoOptions, own: Thresholds, seed: u64) -> Self {
        Self {
            guard: MemoryGuard::new(options.memory),
            options,
            coin: Coin::new(seed),
            by_time: false,
            own,
            is_on: true,
            in_place: own,
            phase: AutoPhase::SetUp,
            steps: 0,
            queue: VecDeque::new(),
            moment: Moment::Running,
            block: Block { kind: BlockKind::Own, thresholds: own, steps: SET_UP },
            block_steps: 0,
            begin: Figures::default(),
            first: Figures::default(),
            is_clean: false,
            debt: 0,
            put_off: 0.0,
            awaits_full: false,
            fulls: 0,
            own_full: None,
            compared: [0; 2],
            cpu_ns: None,
            share: None,
            watched: None,
            period_ns: f64::INFINITY,
            has_said_nothing: false,
            explorations: 0,
            explore_at: 0,
            explored_steps: 0,
            spent_ns: 0.0,
            guarded_ns: 0.0,
            skipped_ns: 0.0,
            longest_own_ns: [0; 2],
            longest_held_ns: [0; 2],
            own_full_ns: 0,
            parts: Vec::new(),
            savings: Vec::new(),
            events: Vec::new(),
            compared_settings: Vec::new(),
        }
    }

    /// No step is known: from now on a step is a millisecond of work, and figures are of the process.
    pub fn go_by_time(&mut self) {
        self.by_time = true;
    }

    /// Steps have ended: one, or some by time. Returns the next action; [`Controller::next`] follows each action.
    pub fn step(&mut self, steps: u64, gauge: &mut dyn Gauge) -> Option<Action> {
        self.steps += steps;
        if matches!(self.phase, AutoPhase::Stopped) {
            return None;
        }
        if self.cpu_ns.is_none() {
            self.begin = gauge.figures();
            self.first = self.begin;
            self.fulls = self.begin.collections[2];
            self.own_full = self.begin.full;
            self.cpu_ns = Some([self.begin.cpu_ns; 2]);
            return None;
        }
        self.block_steps += steps;
        if !matches!(self.phase, AutoPhase::SetUp | AutoPhase::Watch) {
            match self.guard.look(gauge) {
                MemoryLook::Well => {}
                MemoryLook::Unknown => {
                    self.stop(AutoDecision::MemoryUnknown);
                    return self.next(gauge);
                }
                MemoryLook::Alarm(alarm) => {
                    self.moment = Moment::Alarm(alarm);
                    self.begin = gauge.figures();
                    self.drop_pair();
                    return Some(Action::Collect(2));
                }
            }
        }
        if !self.has_ended(gauge) {
            return None;
        }
        self.moment = Moment::Closing(gauge.figures());
        if self.block.is_compared() {
            return Some(Action::Collect(1));
        }
        self.next(gauge)
    }

    /// Number of coming steps without a decision, except for occasional looks.
    pub fn steps_ahead(&self) -> u64 {
        if matches!(self.phase, AutoPhase::Stopped) {
            return u64::MAX;
        }
        let is_running = self.cpu_ns.is_some() && matches!(self.moment, Moment::Running);
        let ahead = beyond(self.block.steps, self.block_steps + 1);
        if is_running { ahead } else { 0 }
    }

    fn has_ended(&self, gauge: &mut dyn Gauge) -> bool {
        let may_be_short = matches!(self.phase, AutoPhase::SetUp | AutoPhase::Watch);
        self.block_steps >= self.block.steps
            || may_be_short
                && self.block_steps >= FEWEST
                && duration_ns(self.begin.wall_ns, gauge.now_ns()) > LONG_NS
    }

    /// The next action after an action; `None`: the next step.
    pub fn next(&mut self, gauge: &mut dyn Gauge) -> Option<Action> {
        loop {
            if let Some(action) = self.queue.pop_front() {
                if let Action::SetThresholds(thresholds) = action {
                    self.in_place = thresholds;
                }
                return Some(action);
            }
            match std::mem::replace(&mut self.moment, Moment::Running) {
                Moment::Running => return None,
                Moment::Closing(end) => self.end_block(&end, &gauge.figures(), gauge),
                Moment::Alarm(alarm) => {
                    let figures = gauge.figures();
                    self.guarded_ns += self.collected_ns(&figures);
                    self.guard.alarms += 1;
                    let full = figures.full.unwrap_or_default();
                    if alarm.is_tight || alarm.was_garbage(full, gauge) {
                        self.stop(alarm.decision());
                    } else {
                        // It lives, and would without us: the limit moves with it.
                        self.guard.begin(gauge);
                        self.prepare(&figures);
                    }
                }
                Moment::Preparing => {
                    let figures = gauge.figures();
                    self.spent_ns += self.collected_ns(&figures);
                    self.begin = figures;
                    self.block_steps = 0;
                }
            }
        }
    }

    /// CPU time of collections since the last figures, in ns: they ran for us.
    fn collected_ns(&mut self, figures: &Figures) -> f64 {
        let before = std::mem::replace(&mut self.begin, *figures);
        float(beyond(figures.all_collecting_ns(), before.all_collecting_ns()))
    }

    fn end_block(&mut self, end: &Figures, closed: &Figures, gauge: &mut dyn Gauge) {
        if let Some([_, now]) = &mut self.cpu_ns {
            *now = closed.cpu_ns.max(*now);
        }
        let (block, steps) = (self.block, self.block_steps);
        self.is_clean = block.is_compared();
        if block.is_compared() && block.kind.is_own() {
            // Collecting early saves a later collection, except for the cost of its own period. With other settings it
            // is part of the cost of their blocks.
            let closing_ns = float(beyond(closed.cpu_ns, end.cpu_ns));
            self.spent_ns += closing_ns.min(self.period_ns);
        }
        self.note_longest(end, closed);
        let same_thread = end.tid == self.begin.tid && closed.tid == end.tid;
        let old = self.old_generation(closed, block.kind);
        let exact = if self.by_time { worked_ms(&self.begin, end) } else { float(steps) };
        let cost = block_cost(&self.begin, end, closed, exact, block.thresholds, &old);
        if block.kind == BlockKind::Own && cost.fulls > 0 {
            // A collection that was put off frees more than the program's others.
            let is_usual = matches!(self.phase, AutoPhase::SetUp | AutoPhase::Watch);
            let is_known = matches!(self.own_full, Some(full) if full.is_near(float(closed.old)));
            if is_usual || !is_known {
                self.own_full = closed.full;
            }
        }
        if matches!(self.phase, AutoPhase::Explore(_) | AutoPhase::Hold(_)) {
            self.skipped_ns += cost.full_ns * float(steps) - cost.fulls_ns;
        }
        if block.is_compared() {
            let charged = match &self.phase {
                AutoPhase::Compare(comparison) => comparison.steps_as_first(block.kind, steps),
                AutoPhase::Hold(hold) => hold.steps_as_held(block.kind, steps),
                _ => steps,
            };
            self.put_off += cost.fulls_by_rule * float(charged);
        }
        self.count_debt(&block, closed);
        self.begin = *closed;
        if !same_thread {
            // CPU time of two threads says nothing.
            self.drop_pair();
        } else if block.is_compared() {
            self.compared[0] += steps;
            self.compared[1] += cost.fulls;
        }
        let has_changed = same_thread && self.awaits_full && self.has_changed(&cost);
        match &self.phase {
            AutoPhase::SetUp => self.phase = AutoPhase::Watch,
            _ if !same_thread || has_changed => {}
            AutoPhase::Watch => self.has_watched(&cost, closed, gauge),
            AutoPhase::Explore(_) => self.explored(block.kind, cost, steps, closed, gauge),
            AutoPhase::Compare(_) => self.has_compared(block.kind, cost),
            AutoPhase::Hold(_) => self.held(block.kind, cost, steps),
            AutoPhase::Stopped => return,
        }
        if !matches!(self.phase, AutoPhase::Stopped) {
            self.prepare(closed);
        }
    }

    /// While a full collection is awaited: whether it is another program by now. That one may never make a full
    /// collection.
    fn has_changed(&mut self, cost: &BlockCost) -> bool {
        let now = cost.allocations;
        let before = match self.watched {
            Some(before) if is_other(before, now) => before,
            _ => return false,
        };
        self.decide(AutoDecision::Changed { before, now });
        self.watch_again(false);
        true
    }

    fn note_longest(&mut self, end: &Figures, closed: &Figures) {
        let longest = match self.block.kind {
            BlockKind::Own => &mut self.longest_own_ns,
            BlockKind::Tried(_) => return,
            _ => &mut self.longest_held_ns,
        };
        for figures in [end, closed] {
            for (most, now) in longest.iter_mut().zip(figures.longest_ns) {
                *most = (*most).max(now);
            }
        }
    }

    /// Full collections reset the collector's count, and with it the collections that do not count.
    fn count_debt(&mut self, block: &Block, now: &Figures) {
        let middle = beyond(now.collections[1], self.begin.collections[1]);
        if now.collections[2] != self.fulls {
            self.fulls = now.collections[2];
            (self.debt, self.put_off) = (0, 0.0);
        } else if block.is_compared() {
            self.debt = self.debt.saturating_add(u32_or_most(middle));
        }
    }

    /// The old generation as it is while blocks of this kind run.
    fn old_generation(&self, figures: &Figures, kind: BlockKind) -> ChargedOld {
        let [steps, fulls] = self.compared.map(float);
        let asked = if steps > 0.0 { fulls / steps } else { 0.0 };
        let old = ChargedOld::of(figures, asked);
        match &self.phase {
            AutoPhase::Explore(_) if kind.is_own() => old.priced_as(self.own_full),
            AutoPhase::Hold(hold) => {
                let old = if kind.is_own() { old.priced_as(self.own_full) } else { old };
                hold.old_generation(old, figures, kind)
            }
            _ => old,
        }
    }

    /// Whether finding the setting has cost as much as it may.
    pub(super) fn is_over_budget(&self, more_ns: f64) -> bool {
        // The whole run, with its start-up, would be longer without a gain too.
        let run_ns = if let Some([_, now]) = self.cpu_ns { now } else { 0 };
        let spent_ns = self.spent_ns - self.skipped_ns.max(0.0);
        spent_ns.max(0.0) + more_ns > self.options.cost * float(run_ns)
    }

    // Blocks

    /// Begins the next block: the phase chooses it. Actions already in the queue come first.
    pub(super) fn prepare(&mut self, figures: &Figures) {
        // Steps after a full collection are slower: not the second block of a pair alone.
        let is_amid = match &self.phase {
            AutoPhase::Compare(comparison) => comparison.is_amid(),
            AutoPhase::Hold(hold) => hold.is_amid(),
            _ => false,
        };
        // Old garbage waits no longer than without a suspended old generation: it may hold device memory. The collector
        // makes the collection itself, within a step, as it would have. A collection at a step's end is no replacement
        // if data is found from the frame of a function that has returned (a heap in a closure took five times as
        // long). Rounds of named settings do not wait for it: the run is made for them.
        let is_due = self.put_off >= 1.0 && !is_amid;
        self.awaits_full = is_due && !matches!(self.phase, AutoPhase::Compare(_));
        let block = if self.awaits_full { self.resting_block() } else { self.next_block() };
        let is_compared = block.is_compared();
        if is_due && !self.awaits_full {
            self.collect_all();
        } else if is_compared && !self.is_clean {
            self.queue.push_back(Action::Collect(1));
            self.debt = self.debt.saturating_add(1);
        }
        let [first, second, third] = block.thresholds;
        let third = if is_compared {
            SUSPENDED
        } else if self.awaits_full {
            third
        } else {
            third.saturating_add(self.debt).min(SUSPENDED)
        };
        let thresholds = [first, second, third];
        if thresholds != self.in_place {
            self.queue.push_back(Action::SetThresholds(thresholds));
        }
        self.block = block;
        self.begin = *figures;
        self.moment = Moment::Preparing;
    }

    /// A block that is not compared.
    fn resting_block(&self) -> Block {
        let rest = |steps| Block { kind: BlockKind::Own, thresholds: self.own, steps };
        match &self.phase {
            AutoPhase::Explore(exploration) => rest(exploration.block),
            AutoPhase::Hold(hold) => hold.resting_block(self.own),
            _ => rest(WATCH),
        }
    }

    fn next_block(&mut self) -> Block {
        let own = self.own;
        let rest = |steps| Block { kind: BlockKind::Own, thresholds: own, steps };
        let is_over = self.is_over_budget(0.0);
        let watch = if self.options.compared.is_empty() { WATCH } else { SET_UP };
        match &mut self.phase {
            AutoPhase::Explore(exploration) if is_over => rest(exploration.block),
            AutoPhase::Explore(exploration) => exploration.next_block().unwrap_or(rest(watch)),
            AutoPhase::Compare(comparison) => {
                comparison.next_block(&mut self.coin).unwrap_or(rest(watch))
            }
            AutoPhase::Hold(hold) => hold.next_block(own, is_over, &mut self.coin),
            _ => rest(watch),
        }
    }

    pub(super) fn drop_pair(&mut self) {
        match &mut self.phase {
            AutoPhase::Hold(hold) => hold.drop_pair(),
            AutoPhase::Compare(comparison) => comparison.drop_round(),
            _ => {}
        }
    }

    /// Whether objects are frozen for it.
    #[cfg(test)]
    pub fn is_frozen(&self) -> bool {
        matches!(&self.phase, AutoPhase::Hold(hold) if hold.is_frozen())
    }

    pub(super) fn state(&self) -> AutoState {
        match &self.phase {
            AutoPhase::SetUp => AutoState::SettingUp,
            AutoPhase::Watch => AutoState::Watching,
            AutoPhase::Explore(_) => AutoState::Exploring,
            AutoPhase::Compare(_) => AutoState::Comparing,
            AutoPhase::Hold(hold) if hold.is_proving() => AutoState::Proving,
            AutoPhase::Hold(_) => AutoState::Holding,
            AutoPhase::Stopped => AutoState::Stopped,
        }
    }

    /// CPU time since the first step, in ns.
    pub(super) fn run_ns(&self) -> u64 {
        if let Some([first, now]) = self.cpu_ns { beyond(now, first) } else { 0 }
    }
}
