//! The exposed part of a pause's cost: the GPU pays it at once.

use super::ReplayJob;
use super::layout::ReplayLayout;
use super::network::NetworkRun;
use crate::gpu::timeline::{OpIndex, Timeline};
use crate::spans::PauseSpan;
use crate::spans::index::Index;
use crate::time::duration_ns;
use crate::time::intervals::Intervals;

/// The parts of each timeline that are needed around its pauses.
#[derive(Debug, Default)]
pub(super) struct PauseSurroundings {
    timelines: Vec<TimelineSurroundings>,
}

#[derive(Debug, Default)]
struct TimelineSurroundings {
    /// First operation of each call that has one, by start of the call.
    launches: Vec<(u64, OpIndex)>,
    /// Per operation: the last end of it and all before it.
    ended_ns: Vec<u64>,
}

impl PauseSurroundings {
    pub(super) fn of(job: &ReplayJob<'_>) -> Self {
        let timelines = job.timelines.iter().map(|timeline| TimelineSurroundings::of(timeline));
        Self { timelines: timelines.collect() }
    }

    /// How much longer the device was idle between the start of a pause and the first operation
    /// launched after it than in a run without the pause.
    pub(super) fn exposed_ns(
        &self,
        at: usize,
        span: &PauseSpan,
        layout: &ReplayLayout<'_>,
        run: &NetworkRun<'_>,
    ) -> u64 {
        let of_one = &self.timelines[at];
        let launches = &of_one.launches;
        let next = launches.partition_point(|(start, _)| *start < span.end_ns);
        let Some((_, next)) = launches.get(next) else {
            return 0;
        };
        let start = layout.on_network(span.start_ns);
        let device = layout.device(*next);
        let ops = of_one.within(*next, span.start_ns);
        let (mut measured, mut without) = (Vec::new(), Vec::new());
        for op in ops.filter(|op| layout.device(*op) == device) {
            let (from, to) = layout.op_span(op);
            measured.push((layout.on_network(from), layout.on_network(to)));
            let (from, to) = layout.op(op);
            without.push((run.time_of(from), run.time_of(to)));
        }
        let (op_start_ns, _) = layout.op_span(*next);
        let measured = idle(measured, start, layout.on_network(op_start_ns));
        let without = idle(without, start, run.time_of(layout.op(*next).0));
        duration_ns(without, measured)
    }
}

impl TimelineSurroundings {
    fn of(timeline: &Timeline) -> Self {
        let ops = Index::enumerate(&timeline.ops);
        let mut launches: Vec<(u64, OpIndex)> =
            ops.filter_map(|(index, op)| Some((timeline.call(op)?.start_ns, index))).collect();
        launches.sort_unstable();
        let mut last = 0;
        let ended_ns = timeline.ops.iter().map(|op| {
            last = op.end_ns.max(last);
            last
        });
        Self { launches, ended_ns: ended_ns.collect() }
    }

    /// Operations, up to the given one, that may have run after a time.
    fn within(&self, last: OpIndex, from_ns: u64) -> impl Iterator<Item = OpIndex> {
        let before = self.ended_ns.partition_point(|ended| *ended <= from_ns);
        (before..last.at() + 1).map(OpIndex::new)
    }
}

/// Time of a window with nothing running.
fn idle(spans: Vec<(i64, i64)>, from: i64, to: i64) -> u64 {
    let to = to.max(from);
    let window_ns = to.abs_diff(from);
    let after = |time: i64| time.clamp(from, to).abs_diff(from);
    let spans = spans.into_iter();
    let busy = spans.map(|(start, end)| (after(start), after(end)));
    window_ns - Intervals::from_iter(busy).length_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_of_a_window() {
        assert_eq!(idle(vec![(0, 10), (5, 12), (15, 18)], 2, 20), 5);
        assert_eq!(idle(vec![(30, 40)], 0, 20), 20);
        assert_eq!(idle(Vec::new(), 20, 0), 0);
    }
}
