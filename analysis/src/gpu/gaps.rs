//! The gaps of devices, and what the host did in each.
//!
//! Owns the classes and their order. The launching thread is the one whose call launched the
//! operation that ends the gap. What it did overlaps the gap; whether the gap would have been
//! shorter without it is for `replay`.

use super::calls::CallEffect;
use super::device::{DeviceGap, DeviceTimeline};
use super::timeline::{Call, Op, ThreadIndex, Timeline};
use crate::report::{Basis, DeviceGaps, GapReport, GapsReport, HostTime};
use crate::spans::PauseSpan;
use crate::time::intervals::{Intervals, length};
use crate::time::{add_to, duration, sum};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Maximum number of gaps that the report lists; its sums include all.
const LONGEST: usize = 20;
/// Maximum number of collecting threads that are named per gap.
const COLLECTING: usize = 4;
/// Characters of a name in the report: C++ templates write kernels of several thousand.
const NAME_CHARS: usize = 160;

/// The gaps of one timeline.
pub(crate) struct TimelineGaps {
    /// Sums of each device.
    devices: Vec<DeviceGaps>,
    /// The longest of all devices.
    longest: BinaryHeap<Reverse<RankedGap>>,
}

/// The longest gaps of all devices, and sums of all.
pub(crate) fn report(timelines: impl IntoIterator<Item = TimelineGaps>) -> Option<GapsReport> {
    let mut longest = Vec::new();
    let mut devices = Vec::new();
    for gaps in timelines {
        devices.extend(gaps.devices);
        longest.extend(gaps.longest.into_iter().map(|Reverse(ranked)| ranked));
    }
    if devices.is_empty() {
        return None;
    }
    let mut host = HostTime::default();
    devices.iter().for_each(|device| host.add(&device.host));
    longest.sort_by_key(|ranked| Reverse(ranked.order()));
    longest.truncate(LONGEST);
    Some(GapsReport {
        basis: Basis::Inferred,
        count: devices.iter().map(|device| device.count).sum(),
        time_ns: sum(devices.iter().map(|device| device.time_ns)),
        host,
        devices,
        longest: longest.into_iter().map(|ranked| ranked.gap).collect(),
    })
}

impl TimelineGaps {
    /// `works`: the devices of the timeline.
    pub(crate) fn of(timeline: &Timeline, works: &[DeviceTimeline<'_>]) -> Self {
        let host = HostActivity::of(timeline);
        let mut longest = BinaryHeap::new();
        let devices = works.iter();
        let devices = devices.map(|work| one_device(work, &host, &mut longest));
        Self { devices: devices.collect(), longest }
    }
}

fn one_device(
    work: &DeviceTimeline<'_>,
    host: &HostActivity,
    longest: &mut BinaryHeap<Reverse<RankedGap>>,
) -> DeviceGaps {
    let mut sums = DeviceGaps { id: work.id(), count: 0, time_ns: 0, host: HostTime::default() };
    for gap in work.gaps() {
        let during = host.during(work.timeline, &gap);
        sums.count += 1;
        add_to(&mut sums.time_ns, gap.duration_ns());
        sums.host.add(&during);
        let shortest = longest.peek().map(|Reverse(ranked)| ranked.gap.duration_ns);
        if longest.len() < LONGEST || shortest.is_some_and(|ns| ns < gap.duration_ns()) {
            longest.push(Reverse(RankedGap { gap: gap_report(work, &gap, host, during) }));
        }
        if longest.len() > LONGEST {
            longest.pop();
        }
    }
    sums
}

/// A gap ordered by length; of equally long ones the earlier comes first.
struct RankedGap {
    gap: GapReport,
}

impl RankedGap {
    fn order(&self) -> (u64, Reverse<(usize, u64, u32)>) {
        let id = self.gap.id;
        let place = (id.trace, self.gap.start_ns, id.device);
        (self.gap.duration_ns, Reverse(place))
    }
}

impl PartialEq for RankedGap {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for RankedGap {}

impl PartialOrd for RankedGap {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RankedGap {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

fn gap_report(
    work: &DeviceTimeline<'_>,
    gap: &DeviceGap<'_>,
    host: &HostActivity,
    during: HostTime,
) -> GapReport {
    let timeline = work.timeline;
    let call = timeline.call(gap.after);
    let thread = call.map(|call| &timeline.threads[call.thread]);
    let (first_ns, _) = work.span();
    GapReport {
        id: work.id(),
        start_ns: gap.start_ns,
        after_first_ns: duration(first_ns, gap.start_ns),
        duration_ns: gap.duration_ns(),
        before: name(timeline, gap.before),
        after: name(timeline, gap.after),
        call: call.map(|call| timeline.names.text(call.function).to_owned()),
        tid: thread.map(|thread| thread.tid),
        thread: thread.and_then(|thread| thread.name.clone()),
        collecting: host.collecting(timeline, gap),
        host: during,
    }
}

fn name(timeline: &Timeline, op: &Op) -> String {
    let name = timeline.op_name(op);
    match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// The activity of the threads of a process, by class.
struct HostActivity {
    threads: HashMap<ThreadIndex, ThreadActivity>,
    /// Pauses of all threads.
    pauses: Intervals,
}

/// The activities of one thread.
#[derive(Default)]
struct ThreadActivity {
    pauses: Intervals,
    synchronizing: Intervals,
    memory: Intervals,
    data: Intervals,
}

impl HostActivity {
    fn of(timeline: &Timeline) -> Self {
        let mut raw: HashMap<ThreadIndex, [Vec<(u64, u64)>; 4]> = HashMap::new();
        for pause in &timeline.pauses {
            let [pauses, ..] = raw.entry(pause.thread).or_default();
            pauses.push(pause.span());
        }
        for call in &timeline.calls {
            if !call.kind.may_block() {
                continue;
            }
            let [_, synchronizing, memory, _] = raw.entry(call.thread).or_default();
            let list = match call.kind {
                CallEffect::Copy | CallEffect::Memory => memory,
                _ => synchronizing,
            };
            list.push(call.span());
        }
        let mut loads = HashMap::new();
        for span in &timeline.annotations {
            let name = || loads_data(timeline.names.text(span.name));
            if *loads.entry(span.name).or_insert_with(name) {
                let [_, _, _, data] = raw.entry(span.thread).or_default();
                data.push((span.start_ns, span.end_ns));
            }
        }
        let threads = raw.into_iter().map(|(thread, lists)| {
            let [pauses, synchronizing, memory, data] = lists.map(Intervals::from_iter);
            let activity = ThreadActivity { pauses, synchronizing, memory, data };
            (thread, activity)
        });
        Self {
            threads: threads.collect(),
            pauses: timeline.pauses.iter().map(PauseSpan::span).collect(),
        }
    }

    /// Thread ids of the threads that collected during a gap, the longest first.
    fn collecting(&self, timeline: &Timeline, gap: &DeviceGap<'_>) -> Vec<u32> {
        let threads = self.threads.iter().filter_map(|(thread, activity)| {
            let time_ns = activity.pauses.length_within(gap.start_ns, gap.end_ns);
            (time_ns > 0).then(|| (Reverse(time_ns), timeline.threads[*thread].tid))
        });
        let mut threads: Vec<_> = threads.collect();
        threads.sort_unstable();
        threads.truncate(COLLECTING);
        threads.into_iter().map(|(_, tid)| tid).collect()
    }

    /// A gap's ns by class. If several apply, the first counts: the launch was under way; the
    /// thread collected, waited for the GPU, copied or allocated; another thread collected; the
    /// thread waited for data; it did something else.
    fn during(&self, timeline: &Timeline, gap: &DeviceGap<'_>) -> HostTime {
        let mut time = HostTime::default();
        let mut rest = vec![(gap.start_ns, gap.end_ns)];
        let Some(call) = timeline.call(gap.after) else {
            time.gc_on_other_thread_ns = self.pauses.take_from(&mut rest);
            time.unknown_ns = length(rest);
            return time;
        };
        time.launch_under_way_ns = launched(call, gap).take_from(&mut rest);
        if let Some(thread) = self.threads.get(&call.thread) {
            time.gc_ns = thread.pauses.take_from(&mut rest);
            time.synchronizing_ns = thread.synchronizing.take_from(&mut rest);
            time.copy_or_allocation_ns = thread.memory.take_from(&mut rest);
        }
        time.gc_on_other_thread_ns = self.pauses.take_from(&mut rest);
        if let Some(thread) = self.threads.get(&call.thread) {
            time.waiting_for_data_ns = thread.data.take_from(&mut rest);
        }
        time.launching_late_ns = length(rest);
        time
    }
}

/// The part of a gap after the start of the call that launched the operation at its end.
fn launched(call: &Call, gap: &DeviceGap<'_>) -> Intervals {
    Intervals::from_iter([(call.start_ns.max(gap.start_ns), gap.end_ns)])
}

/// Whether an annotation of that name marks data loading: PyTorch's
/// `enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__`, or one of the program's own, such
/// as `## data_load ##`.
fn loads_data(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphabetic);
    let letters: String = letters.map(|char| char.to_ascii_lowercase()).collect();
    letters.contains("dataload") || letters.contains("loaddata")
}

impl HostTime {
    fn add(&mut self, other: &Self) {
        for (sum, more) in self.classes_mut().into_iter().zip(other.classes()) {
            add_to(sum, more);
        }
    }

    fn classes_mut(&mut self) -> [&mut u64; 8] {
        [
            &mut self.gc_ns,
            &mut self.gc_on_other_thread_ns,
            &mut self.synchronizing_ns,
            &mut self.copy_or_allocation_ns,
            &mut self.waiting_for_data_ns,
            &mut self.launch_under_way_ns,
            &mut self.launching_late_ns,
            &mut self.unknown_ns,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_loading() {
        assert!(loads_data("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"));
        assert!(loads_data("## data_load ##"));
        assert!(!loads_data("## forward ##"));
    }
}
