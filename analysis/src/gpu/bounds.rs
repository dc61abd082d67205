//! Lower and upper bounds of what pauses cost the GPU, if only calls on the CPU were recorded.
//!
//! Owns the rules from calls to bounds; the report's sums are in `bounds/report.rs`. Probes record when work was
//! enqueued and how long synchronizing calls waited, never when the GPU worked. With GPU times the replay is more
//! precise, and nothing here is used.
//!
//! A bound is the delay of GPU work caused by the pause. The delay is at least the GPU's idle time only if the thread
//! would have continued at once: a wait for data or for another process that the pause hid is not detected.

mod activity;
pub(crate) mod report;

use self::report::BoundsRule;
use super::calls::CallEffect;
use super::timeline::{PauseIndex, ThreadIndex, Timeline};
use crate::spans::PauseSpan;
use activity::CallActivity;
use gctrace_event::GcReason;

/// A shorter synchronizing call did not wait. The call itself takes a few microseconds, and so does
/// a launch before its kernel runs (5 - 10 us on current systems).
pub const AT_ONCE_NS: u64 = 20_000;

/// What the trace as a whole contains.
#[derive(Clone, Copy, Debug)]
pub struct BoundsContext {
    /// Events were lost, so a launch that is not in the trace may have been made.
    pub events_lost: bool,
    /// The process was recorded from its start on.
    pub from_start: bool,
    /// It used more than one device: a call that waits for one then proves nothing about the
    /// others.
    pub several_devices: bool,
}

/// What one pause cost the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseBounds {
    /// The pause, in the timeline of its process.
    pub pause: PauseIndex,
    /// Length of the pause; if it overlaps another, of the part after that.
    pub length_ns: u64,
    /// Lower bound of the delay, in ns.
    pub at_least_ns: u64,
    /// Upper bound of the delay, in ns; at most `length_ns`.
    pub at_most_ns: u64,
    /// The rule that applies to the pause and gives the bounds.
    pub rule: BoundsRule,
}

/// The bounds of each pause, in the timeline's order. `None` without any: there are operations with GPU times (the
/// replay is more precise then), or no call enqueues work.
pub fn bounds(timeline: &Timeline, circumstances: BoundsContext) -> Option<Vec<PauseBounds>> {
    let activity = CallActivity::of(timeline);
    if timeline.has_gpu_times() || activity.launching.is_empty() {
        return None;
    }
    let mut judge = BoundsEvaluator {
        emptiness: activity.emptiness(circumstances.from_start),
        activity: &activity,
        timeline,
        // A launch that is not in the trace proves nothing where launches are not, or may be lost.
        complete: activity.has_launches && !circumstances.events_lost,
        one_device: !circumstances.several_devices,
    };
    let mut covered_ns = 0;
    let bounds = PauseIndex::enumerate(&timeline.pauses).map(|(index, pause)| {
        let start_ns = pause.start_ns.max(covered_ns);
        let end_ns = pause.end_ns.max(start_ns);
        covered_ns = end_ns;
        let part = PauseSpan { start_ns, end_ns, ..*pause };
        let (rule, at_least_ns, at_most_ns) = judge.judge(&part);
        PauseBounds { pause: index, length_ns: part.duration_ns(), at_least_ns, at_most_ns, rule }
    });
    Some(bounds.collect())
}

struct BoundsEvaluator<'a> {
    timeline: &'a Timeline,
    activity: &'a CallActivity<'a>,
    emptiness: activity::EmptyQueueSweep<'a>,
    complete: bool,
    one_device: bool,
}

impl BoundsEvaluator<'_> {
    /// The rule, the lower bound and the upper bound.
    fn judge(&mut self, pause: &PauseSpan) -> (BoundsRule, u64, u64) {
        let length_ns = pause.duration_ns();
        if self.without_work(pause) {
            return (BoundsRule::NoGpuWork, 0, 0);
        }
        if !self.complete {
            return (BoundsRule::Unknown, 0, length_ns);
        }
        if !self.activity.launching.contains(&pause.thread) {
            return self.on_other_thread(pause);
        }
        if !self.one_device {
            return (BoundsRule::Unknown, 0, length_ns);
        }
        let (start_ns, end_ns) = (pause.start_ns, pause.end_ns);
        if self.emptiness.at(start_ns) && !self.activity.put_between(start_ns, end_ns) {
            let at_least_ns = length_ns - length_ns.min(AT_ONCE_NS);
            return (BoundsRule::GpuWasEmpty, at_least_ns, length_ns);
        }
        match self.activity.next_sync(end_ns) {
            Some(sync) if !self.activity.put_between(start_ns, sync.start_ns) => {
                match sync.duration_ns() {
                    ..=AT_ONCE_NS => (BoundsRule::GpuFoundEmpty, 0, length_ns),
                    _ => (BoundsRule::GpuStayedBusy, 0, 0),
                }
            }
            _ => (BoundsRule::Unknown, 0, length_ns),
        }
    }

    /// Whether no work of the GPU can have been delayed.
    fn without_work(&self, pause: &PauseSpan) -> bool {
        let nothing_after = || !self.activity.put_between(pause.start_ns, u64::MAX);
        let nothing_before = || !self.activity.put_before(pause.end_ns);
        pause.reason == GcReason::Shutdown
            || (self.complete && (nothing_before() || nothing_after()))
    }

    /// The collecting thread holds the GIL, so a launching thread is blocked as soon as it needs
    /// it: at most since its last call.
    fn on_other_thread(&self, pause: &PauseSpan) -> (BoundsRule, u64, u64) {
        let (start_ns, end_ns) = (pause.start_ns, pause.end_ns);
        let (mut all_waited, mut at_most_ns) = (true, 0);
        for thread in &self.activity.launching {
            let (seen_ns, waited) = self.last_sign(*thread, pause);
            all_waited &= waited;
            let seen_ns =
                if let Some(ns) = seen_ns { ns.clamp(start_ns, end_ns) } else { start_ns };
            at_most_ns = at_most_ns.max(end_ns - seen_ns);
        }
        if all_waited {
            (BoundsRule::GpuStayedBusy, 0, 0)
        } else {
            (BoundsRule::OtherThread, 0, at_most_ns)
        }
    }

    /// The last time up to the pause's end that the thread was seen running or waiting for the GPU, if any, and
    /// whether it waited for the GPU until the end.
    fn last_sign(&self, thread: ThreadIndex, pause: &PauseSpan) -> (Option<u64>, bool) {
        let calls = &self.timeline.calls;
        let begun = calls.partition_point(|call| call.start_ns <= pause.end_ns);
        let call = calls[..begun].iter().rev().find(|call| call.thread == thread);
        let launches = &self.timeline.counted_launches;
        let begun = launches.partition_point(|launch| launch.first_ns <= pause.end_ns);
        let launch = launches[..begun].iter().rev().find(|launch| launch.thread == thread);
        let launch_ns = launch.map(|launch| {
            if launch.last_ns <= pause.end_ns { launch.last_ns } else { launch.first_ns }
        });
        let waited = call.is_some_and(|call| {
            let waits = matches!(
                call.kind,
                CallEffect::StreamSynchronize
                    | CallEffect::DeviceSynchronize
                    | CallEffect::EventSynchronize
            );
            waits && call.end_ns >= pause.end_ns && call.start_ns <= pause.start_ns
        });
        let call_ns = call.map(|call| call.end_ns.min(pause.end_ns));
        (call_ns.max(launch_ns), waited)
    }
}
