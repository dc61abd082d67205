//! The exposed part of a pause's cost, which the GPU pays at once.

use super::ReplayJob;
use super::layout::ReplayLayout;
use super::network::NetworkRun;
use crate::gpu::pause_span::PauseSpan;
use crate::gpu::timeline::Timeline;
use crate::time::intervals::Intervals;

/// The parts of each timeline that are needed around its pauses.
#[derive(Debug, Default)]
pub(super) struct PauseSurroundings {
    timelines: Vec<TimelineSurroundings>,
}

#[derive(Debug, Default)]
struct TimelineSurroundings {
    /// First operation of each call that has one, by start of the call.
    launches: Vec<(u64, u32)>,
    /// Per operation: the last end of it and all before it.
    ended_ns: Vec<u64>,
}

impl PauseSurroundings {
    pub(super) fn of(job: &ReplayJob<'_>) -> Self {
        let timelines = job
            .timelines
            .iter()
            .map(|timeline| TimelineSurroundings::of(timeline));
        Self {
            timelines: timelines.collect(),
        }
    }

    /// How much longer the device was idle between the start of a pause and the first operation
    /// launched after it than in a run without the pause.
    pub(super) fn exposed_ns(
        &self,
        at: usize,
        span: &PauseSpan,
        layout: &ReplayLayout,
        run: &NetworkRun<'_>,
    ) -> u64 {
        let idle = || {
            let of_one = self.timelines.get(at)?;
            let next = of_one
                .launches
                .partition_point(|(start, _)| *start < span.end_ns);
            let (_, next) = of_one.launches.get(next)?;
            let start = layout.on_network(span.start_ns);
            let (node, _) = layout.op(*next)?;
            let (op_start_ns, _) = layout.op_span(*next)?;
            let ops = of_one.within(*next, span.start_ns);
            let same = layout.devices.get(*next as usize);
            let ops = ops.filter(|op| layout.devices.get(*op as usize) == same);
            let (mut measured, mut without) = (Vec::new(), Vec::new());
            for op in ops {
                let (from, to) = layout.op_span(op)?;
                measured.push((layout.on_network(from), layout.on_network(to)));
                let (from, to) = layout.op(op)?;
                without.push((run.time_of(from), run.time_of(to)));
            }
            let measured = idle(measured, start, layout.on_network(op_start_ns));
            Some(measured.saturating_sub(idle(without, start, run.time_of(node))))
        };
        idle().unwrap_or(0)
    }
}

impl TimelineSurroundings {
    fn of(timeline: &Timeline) -> Self {
        let mut launches: Vec<(u64, u32)> = (0u32..)
            .zip(&timeline.ops)
            .filter_map(|(index, op)| {
                let call = timeline.calls.get(op.call as usize)?;
                Some((call.start_ns, index))
            })
            .collect();
        launches.sort_unstable();
        let mut last = 0;
        let ended_ns = timeline.ops.iter().map(|op| {
            last = op.end_ns.max(last);
            last
        });
        Self {
            launches,
            ended_ns: ended_ns.collect(),
        }
    }

    /// Operations up to the given one that may have run after a time.
    fn within(&self, last: u32, from_ns: u64) -> impl Iterator<Item = u32> {
        let before = self.ended_ns.partition_point(|ended| *ended <= from_ns);
        u32::try_from(before).unwrap_or(u32::MAX)..last.saturating_add(1)
    }
}

/// Time of a window in which nothing ran.
fn idle(spans: Vec<(i64, i64)>, from: i64, to: i64) -> u64 {
    let window_ns = u64::try_from(to.saturating_sub(from)).unwrap_or(0);
    let after = |time: i64| time.clamp(from, to.max(from)).abs_diff(from);
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
