//! The settings: applied when due, held against the program, and given back.

use super::agent::{Agent, OLDEST, Stage};
use super::calls;
use super::calls::{MOST_LINES, line_of};
use super::sums::{Totals, forget_longest, totals};
use crate::apply::files::rss_bytes;
use crate::process_ring::now_ns;
use crate::python::collector_functions::{CollectCall, CollectorFunction, unwatch};
use crate::python::collector_state::tracked_objects;
use gctrace_settings::{AppliedSetting, CollectionSums, GcChange, UndoneSetting};

/// A freeze that was undone is repeated this often: each costs a full collection.
const MOST_FREEZES: u32 = 4;

impl Agent {
    pub(super) fn disables(&self) -> bool {
        self.active.iter().any(GcChange::disables)
    }

    /// Applies due settings. A freeze needs a collection first.
    pub(super) fn apply_due(&mut self) -> Option<CollectCall> {
        let options = self.options;
        for item in options.request.setting.items() {
            let is_active = self.active.iter().any(|change| change.is_like(&item.change));
            if is_active || self.report.steps < u64::from(item.step()) {
                continue;
            }
            let at_ns = now_ns();
            match &item.change {
                GcChange::Threshold(values) => {
                    self.set_thresholds(values);
                    self.begin_loading();
                }
                GcChange::Loading(_) => self.begin_loading(),
                GcChange::Disable | GcChange::Plan(_) => self.collector.disable(),
                GcChange::Freeze => return self.freeze(at_ns),
                // In the forks.
                GcChange::FreezeForks => {}
            }
            self.applied(item.change.clone(), at_ns);
        }
        None
    }

    fn set_thresholds(&mut self, values: &[u32]) {
        self.collector.set_thresholds(values);
        self.held = self.collector.thresholds();
    }

    /// Sets the first threshold that is wanted until the first step, if one is. Not in forks: most make none.
    fn begin_loading(&mut self) {
        let items = self.options.request.setting.items();
        let first = items.iter().find_map(|item| match item.change {
            GcChange::Loading(first) => Some(first),
            _ => None,
        });
        if let Some(first) = first
            && self.report.steps == 0
            && !self.report.forked
        {
            self.collector.set_thresholds(&[first]);
            self.is_loading = true;
        }
    }

    /// The thresholds after loading are the held ones, otherwise the program's own.
    fn end_loading(&mut self) {
        if std::mem::take(&mut self.is_loading) {
            let own = || calls::with(|calls| calls.thresholds.clone());
            if let Some(thresholds) = self.held.clone().or_else(own) {
                self.collector.set_thresholds(&thresholds);
            }
        }
    }

    /// A change is in effect since `at_ns`.
    fn applied(&mut self, change: GcChange, at_ns: u64) {
        if self.report.applied.len() < MOST_LINES {
            self.report.applied.push(AppliedSetting {
                setting: change.to_string(),
                step: self.report.steps,
                at_ns,
                took_ns: gctrace_units::duration_ns(at_ns, now_ns()),
            });
        }
        self.active.push(change);
        let all = self.options.request.setting.items();
        if self.active.len() == all.len() && self.report.after.is_none() {
            self.all_applied();
        }
    }

    /// From now on everything counts for the time after.
    fn all_applied(&mut self) {
        self.sum_up(now_ns(), totals());
        self.report.after = Some(CollectionSums::default());
        self.report.most_waiting = 0;
        forget_longest();
        self.measure_heap();
    }

    pub(super) fn measure_heap(&mut self) {
        self.report.rss_bytes_at_start = rss_bytes();
        self.report.tracked_objects_at_start = tracked_objects(self.api);
    }

    fn freeze(&mut self, at_ns: u64) -> Option<CollectCall> {
        let before = totals();
        self.stage = Stage::Freezing { at_ns, before };
        self.asked(OLDEST)
    }

    /// The collection before a freeze has run: it is part of no time.
    pub(super) fn frozen(&mut self, at_ns: u64, before: Totals) {
        self.collector.freeze();
        let during = totals().since(before);
        during.add_to(&mut self.report.freezing);
        self.since = self.since.plus(during);
        forget_longest();
        self.freezes += 1;
        calls::with(|calls| calls.is_unfrozen = false);
        self.report.frozen_objects = self.collector.frozen();
        if self.report.frozen_objects == Some(0) {
            self.warn("gc.freeze() has no effect in this build");
        }
        if !self.active.contains(&GcChange::Freeze) {
            self.applied(GcChange::Freeze, at_ns);
        }
    }

    /// Applies again all changes undone since the last step, and notes the lines that undid them. A freeze needs a
    /// collection first.
    pub(super) fn hold(&mut self) -> Option<CollectCall> {
        let mut refreezes = false;
        self.end_loading();
        // Nothing here looks at it.
        let active = std::mem::take(&mut self.active);
        for change in &active {
            let undone = match change {
                GcChange::Threshold(values) => {
                    let is_undone = self.collector.thresholds() != self.held;
                    if is_undone {
                        self.set_thresholds(values);
                    }
                    if is_undone { Some(CollectorFunction::SetThreshold) } else { None }
                }
                GcChange::Disable | GcChange::Plan(_) => {
                    let is_undone = self.collector.is_enabled() == Some(true);
                    if is_undone {
                        self.collector.disable();
                    }
                    if is_undone { Some(CollectorFunction::Enable) } else { None }
                }
                GcChange::Freeze => {
                    let is_undone = calls::with(|calls| std::mem::take(&mut calls.is_unfrozen));
                    if is_undone == Some(true) { Some(CollectorFunction::Unfreeze) } else { None }
                }
                GcChange::FreezeForks | GcChange::Loading(_) => None,
            };
            if let Some(function) = undone {
                self.note_undone(change.name(), function);
                refreezes |= *change == GcChange::Freeze;
            }
        }
        self.active = active;
        let is_enabled = calls::with(|calls| calls.is_enabled);
        if is_enabled == Some(false) && !self.disables() {
            self.warn("the program itself has disabled automatic collection");
        }
        if refreezes && self.freezes < MOST_FREEZES {
            return self.freeze(now_ns());
        }
        if refreezes {
            self.warn(&format!(
                "gc.unfreeze() undid {MOST_FREEZES} freezes: it was not repeated again"
            ));
        }
        None
    }

    fn note_undone(&mut self, setting: &str, function: CollectorFunction) {
        let by = calls::with(|calls| calls.last(function).map(str::to_owned)).flatten();
        let by = by.unwrap_or_else(|| "not by a function of the module gc".to_owned());
        let step = self.report.steps;
        let is_known = |line: &UndoneSetting| line.setting == setting && line.by == by;
        let line = line_of(&mut self.report.undone, is_known, || UndoneSetting {
            setting: setting.to_owned(),
            by: by.clone(),
            step,
            times: 0,
        });
        if let Some(line) = line {
            line.times += 1;
        }
    }

    /// Gives the program the settings that it wants, to apply others or none.
    pub(super) fn leave(&mut self) {
        let wanted = calls::with(|calls| (calls.thresholds.clone(), calls.is_enabled));
        if self.active.contains(&GcChange::Freeze) {
            self.collector.unfreeze();
            self.freezes = 0;
            calls::with(|calls| calls.is_unfrozen = false);
        }
        let was_loading = std::mem::take(&mut self.is_loading);
        if let Some((thresholds, is_enabled)) = wanted {
            if self.disables() && is_enabled {
                self.collector.enable();
            }
            let holds = |change: &GcChange| matches!(change, GcChange::Threshold(_));
            if was_loading || self.active.iter().any(holds) {
                self.collector.set_thresholds(&thresholds);
            }
        }
        self.held = None;
        self.active.clear();
        self.leave_search();
    }

    /// Gives the settings back for good.
    pub(super) fn give_back(&mut self) {
        self.sum_up(now_ns(), totals());
        self.report.later = Some(CollectionSums::default());
        self.leave();
        self.thaw_inherited();
        self.end_search();
        self.report.taken_back = true;
        unwatch(&calls::LISTENER);
    }

    /// A fault of this library: gives the settings back, and reports it.
    pub(super) fn fail(&mut self, why: String) {
        if self.report.failure.is_none() {
            self.report.failure = Some(why);
            self.read_own();
            self.leave();
            self.thaw_inherited();
            self.leave_ranks();
            unwatch(&calls::LISTENER);
            self.write_report();
        }
    }
}
