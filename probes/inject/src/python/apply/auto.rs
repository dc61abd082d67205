//! The search for a setting (`gctrace auto`): its controller is asked at each step, and its orders are carried out
//! here.

use super::agent::{Agent, Stage};
use super::report::is_incremental;
use super::search::{Decider, ProgramGauge, RankLink, RankNews, RunningSearch, SettingSearch};
use super::{calls, costs, sums};
use crate::confined::is_noticed;
use crate::cupti;
use crate::process_ring::now_ns;
use crate::python::collector_functions::CollectCall;
use crate::python::collector_state::CollectorState;
use crate::python::object::OwnedRef;
use gctrace_settings::{AutoOptions, AutoReport, GcChange};
use gctrace_tuner::{Action, Controller, Follower, Thresholds};
use gctrace_units::{beyond, duration_ns, sum};
use std::ffi::CStr;

impl Agent {
    /// A search as requested; `None`: no search was requested.
    pub(super) fn new_search(&mut self, is_forked: bool) -> Option<SettingSearch> {
        let options = self.options.request.auto.clone()?;
        Some(match self.start_search(&options, is_forked) {
            Ok(search) => SettingSearch::Runs(Box::new(search)),
            Err(why) => SettingSearch::Unsupported(why),
        })
    }

    fn start_search(
        &mut self,
        options: &AutoOptions,
        is_forked: bool,
    ) -> Result<RunningSearch, &'static str> {
        let api = self.api;
        if api.is_free_threaded() {
            return Err("free-threaded builds have no generations");
        }
        if is_incremental(api) {
            return Err("3.14.0 to 3.14.4 collect in increments");
        }
        let ranks = self.options.ranks;
        if ranks > 1 {
            if is_forked {
                return Err("it is the fork of a rank");
            }
            if self.options.local_ranks != Some(ranks) {
                return Err(
                    "ranks on several hosts, or where LOCAL_WORLD_SIZE does not say so, would decide \
                     apart: run the job on one host with gctrace auto, then everywhere with gctrace \
                     apply --from",
                );
            }
        }
        let gc = OwnedRef::import(api, c"gc");
        let state = gc.map(|gc| CollectorState::find(api, &gc, None));
        let state = state.filter(|state| state.long_lived().is_some());
        let state = state.ok_or("the state of this CPython's collector is not as it is known")?;
        let own = calls::with(|calls| calls.thresholds.clone()).unwrap_or_default();
        let own = Thresholds::try_from(own).map_err(|_| "this CPython has other thresholds")?;
        if options.compared.iter().any(|setting| setting.thresholds(own).is_none()) {
            return Err("settings other than thresholds are compared in whole runs");
        }
        let link = match (ranks > 1, self.options.rank, &mut self.folder) {
            (false, ..) => None,
            (true, Some(rank), Some(folder)) if rank < ranks => {
                Some(RankLink::new(rank, ranks, folder))
            }
            _ => return Err("its rank is unknown, or ranks have no folder of gctrace in common"),
        };
        costs::begin(Some(state));
        sums::idle_each(options.wait_ns());
        let decider = if link.as_ref().is_none_or(RankLink::leads) {
            Decider::Controller(Box::new(Controller::new(options.clone(), own, now_ns())))
        } else {
            Decider::Follower(Box::new(Follower::new(options, own)))
        };
        Ok(RunningSearch {
            decider,
            link,
            is_enabled: true,
            has_set: false,
            is_frozen: false,
            worked_ns: None,
        })
    }

    /// Ends the search, before anything is held, if waiting garbage might fill a GPU unseen: JAX and TensorFlow reserve
    /// a GPU's memory in advance, and garbage holds parts of it.
    pub(super) fn leave_reserved_memory(&mut self) {
        const RESERVES: [&CStr; 2] = [c"jaxlib", c"tensorflow"];
        let api = self.api;
        // SAFETY: the lock is held; the interpreter has its modules.
        let modules = unsafe { OwnedRef::share(api, (api.PyImport_GetModuleDict)()) };
        let is_imported = |name: &&CStr| {
            let Some(name) = OwnedRef::interned(api, name) else { return false };
            modules.value(&name).is_some()
        };
        let seeks = matches!(&self.options.request.auto, Some(auto) if auto.compared.is_empty());
        if seeks
            && matches!(self.search, Some(SettingSearch::Runs(_)))
            && RESERVES.iter().any(is_imported)
            && cupti::driver().is_some()
        {
            self.leave_search();
            self.search = Some(SettingSearch::Unsupported(
                "JAX and TensorFlow reserve a GPU's memory in advance, so that garbage could fill it unseen: \
                 gctrace tune compares settings that you name",
            ));
        }
    }

    /// Whether the search ends because the program has forbidden itself system calls. The memory and time that its
    /// settings take can no longer be measured, and the settings are given back.
    fn is_search_confined(&mut self) -> bool {
        let is_over = is_noticed() && matches!(self.search, Some(SettingSearch::Runs(_)));
        if is_over {
            self.leave_search();
            self.search =
                Some(SettingSearch::Unsupported("the program confines itself by a seccomp filter"));
        }
        is_over
    }

    /// Whether intervals of time are compared.
    pub(super) fn goes_by_time(&self) -> bool {
        matches!(&self.search, Some(SettingSearch::Runs(search)) if search.worked_ns.is_some())
    }

    /// A look in a process without known steps: it has no steps, or none were found. Returns a collection to be made,
    /// as [`Agent::search_stepped`].
    pub(super) fn search_by_time(&mut self) -> Option<CollectCall> {
        const MS: u64 = 1_000_000;
        /// Between two looks: ends of blocks need not be more exact.
        const EACH_NS: u64 = 20 * MS;
        if self.is_search_confined() {
            return None;
        }
        let wait_ns = self.options.request.auto.as_ref()?.wait_ns();
        let is_late = duration_ns(self.report.start_ns, self.began.wall_ns) >= wait_ns;
        let is_given_back = self.report.taken_back || self.report.failure.is_some();
        let Some(SettingSearch::Runs(search)) = &mut self.search else { return None };
        if self.marks.marker().is_some() || !is_late || is_given_back {
            return None;
        }
        // Ranks are together in steps only.
        let (Decider::Controller(controller), None) = (&mut search.decider, &search.link) else {
            return None;
        };
        let worked_ns = costs::worked_ns();
        let Some(before_ns) = search.worked_ns else {
            controller.go_by_time();
            search.worked_ns = Some(worked_ns);
            sums::idle_each(EACH_NS);
            self.leave_reserved_memory();
            return None;
        };
        let steps = beyond(worked_ns, before_ns) / MS;
        if steps == 0 {
            return None;
        }
        search.worked_ns = Some(before_ns + steps * MS);
        let call = self.search_stepped(steps);
        if call.is_none() {
            self.report.agent_ns += self.began.cpu_ns_by(now_ns());
        }
        call
    }

    /// Steps have ended: one, or some by time. Returns a collection to be made; [`Agent::search_collected`] follows it.
    pub(super) fn search_stepped(&mut self, steps: u64) -> Option<CollectCall> {
        if self.is_search_confined() {
            return None;
        }
        let Some(SettingSearch::Runs(search)) = &mut self.search else { return None };
        let mut gauge = ProgramGauge {
            collector: &self.collector,
            filters: self.options.filters,
            by_time: search.worked_ns.is_some(),
            began: &mut self.began,
        };
        let wants = |calls: &mut calls::ProgramCalls| {
            let unfrozen = std::mem::take(&mut calls.is_unfrozen);
            (calls.is_enabled, unfrozen)
        };
        let (is_enabled, is_unfrozen) = calls::with(wants)?;
        let was_enabled = std::mem::replace(&mut search.is_enabled, is_enabled);
        let has_set = std::mem::take(&mut search.has_set);
        let set = || Thresholds::try_from(self.collector.thresholds()?).ok();
        let is_unfrozen = is_unfrozen && std::mem::take(&mut search.is_frozen);
        let news = match (&mut search.link, &self.folder) {
            (Some(link), Some(folder)) => link.look(folder, gauge.began),
            _ => RankNews::Nothing,
        };
        let action = match &mut search.decider {
            Decider::Controller(controller) => match news {
                RankNews::Waiting => None,
                RankNews::Alarm => controller.rank_alarmed(&mut gauge),
                _ if is_enabled != was_enabled => {
                    controller.program_switched(is_enabled, &mut gauge)
                }
                _ if is_unfrozen => controller.program_unfroze(&mut gauge),
                _ if has_set => set().and_then(|set| controller.program_set(set, &mut gauge)),
                _ => controller.step(steps, &mut gauge),
            },
            Decider::Follower(follower) => {
                if is_unfrozen {
                    follower.program_unfroze();
                }
                match (has_set, news) {
                    (true, _) => set().and_then(|set| follower.program_set(set, &mut gauge)),
                    (false, RankNews::Orders(orders)) => {
                        follower.step(steps, Some(orders), &mut gauge)
                    }
                    (false, _) => follower.step(steps, None, &mut gauge),
                }
            }
        };
        self.carry_out(action)
    }

    /// Number of steps from now on that need no work, unless something happens. Without a search, none: settings are
    /// held at each step.
    pub(super) fn steps_ahead(&self) -> u64 {
        let is_alone = self.options.request.setting.items().is_empty();
        match &self.search {
            Some(SettingSearch::Runs(search)) if !self.report.taken_back && is_alone => {
                search.decider.steps_ahead()
            }
            _ => 0,
        }
    }

    /// The collection that it wanted has been made.
    pub(super) fn search_collected(&mut self) -> Option<CollectCall> {
        if self.is_search_confined() {
            return None;
        }
        let Some(SettingSearch::Runs(search)) = &mut self.search else { return None };
        let mut gauge = ProgramGauge {
            collector: &self.collector,
            filters: self.options.filters,
            by_time: search.worked_ns.is_some(),
            began: &mut self.began,
        };
        let action = search.decider.next(&mut gauge);
        self.carry_out(action)
    }

    fn carry_out(&mut self, mut action: Option<Action>) -> Option<CollectCall> {
        while let Some(next) = action {
            if let Some(SettingSearch::Runs(search)) = &mut self.search
                && let (Decider::Controller(controller), Some(link)) =
                    (&search.decider, &mut search.link)
            {
                link.note(next, controller.own());
            }
            if let Action::Collect(generation) = next {
                // The others are to collect at the same time.
                self.tell_ranks();
                self.stage = Stage::Searching;
                if let Some(call) = self.asked(i64::from(generation)) {
                    return Some(call);
                }
            }
            let Some(SettingSearch::Runs(search)) = &mut self.search else { return None };
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
            let mut gauge = ProgramGauge {
                collector: &self.collector,
                filters: self.options.filters,
                by_time: search.worked_ns.is_some(),
                began: &mut self.began,
            };
            action = search.decider.next(&mut gauge);
        }
        self.tell_ranks();
        None
    }

    fn tell_ranks(&mut self) {
        if let Some(SettingSearch::Runs(search)) = &mut self.search
            && let (Some(link), Some(folder)) = (&mut search.link, &mut self.folder)
        {
            match &mut search.decider {
                Decider::Controller(_) => link.publish(folder),
                Decider::Follower(follower) => {
                    if follower.takes_alarm() {
                        RankLink::raise_alarm(folder);
                    }
                }
            }
        }
    }

    /// The process ends, or its agent: nothing is in place any more for the other ranks.
    pub(super) fn leave_ranks(&mut self) {
        if let Some(SettingSearch::Runs(search)) = &mut self.search
            && let (Some(link), Some(folder)) = (&mut search.link, &mut self.folder)
        {
            link.end(folder);
        }
    }

    /// Gives the program its thresholds and its objects.
    pub(super) fn leave_search(&mut self) {
        let Some(SettingSearch::Runs(search)) = &mut self.search else { return };
        if let Some(own) = search.decider.to_give_back() {
            self.collector.set_thresholds(&own);
        }
        if std::mem::take(&mut search.is_frozen) {
            self.collector.unfreeze();
            calls::with(|calls| calls.is_unfrozen = false);
        }
    }

    /// In a forked child. Frozen objects stay frozen there, so that their pages remain shared.
    pub(super) fn forget_frozen(&mut self) {
        if let Some(SettingSearch::Runs(search)) = &mut self.search {
            search.is_frozen = false;
        }
    }

    /// In a forked child: its collections do not traverse inherited objects. A traversal would write to each of their
    /// pages; without it they stay shared with the parent. Only lists are joined: no object is touched.
    pub(super) fn freeze_inherited(&mut self) {
        /// A full collection of fewer takes less than 10 ms.
        const FEWEST: u64 = 100_000;
        let api = self.api;
        let request = &self.options.request;
        let freezes = request.auto.is_some() || request.setting.has(&GcChange::FreezeForks);
        if !freezes || api.is_free_threaded() || is_incremental(api) {
            return;
        }
        let Some(gc) = OwnedRef::import(api, c"gc") else { return };
        let old = CollectorState::find(api, &gc, None).long_lived();
        let inherited = if let Some((left, since)) = old { sum([left, since]) } else { 0 };
        if inherited >= FEWEST && calls::with(|calls| calls.is_enabled) == Some(true) {
            self.collector.freeze();
            self.inherited_frozen = Some(inherited);
        }
    }

    pub(super) fn thaw_inherited(&mut self) {
        if self.inherited_frozen.take().is_some() {
            self.collector.unfreeze();
            calls::with(|calls| calls.is_unfrozen = false);
        }
    }

    /// The user takes the settings back.
    pub(super) fn end_search(&mut self) {
        if let Some(SettingSearch::Runs(search)) = &mut self.search {
            match &mut search.decider {
                Decider::Controller(controller) => controller.take_back(),
                Decider::Follower(follower) => follower.take_back(),
            }
        }
    }

    /// The search's results so far.
    pub(super) fn search_report(&self) -> Option<AutoReport> {
        let found = match self.search.as_ref()? {
            SettingSearch::Unsupported(why) => {
                AutoReport { unsupported: Some((*why).to_owned()), ..AutoReport::default() }
            }
            SettingSearch::Runs(search) => match &search.decider {
                Decider::Controller(controller) => AutoReport {
                    unsupported: search.link.as_ref().and_then(RankLink::waits_for),
                    followers: search.link.as_ref().map_or(0, RankLink::followers),
                    ..controller.report(self.report.agent_ns)
                },
                Decider::Follower(follower) => follower.report(),
            },
        };
        Some(AutoReport { inherited_frozen: self.inherited_frozen, ..found })
    }
}
