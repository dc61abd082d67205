//! The program's functions that collections of one process called.

use crate::bounded::ranked;
use crate::figure::Location;
use crate::stacks::{MovedNodes, NodeId, StackTree};
use crate::time::add_to;
use gctrace_event::{Called, CalledKind};
use serde::Serialize;
use std::collections::BTreeMap;

/// A function of the program that collections call. Its time is in no figure about pauses.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CalledReport {
    /// `finalizer` (`__del__`, a callback of a weak reference, a generator that is closed), within
    /// collections, or `callback` (a function in `gc.callbacks`), before and after them.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub kind: CalledKind,
    /// The function, at its first line; `null` if it is unknown, or if it stands for several functions.
    pub function: Option<Location>,
    /// Number of calls.
    pub calls: u64,
    /// Time of all calls, in ns.
    pub time_ns: u64,
    /// Longest time of its calls by one collection, in ns.
    pub longest_ns: u64,
}

/// Functions kept; the others are one without a name.
const KEPT: usize = 1_000;
/// Functions in a report.
const LISTED: usize = 10;

/// Sums by function.
#[derive(Clone, Debug, Default)]
pub(crate) struct CalledSums(BTreeMap<(CalledKind, Option<NodeId>), CallSum>);

#[derive(Clone, Copy, Debug, Default)]
struct CallSum {
    calls: u64,
    time_ns: u64,
    longest_ns: u64,
}

impl CalledSums {
    /// Adds calls of a function; `node`: its only frame.
    pub(crate) fn add(&mut self, called: &Called, node: Option<NodeId>) {
        let key = (called.kind, node);
        let key = match self.0.len() {
            KEPT.. if !self.0.contains_key(&key) => (called.kind, None),
            _ => key,
        };
        let sum =
            CallSum { calls: called.calls, time_ns: called.time_ns, longest_ns: called.time_ns };
        self.0.entry(key).or_default().merge(sum);
    }

    /// Names the functions as in a tree that their own was added to.
    pub(crate) fn renumber(&mut self, places: &MovedNodes) {
        for ((kind, node), sum) in std::mem::take(&mut self.0) {
            let node = places.moved(node);
            self.0.entry((kind, node)).or_default().merge(sum);
        }
    }

    /// The functions with the most time.
    pub(crate) fn report(&self, tree: &StackTree) -> Vec<CalledReport> {
        let reports = self.0.iter().map(|((kind, node), sum)| CalledReport {
            kind: *kind,
            function: node.and_then(|node| tree.frames(node).next().cloned()),
            calls: sum.calls,
            time_ns: sum.time_ns,
            longest_ns: sum.longest_ns,
        });
        ranked(reports, LISTED, |called| called.time_ns)
    }
}

impl CallSum {
    fn merge(&mut self, other: Self) {
        add_to(&mut self.calls, other.calls);
        add_to(&mut self.time_ns, other.time_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}
