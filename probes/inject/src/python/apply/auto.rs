//! The search for a setting (`gctrace auto`): its controller is asked at each step, and what it wants is
//! done here.

use super::agent::{Agent, Stage};
use super::collector::CollectCall;
use super::report::is_incremental;
use super::search::{ProgramGauge, RunningSearch, Search};
use super::{calls, costs};
use crate::apply::auto::{Action, Controller, Thresholds};
use crate::process_ring::now_ns;
use crate::python::collector_state::CollectorState;
use crate::python::object::OwnedRef;
use gctrace_settings::{AutoOptions, AutoReport};

impl Agent {
    /// A search as requested; `None`: none is.
    pub(super) fn new_search(&self) -> Option<Search> {
        let options = self.options.request.auto.clone()?;
        Some(match self.start_search(options) {
            Ok(controller) => Search::Runs(Box::new(RunningSearch {
                controller,
                is_enabled: true,
                has_set: false,
                is_frozen: false,
            })),
            Err(why) => Search::Unsupported(why),
        })
    }

    fn start_search(&self, options: AutoOptions) -> Result<Controller, &'static str> {
        let api = self.api;
        if api.is_free_threaded() {
            return Err("free-threaded builds have no generations");
        }
        if is_incremental(api) {
            return Err("3.14.0 to 3.14.4 collect in increments");
        }
        if self.options.ranks > 1 {
            return Err(
                "ranks of a job would decide apart: run one rank with gctrace auto, and the \
                        job with gctrace apply --from",
            );
        }
        let gc = OwnedRef::import(api, c"gc");
        let state = gc.map(|gc| CollectorState::find(api, &gc, None));
        let state = state.filter(|state| state.long_lived().is_some());
        let state = state.ok_or("the state of this CPython's collector is not as it is known")?;
        let own = calls::with(|calls| calls.thresholds.clone()).unwrap_or_default();
        let own = Thresholds::try_from(own).map_err(|_| "this CPython has other thresholds")?;
        costs::begin(Some(state));
        Ok(Controller::new(options, own, now_ns()))
    }

    /// A step has ended. Returns a collection to be made, after which [`Agent::search_collected`]
    /// follows.
    pub(super) fn search_stepped(&mut self) -> Option<CollectCall> {
        let Some(Search::Runs(search)) = &mut self.search else { return None };
        let mut gauge = ProgramGauge { collector: &self.collector, filters: self.options.filters };
        let wants = |calls: &mut calls::ProgramCalls| {
            let unfrozen = std::mem::take(&mut calls.is_unfrozen);
            (calls.is_enabled, unfrozen)
        };
        let (is_enabled, is_unfrozen) = calls::with(wants)?;
        let was_enabled = std::mem::replace(&mut search.is_enabled, is_enabled);
        let has_set = std::mem::take(&mut search.has_set);
        let controller = &mut search.controller;
        let action = if is_enabled != was_enabled {
            controller.program_switched(is_enabled, &mut gauge)
        } else if is_unfrozen && search.is_frozen {
            search.is_frozen = false;
            controller.program_unfroze(&mut gauge)
        } else if has_set {
            let set = self.collector.thresholds().and_then(|set| set.try_into().ok());
            set.and_then(|set| controller.program_set(set, &mut gauge))
        } else {
            controller.step(&mut gauge)
        };
        self.carry_out(action)
    }

    /// The collection that it wanted has been made.
    pub(super) fn search_collected(&mut self) -> Option<CollectCall> {
        let Some(Search::Runs(search)) = &mut self.search else { return None };
        let mut gauge = ProgramGauge { collector: &self.collector, filters: self.options.filters };
        let action = search.controller.next(&mut gauge);
        self.carry_out(action)
    }

    fn carry_out(&mut self, mut action: Option<Action>) -> Option<CollectCall> {
        while let Some(next) = action {
            if let Action::Collect(generation) = next {
                self.stage = Stage::Searching;
                if let Some(call) = self.asked(i64::from(generation)) {
                    return Some(call);
                }
            }
            let Some(Search::Runs(search)) = &mut self.search else { return None };
            match next {
                Action::SetThresholds(values) => self.collector.set_thresholds(&values),
                Action::Freeze => {
                    self.collector.freeze();
                    search.is_frozen = true;
                }
                Action::Unfreeze => {
                    self.collector.unfreeze();
                    search.is_frozen = false;
                }
                Action::Collect(_) => {}
            }
            let mut gauge =
                ProgramGauge { collector: &self.collector, filters: self.options.filters };
            action = search.controller.next(&mut gauge);
        }
        None
    }

    /// Gives the program its thresholds and its objects.
    pub(super) fn leave_search(&mut self) {
        let Some(Search::Runs(search)) = &mut self.search else { return };
        if let Some(own) = search.controller.to_give_back() {
            self.collector.set_thresholds(&own);
        }
        if std::mem::take(&mut search.is_frozen) {
            self.collector.unfreeze();
            calls::with(|calls| calls.is_unfrozen = false);
        }
    }

    /// In a forked child, in which frozen objects stay so, that their pages remain shared.
    pub(super) fn forget_frozen(&mut self) {
        if let Some(Search::Runs(search)) = &mut self.search {
            search.is_frozen = false;
        }
    }

    /// The user takes the settings back.
    pub(super) fn end_search(&mut self) {
        if let Some(Search::Runs(search)) = &mut self.search {
            search.controller.take_back();
        }
    }

    /// What was found by now.
    pub(super) fn search_report(&self) -> Option<AutoReport> {
        Some(match self.search.as_ref()? {
            Search::Unsupported(why) => {
                AutoReport { unsupported: Some((*why).to_owned()), ..AutoReport::default() }
            }
            Search::Runs(search) => search.controller.report(self.report.agent_ns),
        })
    }
}
