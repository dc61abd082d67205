//! Growth by line of birth: a series of living objects for each line, judged as the process's own.

use super::{GrowingLine, HeapTrend, LowestSeries, Trend, WatchedLife, part_trend};
use crate::stacks::{MovedNodes, NodeId, StackTree};
use gctrace_event::AliveLines;
use std::collections::BTreeMap;

/// Lines with a kept series; if there are more, the lines with most objects.
const MOST_LINES: usize = 256;
/// Lines that are reported.
const REPORTED: usize = 3;
/// A line that grows slower than this part of the first does not count.
const NOTABLE: f64 = 0.2;
/// Share of the resident memory's rise that the objects of lines that grow explain, if it is theirs.
const EXPLAINED: f64 = 0.5;

/// Living objects of one process, by line of birth: a key for each.
#[derive(Clone, Debug)]
pub(crate) struct AliveByLine<K>(BTreeMap<K, AliveSeries>);

impl<K> Default for AliveByLine<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[derive(Clone, Debug, Default)]
struct AliveSeries {
    objects: LowestSeries,
    bytes: LowestSeries,
}

/// Growth at a line: objects, and bytes if they rise.
type Growing<K> = (K, Trend, Option<Trend>);

impl AliveByLine<NodeId> {
    /// Names the lines as in a tree that their own was added to.
    pub(crate) fn renumber(&mut self, places: &MovedNodes) {
        let moved = std::mem::take(&mut self.0).into_iter();
        self.0 = moved.filter_map(|(node, series)| Some((places.of(node)?, series))).collect();
    }

    /// Adds the lines with rising objects to the trend of a process, if that rises, and whether the memory belongs to
    /// them.
    pub(crate) fn explain(&self, heap: &mut HeapTrend, tree: &StackTree, life: &WatchedLife) {
        let lines = self.growing(heap, life).into_iter().take(REPORTED);
        heap.lines = lines
            .map(|(node, objects, bytes)| GrowingLine {
                location: tree.own_line(node).clone(),
                objects,
                bytes,
            })
            .collect();
    }
}

impl<K: Copy + Ord> AliveByLine<K> {
    /// Adds one look. `key`: the key of a frame.
    pub(crate) fn add(&mut self, alive: &AliveLines, mut key: impl FnMut(u32) -> Option<K>) {
        for (frame, objects, bytes) in &alive.lines {
            let Some(key) = key(*frame) else { continue };
            if !self.0.contains_key(&key) && self.0.len() >= MOST_LINES {
                let last = |series: &AliveSeries| series.objects.last().unwrap_or(0);
                let least = self.0.iter().map(|(key, series)| (last(series), *key)).min();
                match least {
                    Some((least, of)) if least < *objects => self.0.remove(&of),
                    _ => continue,
                };
            }
            let series = self.0.entry(key).or_default();
            series.objects.add(alive.at_ns, *objects);
            series.bytes.add(alive.at_ns, *bytes);
        }
    }

    /// The lines with growing numbers of objects, the fastest first, if the process keeps ever more. Sets whether
    /// they explain the resident memory.
    pub(crate) fn growing(&self, heap: &mut HeapTrend, life: &WatchedLife) -> Vec<Growing<K>> {
        let rises = |trend: Option<Trend>| trend.filter(|trend| trend.rises);
        let resident = rises(heap.resident);
        let Some(whole) = resident.or(rises(heap.objects)) else { return Vec::new() };
        let part = |series: &LowestSeries| rises(part_trend(series, &whole, life));
        let line = |(key, series): (&K, &AliveSeries)| {
            Some((*key, part(&series.objects)?, part(&series.bytes)))
        };
        let mut lines: Vec<Growing<K>> = self.0.iter().filter_map(line).collect();
        let bytes = |line: &Growing<K>| if let Some(bytes) = line.2 { bytes.per_s } else { 0.0 };
        let explained: f64 = lines.iter().map(bytes).sum();
        if matches!(resident, Some(resident) if explained >= resident.per_s * EXPLAINED) {
            heap.outside_python = Some(false);
        }
        // By the resource that the process is short of.
        let weight = |line: &Growing<K>| match resident {
            Some(_) => bytes(line),
            None => line.1.per_s,
        };
        lines.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        let least = if let Some(first) = lines.first() { weight(first) * NOTABLE } else { 0.0 };
        lines.retain(|line| weight(line) >= least);
        lines
    }
}

#[cfg(test)]
mod tests;
