//! Samples of a snapshot.
//!
//! Owns how samples are labeled, and the choice of processes on the page. `families.rs` has the meaning of each metric.

use crate::top::metrics::labels;
use gctrace_analysis::figure::{Label, Unit, Value, number};
use gctrace_analysis::live::{CollectionCounts, ProcessFigures, ProcessGpu, Snapshot};
use std::collections::HashSet;

/// Maximum number of processes with metrics of their own, about 20 series each.
const PROCESSES: usize = 1000;

/// The figures of one page, all from one snapshot.
#[derive(Debug)]
pub(super) struct MetricsFigures {
    pub(super) snapshot: Snapshot,
    /// Processes without metrics of their own.
    pub(super) left_out: u64,
}

/// A subject with figures: its labels, whether it still runs, and itself.
pub(super) type Subject<'a, S> = (Vec<Label<'static>>, bool, &'a S);

/// Keeps the latest process for each pid, and at most [`PROCESSES`] of them, with the most time in pauses. Returns the
/// number left out.
fn choose(processes: &mut Vec<ProcessFigures>) -> u64 {
    let mut seen = HashSet::new();
    processes.reverse();
    processes.retain(|process| seen.insert(process.pid));
    processes.reverse();
    if processes.len() <= PROCESSES {
        return 0;
    }
    processes.sort_by_cached_key(|process| {
        let time: u64 = process.collections.pause_ns.iter().sum();
        (std::cmp::Reverse(time), process.pid)
    });
    processes.drain(PROCESSES..).count() as u64
}

impl MetricsFigures {
    pub(super) fn new(mut snapshot: Snapshot) -> Self {
        let left_out = choose(&mut snapshot.processes);
        Self { snapshot, left_out }
    }

    /// Each process, also ended ones still in the snapshot.
    pub(super) fn processes(&self) -> Vec<Subject<'_, ProcessFigures>> {
        let processes = self.snapshot.processes.iter();
        processes
            .map(|process| (labels::process(process), process.ended.is_none(), process))
            .collect()
    }

    /// The collections of each process.
    pub(super) fn process_collections(&self) -> Vec<Subject<'_, CollectionCounts>> {
        let processes = self.processes().into_iter();
        processes.map(|(labels, runs, process)| (labels, runs, &process.collections)).collect()
    }

    /// The devices of each process, by CUDA's index in the process.
    pub(super) fn process_gpus(&self) -> Vec<Subject<'_, ProcessGpu>> {
        let processes = self.processes().into_iter();
        let gpus = processes.flat_map(|(labels, runs, process)| {
            process.gpus.iter().map(move |gpu| {
                let mut labels = labels.clone();
                labels.push(number("device", gpu.device));
                (labels, runs, gpu)
            })
        });
        gpus.collect()
    }

    /// A value in base units, times as Unix time.
    pub(super) fn in_base<'a>(&self, unit: Unit, value: Value<'a>) -> Value<'a> {
        match (unit, value) {
            (Unit::Ns, Value::Whole(ns)) => Value::Real(in_seconds(ns)),
            (Unit::Ns, Value::Signed(ns)) => Value::Real(ns as f64 / 1e9),
            (Unit::At, Value::Whole(ns)) => Value::Real(in_seconds(self.unix_ns(ns))),
            (_, value) => value,
        }
    }

    /// A timestamp of CLOCK_MONOTONIC as Unix time.
    fn unix_ns(&self, at_ns: u64) -> u64 {
        // A process that was first seen after the time of the snapshot counts as seen at it.
        let ago = gctrace_units::duration_ns(at_ns, self.snapshot.at_ns);
        gctrace_units::beyond(self.snapshot.at_unix_ns, ago)
    }
}

/// Nanoseconds are exact in a double up to 104 days.
pub(super) fn in_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
