//! Idle time of a device, summed up while its gaps are given to causes.

use super::IdleLabel;
use super::among::GapsAmong;
use super::stepwise::GapsInSteps;
use crate::gpu::idle::IdleCause;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Gaps that are listed.
const LONGEST: usize = 20;

/// The idle time of one cause at one place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlaceSum {
    pub(super) time_ns: u64,
    /// Gaps that it has a part of.
    pub(super) gaps: u64,
    /// Place of the last of them.
    last: Option<usize>,
}

impl PlaceSum {
    /// The gaps of a cause come in order.
    fn add(&mut self, gap: usize, time_ns: u64) {
        self.time_ns += time_ns;
        self.gaps += u64::from(self.last.replace(gap) != Some(gap));
    }
}

/// Idle time by cause and place.
pub(super) struct CauseSums {
    pub(super) by_cause: BTreeMap<IdleCause, (u64, HashMap<IdleLabel, PlaceSum>)>,
    /// The parts of the longest gaps, by their place among the device's gaps.
    pub(super) longest: BTreeMap<usize, BTreeMap<IdleCause, u64>>,
    /// The time of [`IdleCause::Host`], by gap.
    pub(super) host_ns: Vec<u64>,
    pub(super) among: GapsAmong,
    pub(super) steps: GapsInSteps,
}

impl CauseSums {
    pub(super) fn of(gaps: &[(usize, u64)], among: GapsAmong, steps: GapsInSteps) -> Self {
        let mut longest: Vec<usize> = (0..gaps.len()).collect();
        longest.sort_by_key(|at| Reverse(gaps[*at].1));
        longest.truncate(LONGEST);
        let longest = longest.into_iter().map(|at| (at, BTreeMap::new()));
        let (by_cause, longest) = (BTreeMap::new(), longest.collect());
        Self { by_cause, longest, host_ns: vec![0; gaps.len()], among, steps }
    }

    /// `gap`: place of the gap that the time is a part of.
    pub(super) fn add(&mut self, gap: usize, cause: IdleCause, label: IdleLabel, time_ns: u64) {
        if time_ns > 0 {
            self.among.add(gap, cause, label, time_ns);
            if cause == IdleCause::Host {
                self.host_ns[gap] += time_ns;
            }
            self.steps.add(gap, cause, time_ns);
            if let Some(parts) = self.longest.get_mut(&gap) {
                *parts.entry(cause).or_default() += time_ns;
            }
            let (sum, places) = self.by_cause.entry(cause).or_default();
            *sum += time_ns;
            places.entry(label).or_default().add(gap, time_ns);
        }
    }
}
