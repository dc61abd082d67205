//! The search for a setting in one process: its state, and the program as the controller asks for it.

use super::collector::Collector;
use super::costs;
use crate::apply::auto::{Controller, Figures, Gauge};
use crate::apply::files::rss_bytes;
use crate::apply::memory::{headroom_bytes, malloc_bytes};
use crate::environment::is_confined;
use crate::process_ring::now_ns;

/// The search in one process.
pub(super) enum Search {
    /// There is none: why.
    Unsupported(&'static str),
    Runs(Box<RunningSearch>),
}

pub(super) struct RunningSearch {
    pub(super) controller: Controller,
    /// What the program last wanted.
    pub(super) is_enabled: bool,
    /// The program has set thresholds since the last step.
    pub(super) has_set: bool,
    /// Objects are frozen for it.
    pub(super) is_frozen: bool,
}

/// The program, as the controller asks for it.
pub(super) struct ProgramGauge<'a> {
    pub(super) collector: &'a Collector,
    pub(super) filters: u32,
}

impl Gauge for ProgramGauge<'_> {
    fn figures(&mut self) -> Figures {
        costs::figures(self.collector.waiting().unwrap_or(0))
    }

    fn fulls(&mut self) -> u64 {
        costs::fulls()
    }

    fn rss_bytes(&mut self) -> Option<u64> {
        rss_bytes()
    }

    fn malloc_bytes(&mut self) -> u64 {
        malloc_bytes()
    }

    fn headroom_bytes(&mut self) -> Option<u64> {
        // Files that the program does not read: not if it must not.
        (!is_confined(self.filters)).then(headroom_bytes).flatten()
    }

    fn now_ns(&mut self) -> u64 {
        now_ns()
    }
}
