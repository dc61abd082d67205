//! Waits of a process for a collection in another one: by who woke it.

use super::LoopSums;
use crate::time::add_to;
use serde::Serialize;
use std::collections::BTreeMap;

/// Waits of one process until another one woke it, each of a millisecond or longer, that collections of the other one
/// took most of: who is idle and gets a request from a process that collected once meanwhile has not waited for that.
/// Measured by the scheduler: a thread that passes on what it was woken for, as libzmq's do, counts as the one that woke it. Nothing wakes a process
/// that looks at shared memory again and again.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessWaitReport {
    /// Index of the trace in `traces`.
    pub trace: usize,
    /// Process id of the one that waited.
    pub pid: u32,
    /// Process id of the one that it waited for.
    pub for_pid: u32,
    /// Number of these waits; those of several threads at once are one.
    pub waits: u64,
    /// Time of them in which the other one collected, in ns.
    pub in_collections_ns: u64,
    /// The longest of these waits, in ns.
    pub longest_ns: u64,
    /// The part of that one in which the other one collected, in ns.
    pub longest_in_collection_ns: u64,
}

/// The part of a wait that collections took, so that it was a wait for them.
const MOST: f64 = 0.5;

/// A wait until another process woke the thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitFor {
    pub(super) by_pid: u32,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

impl LoopSums {
    /// The waits of this process for collections of others; `of`: the loops of another process of its trace.
    pub(crate) fn waits_for_others<'a>(
        &self,
        (trace, pid): (usize, u32),
        of: impl Fn(u32) -> Option<&'a Self>,
    ) -> Vec<ProcessWaitReport> {
        let mut by_process: BTreeMap<u32, ProcessWaitReport> = BTreeMap::new();
        let mut ended_ns: BTreeMap<u32, u64> = BTreeMap::new();
        let mut waits: Vec<&WaitFor> = self.waits_for.iter().collect();
        // Of waits at the same time, the one with the longest part in collections.
        waits.sort_by_key(|wait| (wait.start_ns, std::cmp::Reverse(wait.end_ns)));
        for wait in waits {
            let Some(other) = of(wait.by_pid) else {
                continue;
            };
            let length_ns = crate::time::duration_ns(wait.start_ns, wait.end_ns);
            let in_collections_ns = other.collected_ns((wait.start_ns, wait.end_ns), None);
            let is_at_once =
                ended_ns.get(&wait.by_pid).is_some_and(|end_ns| wait.start_ns < *end_ns);
            if is_at_once || (in_collections_ns as f64) < MOST * length_ns as f64 {
                continue;
            }
            ended_ns.insert(wait.by_pid, wait.end_ns);
            let report = by_process.entry(wait.by_pid).or_insert(ProcessWaitReport {
                trace,
                pid,
                for_pid: wait.by_pid,
                waits: 0,
                in_collections_ns: 0,
                longest_ns: 0,
                longest_in_collection_ns: 0,
            });
            report.waits += 1;
            add_to(&mut report.in_collections_ns, in_collections_ns);
            if length_ns > report.longest_ns {
                report.longest_ns = length_ns;
                report.longest_in_collection_ns = in_collections_ns;
            }
        }
        by_process.into_values().collect()
    }
}
