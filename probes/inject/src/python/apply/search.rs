//! The search for a setting in one process: its state, the program as the controller asks for it, and the
//! other ranks.

use super::costs;
use super::sums::WorkBegin;
use crate::apply::files::{ReportFolder, rss_bytes};
use crate::apply::memory::{device_memory, headroom_bytes, malloc_use};
use crate::confined::is_confined;
use crate::process_ring::now_ns;
use crate::python::collector_functions::Collector;
use gctrace_tuner::{
    Action, Controller, DeviceMemory, Figures, Follower, Gauge, RankOrders, Thresholds,
};

/// The search in one process.
pub(super) enum SettingSearch {
    /// No search is possible, and why.
    Unsupported(&'static str),
    Runs(Box<RunningSearch>),
}

pub(super) struct RunningSearch {
    pub(super) decider: Decider,
    /// `None`: there is no other rank.
    pub(super) link: Option<RankLink>,
    /// The program's last wish.
    pub(super) is_enabled: bool,
    /// The program has set thresholds since the last step.
    pub(super) has_set: bool,
    /// Objects are frozen for it.
    pub(super) is_frozen: bool,
    /// No step is known, and intervals of time are compared: work by the last look, in ns.
    pub(super) worked_ns: Option<u64>,
}

/// Who decides.
pub(super) enum Decider {
    /// This process.
    Controller(Box<Controller>),
    /// Rank 0.
    Follower(Box<Follower>),
}

impl Decider {
    pub(super) fn next(&mut self, gauge: &mut dyn Gauge) -> Option<Action> {
        match self {
            Self::Controller(controller) => controller.next(gauge),
            Self::Follower(follower) => follower.next(gauge),
        }
    }

    /// Number of steps from now on that need no decision, unless something happens.
    pub(super) fn steps_ahead(&self) -> u64 {
        match self {
            Self::Controller(controller) => controller.steps_ahead(),
            Self::Follower(_) => u64::MAX,
        }
    }

    pub(super) fn to_give_back(&self) -> Option<Thresholds> {
        match self {
            Self::Controller(controller) => controller.to_give_back(),
            Self::Follower(follower) => follower.to_give_back(),
        }
    }
}

/// The orders that rank 0 has in place.
const ORDERS_FILE: &str = "ranks.orders";
/// A rank has hardly any memory left.
const ALARM_FILE: &str = "ranks.alarm";
/// The longest orders that are read, in bytes: they have a hundred.
const MOST_ORDERS: usize = 512;
/// Between two looks of a rank that follows, in ns: a look takes some microseconds.
const FOLLOW_EVERY_NS: u64 = 2_000_000;
/// Between two looks of rank 0, and at whether it lives, in ns.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// The other ranks on this host, by files in gctrace's folder: opened for each look, as programs close
/// descriptors that are not theirs.
pub(super) struct RankLink {
    rank: u32,
    /// Ranks on this host.
    ranks: u32,
    /// All others have been there: without one of them nothing is decided.
    is_complete: bool,
    looked_ns: u64,
    looked_at_leader_ns: u64,
    orders: RankOrders,
    published: Option<RankOrders>,
}

/// News from a look at the other ranks.
pub(super) enum RankNews {
    Nothing,
    /// Rank 0 waits for a rank that has not started.
    Waiting,
    Alarm,
    Orders(RankOrders),
}

impl RankLink {
    /// The link of a starting rank. The rank announces itself.
    pub(super) fn new(rank: u32, ranks: u32, folder: &mut ReportFolder) -> Self {
        let pid = std::process::id();
        let mut link = Self {
            rank,
            ranks,
            is_complete: false,
            looked_ns: 0,
            looked_at_leader_ns: 0,
            orders: RankOrders::of(pid),
            published: None,
        };
        if link.leads() {
            link.publish(folder);
        } else {
            folder.put(&follower_file(rank), pid.to_string().as_bytes());
        }
        link
    }

    pub(super) fn leads(&self) -> bool {
        self.rank == 0
    }

    /// Ranks that do as this one does.
    pub(super) fn followers(&self) -> u32 {
        if self.leads() && self.is_complete { self.ranks - 1 } else { 0 }
    }

    /// Why rank 0 does not decide, if it does not.
    pub(super) fn waits_for(&self) -> Option<String> {
        if !self.leads() || self.is_complete {
            return None;
        }
        Some(format!(
            "not all {} ranks are in this gctrace auto: start the whole job with it, not each rank",
            self.ranks
        ))
    }

    pub(super) fn look(&mut self, folder: &ReportFolder, began: &mut WorkBegin) -> RankNews {
        let now = now_ns();
        let every_ns = if self.leads() { LOOK_EVERY_NS } else { FOLLOW_EVERY_NS };
        let is_due = gctrace_units::duration_ns(self.looked_ns, now) >= every_ns;
        if is_due {
            self.looked_ns = now;
            began.enters_kernel();
        }
        if !self.leads() {
            return if is_due { self.read_orders(folder, now) } else { RankNews::Nothing };
        }
        if is_due && folder.read(ALARM_FILE, &mut [0]) > 0 {
            return RankNews::Alarm;
        }
        if is_due && !self.is_complete {
            let is_here = |rank| {
                let mut text = [0; 16];
                let length = folder.read(&follower_file(rank), &mut text);
                let Some(text) = text.get(..length) else { return false };
                let Ok(text) = str::from_utf8(text) else { return false };
                text.parse().is_ok_and(lives)
            };
            self.is_complete = (1..self.ranks).all(is_here);
        }
        if self.is_complete { RankNews::Nothing } else { RankNews::Waiting }
    }

    /// Orders of a process that has ended without a word are none.
    fn read_orders(&mut self, folder: &ReportFolder, now: u64) -> RankNews {
        let mut text = [0; MOST_ORDERS];
        let length = folder.read(ORDERS_FILE, &mut text);
        let Some(text) = text.get(..length) else { return RankNews::Nothing };
        let orders = match serde_json::from_slice::<RankOrders>(text) {
            Ok(orders) if orders.leader != 0 => orders,
            _ => return RankNews::Nothing,
        };
        if orders.leader == self.orders.leader
            && gctrace_units::duration_ns(self.looked_at_leader_ns, now) < LOOK_EVERY_NS
        {
            return RankNews::Orders(orders);
        }
        self.looked_at_leader_ns = now;
        self.orders.leader = orders.leader;
        RankNews::Orders(if lives(orders.leader) { orders } else { RankOrders::of(0) })
    }

    /// Rank 0 does this.
    pub(super) fn note(&mut self, action: Action, own: Thresholds) {
        self.orders.note(action, own);
    }

    /// Publishes the orders in place now.
    pub(super) fn publish(&mut self, folder: &mut ReportFolder) {
        if self.leads()
            && self.published.as_ref() != Some(&self.orders)
            && let Ok(text) = serde_json::to_vec(&self.orders)
        {
            folder.put(ORDERS_FILE, &text);
            self.published = Some(self.orders.clone());
        }
    }

    /// Rank 0 ends: nothing is in place any more.
    pub(super) fn end(&mut self, folder: &mut ReportFolder) {
        self.orders = RankOrders::of(self.orders.leader);
        self.publish(folder);
    }

    pub(super) fn raise_alarm(folder: &mut ReportFolder) {
        folder.put(ALARM_FILE, b"1");
    }
}

fn follower_file(rank: u32) -> String {
    format!("ranks.{rank}")
}

/// Whether a process exists. Another process may have its id by now; that is rare: ids are given out in turn.
fn lives(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 sends no signal. The folder has no process of another user; the call would fail for it.
    pid > 0 && unsafe { libc::kill(pid, 0) } == 0
}

/// The program, as the controller asks for it.
pub(super) struct ProgramGauge<'a> {
    pub(super) collector: &'a Collector,
    pub(super) filters: u32,
    pub(super) by_time: bool,
    /// The work that asks.
    pub(super) began: &'a mut WorkBegin,
}

impl Gauge for ProgramGauge<'_> {
    fn figures(&mut self) -> Figures {
        self.began.enters_kernel();
        costs::figures(self.collector.waiting().unwrap_or(0), self.by_time)
    }

    fn fulls(&mut self) -> u64 {
        costs::fulls()
    }

    fn rss_bytes(&mut self) -> Option<u64> {
        self.began.enters_kernel();
        rss_bytes()
    }

    fn malloc_bytes(&mut self) -> Option<u64> {
        malloc_use().map(|malloc| malloc.used as u64)
    }

    fn headroom_bytes(&mut self) -> Option<u64> {
        // Files that the program does not read: not if it must not.
        if is_confined(self.filters) { None } else { headroom_bytes() }
    }

    fn device_memory(&mut self, searches: bool) -> Option<DeviceMemory> {
        if is_confined(self.filters) { None } else { device_memory(searches) }
    }

    fn now_ns(&mut self) -> u64 {
        now_ns()
    }
}
