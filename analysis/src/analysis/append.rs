//! Two analyses into one, so that traces can be read at the same time.
//!
//! Owns the renumbering: traces, processes and stacks have their places in an analysis as names.

use super::Analysis;
use crate::accumulate::worst_pauses::WorstPauseEntry;
use crate::stacks::MovedNodes;

/// Offsets to add to the numbers of an analysis behind another.
struct NewPlaces {
    traces: usize,
    processes: usize,
    nodes: MovedNodes,
}

impl Analysis {
    /// Adds the traces of another analysis as if they had been read after this one's. To be called
    /// before [`Analysis::settle`] of either, and not within a trace.
    pub fn append(&mut self, other: Self) {
        let places = NewPlaces {
            traces: self.traces.len(),
            processes: self.processes.len(),
            nodes: self.stacks.append(other.stacks),
        };
        self.traces.extend(other.traces);
        for index in places.traces..self.traces.len() {
            self.traces[index].first_process += places.processes;
            self.note_repetition(index);
        }
        let mut processes = other.processes;
        let mut unlisted = other.unlisted;
        for process in processes.iter_mut().chain(&mut unlisted) {
            process.trace += places.traces;
            process.stacks.renumber(&places.nodes);
            process.allocations.renumber(&places.nodes);
            process.called.renumber(&places.nodes);
            process.settings_by = places.nodes.moved(process.settings_by);
            process.alive.renumber(&places.nodes);
            process.cleanup.renumber(&places.nodes);
            process.cpu.renumber(&places.nodes);
            process.loops.renumber(&places.nodes);
        }
        for spans in other.thread_spans {
            spans.moved(places.processes, &places.nodes).push_to(&mut self.thread_spans);
        }
        self.processes.extend(processes);
        self.unlisted.extend(unlisted);
        let mut timelines = other.timelines;
        for timeline in &mut timelines {
            timeline.trace += places.traces;
            timeline.process_trace += places.traces;
        }
        self.timelines.extend(timelines);
        self.all.merge(other.all);
        let by_generation = self.by_generation.iter_mut().chain(&mut self.by_reason);
        let others = other.by_generation.into_iter().chain(other.by_reason);
        by_generation.zip(others).for_each(|(sum, other)| sum.merge(other));
        self.nothing.merge(&other.nothing);
        self.automatic_full.add_all(&other.automatic_full);
        self.unfinished.add_all(&other.unfinished);
        for entry in other.worst.entries {
            self.worst.insert(places.worst(entry));
        }
        if let (Some(kept), Some(other)) = (&mut self.kept_pauses, other.kept_pauses) {
            kept.append(other, (places.traces, places.processes), &places.nodes);
        }
        self.unreadable.extend(other.unreadable);
        let deferred = other.deferred.into_iter();
        let moved = deferred.map(|deferred| deferred.moved(places.traces, places.processes));
        self.deferred.extend(moved);
    }
}

impl NewPlaces {
    fn worst(&self, entry: WorstPauseEntry) -> WorstPauseEntry {
        WorstPauseEntry {
            trace: entry.trace + self.traces,
            process: entry.process.map(|at| at + self.processes),
            node: self.nodes.moved(entry.node),
            ..entry
        }
    }
}
