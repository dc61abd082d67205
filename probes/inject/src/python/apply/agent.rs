//! Applies settings at steps, holds them, and sums up their effects.
//!
//! Called by `super` with the interpreter's lock and its own lock held. No Python code runs meanwhile: the agent
//! returns a [`CollectCall`] for a collection, and goes on after the call.

use super::calls::MOST_LINES;
use super::search::SettingSearch;
use super::sums::{
    SettlingSteps, Totals, WorkBegin, forget_longest, longest_ns, take_own_ns, totals,
};
use super::{calls, quiet};
use crate::apply::files::ReportFolder;
use crate::apply::marks::{MarkCounter, Marked};
use crate::apply::{ApplyOptions, marks};
use crate::confined::is_confined;
use crate::process_ring::now_ns;
use crate::python::api::PythonApi;
use crate::python::collector_functions::{CollectCall, Collector};
use crate::python::collector_state::tracked_objects;
use gctrace_ring::{OwnerMark, StepMarker};
use gctrace_settings::{AppliedProcess, CollectionSums, GcChange};
use gctrace_units::{add_to, duration_ns};

/// Between two reports on the way, in ns.
const REPORT_EVERY_NS: u64 = 1_000_000_000;
/// Between two looks for a request to take the settings back, in ns.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// The oldest generation.
pub(super) const OLDEST: i64 = 2;

/// The agent of one process.
pub(super) struct Agent {
    pub(super) api: &'static PythonApi,
    pub(super) collector: Collector,
    pub(super) options: &'static ApplyOptions,
    /// The report so far, up to date except for values that must be read from the process.
    pub(super) report: AppliedProcess,
    pub(super) folder: Option<ReportFolder>,
    /// `None`: settings are applied, without a search.
    pub(super) search: Option<SettingSearch>,
    /// Null in a forked child.
    mark: OwnerMark,
    pub(super) marks: MarkCounter,
    /// Changes that are in effect.
    pub(super) active: Vec<GcChange>,
    /// The thresholds that are to hold, as the collector reports them.
    pub(super) held: Option<Vec<u32>>,
    /// No step has been made, and there is a threshold for that time.
    pub(super) is_loading: bool,
    pub(super) stage: Stage,
    /// Where the sums of the current time start.
    pub(super) since: Totals,
    since_ns: u64,
    settling: SettlingSteps,
    /// Steps that were counted alone, and that the search does not know of yet.
    quiet_steps: u64,
    pub(super) freezes: u32,
    /// In a forked child: the objects that it inherited and that are frozen, nearly; `None`: none are.
    pub(super) inherited_frozen: Option<u64>,
    /// When it began to work, at this mark or after a collection.
    pub(super) began: WorkBegin,
    reported_ns: u64,
    looked_ns: u64,
    /// The interpreter's end was reported.
    has_ended: bool,
}

/// The work that a requested collection is part of.
pub(super) enum Stage {
    /// It asked for none.
    Idle,
    /// A freeze, at this time and with these sums before.
    Freezing { at_ns: u64, before: Totals },
    /// Settings were taken back, in a mark of a step or not.
    GivingBack { in_mark: bool },
    /// The search for a setting.
    Searching,
    /// A plan.
    Planned { before: Totals },
}

impl Agent {
    /// `None`: there is no memory for it.
    pub(super) fn new(
        api: &'static PythonApi,
        collector: Collector,
        options: &'static ApplyOptions,
    ) -> Option<Self> {
        let mut agent = Self {
            api,
            collector,
            options,
            report: AppliedProcess::default(),
            folder: None,
            search: None,
            mark: OwnerMark::new()?,
            marks: MarkCounter::new(options.counts_function),
            active: Vec::new(),
            held: None,
            is_loading: false,
            stage: Stage::Idle,
            since: Totals::default(),
            since_ns: 0,
            settling: SettlingSteps::default(),
            quiet_steps: 0,
            freezes: 0,
            inherited_frozen: None,
            began: WorkBegin::default(),
            reported_ns: 0,
            looked_ns: 0,
            has_ended: false,
        };
        agent.reset(false);
        if let Some(folder) = &mut agent.folder {
            // Counted now, not at its first report: it may fork many others before.
            folder.is_open();
        }
        agent.warn_of_build();
        agent.apply_due();
        Some(agent)
    }

    /// The state of a process that has just begun.
    fn reset(&mut self, is_forked: bool) {
        let (now, options) = (now_ns(), self.options);
        self.report = self.new_report(now);
        let folder = options.folder.as_deref();
        self.folder = folder.map(|path| ReportFolder::new(path, options.filters));
        self.marks = MarkCounter::new(options.counts_function);
        self.search = self.new_search(is_forked);
        self.stage = Stage::Idle;
        self.settling = SettlingSteps::default();
        quiet::take();
        self.quiet_steps = 0;
        self.freezes = 0;
        (self.since, self.since_ns) = (totals(), now);
        (self.reported_ns, self.looked_ns) = (now, now);
        self.has_ended = false;
        forget_longest();
        take_own_ns();
    }

    /// Whether it is this process's, not its parent's from before the fork.
    pub(super) fn is_mine(&self) -> bool {
        self.mark.is_mine()
    }

    /// In a forked child: applies nothing at steps that it does not have, and reports for itself.
    /// Frozen objects stay frozen, so that their pages remain shared. `None`: the child is left alone.
    pub(super) fn forked(&mut self) -> Option<()> {
        self.read_own();
        calls::with(calls::ProgramCalls::forget);
        self.active.retain(|change| *change != GcChange::Freeze);
        self.forget_frozen();
        self.leave();
        if is_confined(self.options.filters) {
            return None;
        }
        self.mark = OwnerMark::new()?;
        let of_parent = std::mem::take(&mut self.report);
        self.reset(true);
        let report = &mut self.report;
        report.forked = true;
        report.warnings = of_parent.warnings;
        report.failure = of_parent.failure;
        report.taken_back = of_parent.taken_back;
        report.later = of_parent.later.map(|_| CollectionSums::default());
        if report.failure.is_none() && !report.taken_back {
            self.apply_due();
            self.freeze_inherited();
        }
        Some(())
    }

    /// Reads the program's current wishes: it may have set thresholds, and they are in effect then.
    pub(super) fn read_own(&mut self) {
        let has_set = calls::with(|calls| std::mem::take(&mut calls.has_set_thresholds));
        if has_set == Some(true)
            && let Some(thresholds) = self.collector.thresholds()
        {
            calls::with(|calls| calls.thresholds = thresholds);
            if let Some(SettingSearch::Runs(search)) = &mut self.search {
                search.has_set = true;
            }
        }
    }

    pub(super) fn warn(&mut self, text: &str) {
        let warnings = &mut self.report.warnings;
        if warnings.len() < MOST_LINES && !warnings.iter().any(|known| known == text) {
            warnings.push(text.to_owned());
        }
    }

    // Sums

    /// Adds the steps that were counted alone.
    pub(super) fn take_quiet(&mut self) {
        let steps = quiet::take();
        if steps > 0 {
            self.marks.add(steps);
            self.report.steps = self.marks.steps();
            self.sums().steps += steps;
            self.quiet_steps += steps;
        }
    }

    fn sums(&mut self) -> &mut CollectionSums {
        let AppliedProcess { later, after, before, .. } = &mut self.report;
        later.as_mut().or(after.as_mut()).unwrap_or(before)
    }

    pub(super) fn sum_up(&mut self, now: u64, totals: Totals) {
        let (since, since_ns) = (self.since, self.since_ns);
        let sums = self.sums();
        totals.since(since).add_to(sums);
        sums.duration_ns += duration_ns(since_ns, now);
        sums.longest_ns = sums.longest_ns.max(longest_ns());
        add_to(&mut self.report.agent_ns, take_own_ns());
        (self.since, self.since_ns) = (totals, now);
    }

    // Steps

    /// A mark of a step. Returns a collection to be made; [`Agent::collected`] follows it.
    pub(super) fn marked(&mut self, marker: StepMarker) -> Option<CollectCall> {
        if !matches!(self.stage, Stage::Idle) {
            // Another thread, or code that the collection runs.
            return None;
        }
        self.take_quiet();
        self.read_own();
        // Read together: the work here may start a collection.
        let totals = totals();
        self.began = WorkBegin::now();
        let now = self.began.wall_ns;
        let marked = self.marks.count(marker);
        if marked == Marked::Nothing {
            return None;
        }
        let marker_name = self.marks.marker().map(marks::name);
        if self.report.marker.as_deref() != marker_name {
            self.report.marker = marker_name.map(str::to_owned);
        }
        if let Marked::StepAnew(before) = marked {
            self.warn(&format!(
                "steps were counted by {} until the first by {}",
                marks::name(before),
                marks::name(marker)
            ));
            (self.settling, self.report.settled) = (SettlingSteps::default(), None);
            self.began.enters_kernel();
            self.leave();
            self.search = self.new_search(self.report.forked);
            self.report.after = None;
        }
        if self.goes_by_time() {
            self.warn("intervals of time were compared until the first step");
            self.leave();
            self.search = self.new_search(self.report.forked);
        }
        (self.has_ended, self.report.ended) = (false, false);
        self.report.steps = self.marks.steps();
        let steps = self.report.steps;
        calls::with(|calls| calls.steps = steps);
        self.sum_up(now, totals);
        match self.report.startup {
            None => self.begin_steps(),
            Some(_) => self.sums().steps += 1,
        }
        if self.search.is_none() {
            self.report.settled = self.settling.after(steps, now, self.report.agent_ns, totals);
        }
        self.step_ended()
    }

    /// The collection that was returned has been made.
    pub(super) fn collected(&mut self) -> Option<CollectCall> {
        self.read_own();
        self.began = WorkBegin::now();
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => None,
            Stage::Freezing { at_ns, before } => {
                self.frozen(at_ns, before);
                self.step_applied()
            }
            Stage::GivingBack { in_mark } => {
                self.write_report();
                if in_mark { self.step_begins() } else { None }
            }
            Stage::Searching => self.search_collected().or_else(|| self.step_applied()),
            Stage::Planned { before } => {
                totals().since(before).add_to(&mut self.report.planned);
                None
            }
        }
    }

    /// A collection to be made now.
    pub(super) fn asked(&mut self, generation: i64) -> Option<CollectCall> {
        self.report.agent_ns += self.began.cpu_ns_by(now_ns());
        let call = self.collector.collection(generation);
        if call.is_none() {
            self.stage = Stage::Idle;
        }
        call
    }

    /// Everything before the first mark is start-up.
    fn begin_steps(&mut self) {
        if self.report.after.is_none() {
            self.report.startup = Some(std::mem::take(&mut self.report.before));
        } else {
            self.report.startup = self.report.after.replace(CollectionSums::default());
            self.measure_heap();
        }
        forget_longest();
        self.leave_reserved_memory();
    }

    fn step_ended(&mut self) -> Option<CollectCall> {
        if !self.report.taken_back {
            if !self.active.is_empty() {
                let waiting = self.collector.waiting().unwrap_or(0);
                self.report.most_waiting = self.report.most_waiting.max(waiting);
                if let Some(call) = self.hold() {
                    return Some(call);
                }
            }
            let steps = 1 + std::mem::take(&mut self.quiet_steps);
            if let Some(call) = self.search_stepped(steps) {
                return Some(call);
            }
        }
        self.step_applied()
    }

    /// Applies due changes, then ends the work between two steps.
    fn step_applied(&mut self) -> Option<CollectCall> {
        if !self.report.taken_back
            && let Some(call) = self.apply_due()
        {
            return Some(call);
        }
        self.look(true).or_else(|| self.step_begins())
    }

    fn step_begins(&mut self) -> Option<CollectCall> {
        let (at_ns, totals) = (now_ns(), totals());
        self.report.agent_ns += self.began.cpu_ns_by(at_ns);
        if let Some(marker) = self.marks.marker() {
            quiet::begin(self.steps_ahead(), marker, at_ns);
        }
        let plan = self.active.iter().find_map(|change| match change {
            GcChange::Plan(plan) => Some(*plan),
            _ => None,
        })?;
        let is_due = |every: u32| self.report.steps.checked_rem(u64::from(every)) == Some(0);
        let generation = match (is_due(plan.full()), is_due(plan.every)) {
            _ if self.report.steps == 0 => return None,
            (true, _) => OLDEST,
            (false, true) => 1,
            (false, false) => return None,
        };
        self.stage = Stage::Planned { before: totals };
        self.began = WorkBegin::now();
        self.asked(generation)
    }

    // From time to time

    /// Does periodic work, between steps or not.
    pub(super) fn look(&mut self, in_mark: bool) -> Option<CollectCall> {
        let now = now_ns();
        if duration_ns(self.looked_ns, now) > LOOK_EVERY_NS
            && let Some(folder) = self.folder.as_ref()
        {
            self.looked_ns = now;
            self.began.enters_kernel();
            if folder.wants_back() && !self.report.taken_back {
                self.give_back();
                self.stage = Stage::GivingBack { in_mark };
                return self.asked(OLDEST);
            }
        }
        if duration_ns(self.reported_ns, now) > REPORT_EVERY_NS {
            self.began.enters_kernel();
            self.write_report();
        }
        None
    }

    /// The same outside of steps, unless a mark is at it.
    pub(super) fn idle(&mut self) -> Option<CollectCall> {
        if !matches!(self.stage, Stage::Idle) {
            return None;
        }
        self.read_own();
        self.began = WorkBegin::now();
        self.look(false).or_else(|| self.search_by_time())
    }

    pub(super) fn write_report(&mut self) {
        self.reported_ns = now_ns();
        self.take_quiet();
        if self.folder.as_mut().is_some_and(ReportFolder::is_open) {
            self.sum_up(self.reported_ns, totals());
            self.update_report(self.reported_ns);
            if let Some(folder) = &mut self.folder {
                folder.report(&self.report);
            }
        }
    }

    /// The interpreter ends, or the process. `counts_objects`: this thread has the interpreter's lock.
    pub(super) fn end(&mut self, counts_objects: bool) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        self.report.ended = true;
        self.leave_ranks();
        if counts_objects {
            self.read_own();
            if self.report.frozen_objects.is_some() {
                self.report.frozen_objects_at_end = self.collector.frozen();
            }
            if self.report.tracked_objects_at_start.is_some() {
                self.report.tracked_objects_at_end = tracked_objects(self.api);
            }
        }
        self.sum_up(now_ns(), totals());
        self.write_report();
    }
}
