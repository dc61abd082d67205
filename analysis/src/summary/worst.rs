//! The longest pauses of all traces.

use crate::accumulate::pause_sums::known_generation;
use crate::accumulate::worst_pauses::WorstPauseEntry;
use crate::analysis::Analysis;
use crate::report::WorstPause;

impl Analysis {
    pub(super) fn worst_pauses(&self) -> Vec<WorstPause> {
        let entries = self.worst.entries().iter();
        entries.map(|entry| self.worst_pause(entry)).collect()
    }

    fn worst_pause(&self, entry: &WorstPauseEntry) -> WorstPause {
        let pause = &entry.pause;
        let process = entry.process.map(|at| &self.processes[at]);
        let trace = &self.traces[entry.trace];
        let after_start_ns = pause.start_ns.saturating_sub(trace.started_ns());
        let rank = process.and_then(|process| process.sums.rank());
        let line = entry.node.map(|node| self.stacks.own_line(node));
        let started_unix_ns = trace.started_unix_ns();
        WorstPause {
            trace: entry.trace,
            pid: pause.pid,
            rank: rank.or(trace.profiler.rank),
            tid: pause.tid,
            thread: entry.thread.clone(),
            line: line.cloned(),
            after_start_ns,
            start_ns: pause.start_ns,
            unix_ns: started_unix_ns.map(|started| started.saturating_add(after_start_ns)),
            duration_ns: pause.duration_ns(),
            generation: known_generation(pause),
            reason: pause.reason,
            collected: pause.collected,
            objects: pause.heap_objects.or(pause.oldest_objects),
            cpu_ns: pause.cpu_ns,
            unfinished: pause.unfinished,
        }
    }
}
