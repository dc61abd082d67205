//! What grows by line of birth: the series of each line of what is alive, judged as the process's own.

use super::leak_watch::{LowestSeries, WatchedLife, part_trend};
use super::stacks::{MovedNodes, NodeId, StackTree};
use crate::report::{GrowingLine, HeapTrend, Trend};
use gctrace_event::AliveLines;
use std::collections::BTreeMap;

/// Lines whose series are kept; of more, those that have most objects.
const MOST_LINES: usize = 256;
/// Lines that are reported.
const REPORTED: usize = 3;
/// What grows slower than this part of the first is not.
const NOTABLE: f64 = 0.2;
/// Share of the resident memory's rise that the objects of lines that grow explain, if it is theirs.
const EXPLAINED: f64 = 0.5;

/// What is alive of one process, by line of birth.
#[derive(Clone, Debug, Default)]
pub(crate) struct AliveByLine(BTreeMap<NodeId, AliveSeries>);

#[derive(Clone, Debug, Default)]
struct AliveSeries {
    objects: LowestSeries,
    bytes: LowestSeries,
}

impl AliveByLine {
    /// Adds one look. `node`: the place of a frame.
    pub(crate) fn add(&mut self, alive: &AliveLines, mut node: impl FnMut(u32) -> Option<NodeId>) {
        for (frame, objects, bytes) in &alive.lines {
            let Some(node) = node(*frame) else { continue };
            if !self.0.contains_key(&node) && self.0.len() >= MOST_LINES {
                let last = |series: &AliveSeries| series.objects.last().unwrap_or(0);
                let least = self.0.iter().map(|(node, series)| (last(series), *node)).min();
                match least.filter(|(least, _)| least < objects) {
                    Some((_, least)) => self.0.remove(&least),
                    None => continue,
                };
            }
            let series = self.0.entry(node).or_default();
            series.objects.add(alive.at_ns, *objects);
            series.bytes.add(alive.at_ns, *bytes);
        }
    }

    /// Names the lines as in a tree that their own was added to.
    pub(crate) fn renumber(&mut self, places: &MovedNodes) {
        let moved = std::mem::take(&mut self.0).into_iter();
        self.0 = moved.filter_map(|(node, series)| Some((places.of(node)?, series))).collect();
    }

    /// Adds to what a process keeps, if that rises, the lines whose objects do, and whether the memory is
    /// theirs.
    pub(crate) fn explain(&self, heap: &mut HeapTrend, tree: &StackTree, life: &WatchedLife) {
        let rises = |trend: Option<Trend>| trend.filter(|trend| trend.rises);
        let resident = rises(heap.resident);
        let Some(whole) = resident.or(rises(heap.objects)) else {
            return;
        };
        let part = |series: &LowestSeries| rises(part_trend(series, &whole, life));
        let line = |(node, series): (&NodeId, &AliveSeries)| {
            let (objects, bytes) = (part(&series.objects)?, part(&series.bytes));
            Some(GrowingLine { location: tree.own_line(*node).clone(), objects, bytes })
        };
        let mut lines: Vec<GrowingLine> = self.0.iter().filter_map(line).collect();
        let bytes = |line: &GrowingLine| line.bytes.map_or(0.0, |bytes| bytes.per_s);
        let explained: f64 = lines.iter().map(bytes).sum();
        if let Some(resident) = resident
            && explained >= resident.per_s * EXPLAINED
        {
            heap.outside_python = Some(false);
        }
        // By what the process is short of.
        let weight = |line: &GrowingLine| match resident {
            Some(_) => bytes(line),
            None => line.objects.per_s,
        };
        lines.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        let least = lines.first().map_or(0.0, weight) * NOTABLE;
        lines.retain(|line| weight(line) >= least);
        lines.truncate(REPORTED);
        heap.lines = lines;
    }
}

#[cfg(test)]
mod tests;
