//! When work was enqueued and when streams are known to be empty, according to calls on the CPU.

use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::{Call, StreamIndex, ThreadIndex, Timeline};
use std::collections::{BTreeMap, BTreeSet};

/// Work was put into a stream at some time from `from_ns` to `to_ns`, perhaps at several.
#[derive(Clone, Copy, Debug)]
struct Enqueue {
    from_ns: u64,
    to_ns: u64,
    stream: Option<StreamIndex>,
}

/// The relevant calls of one process.
#[derive(Debug)]
pub(super) struct CallActivity<'a> {
    /// Calls that enqueue work, by `from_ns`.
    puts: Vec<Enqueue>,
    /// For each put the latest `to_ns` up to and including it.
    latest_to_ns: Vec<u64>,
    /// Calls that return when work is done, by start.
    syncs: Vec<&'a Call>,
    /// Threads that put work into streams.
    pub(super) launching: BTreeSet<ThreadIndex>,
    /// Whether launches are in the trace at all.
    pub(super) has_launches: bool,
}

impl<'a> CallActivity<'a> {
    pub(super) fn of(timeline: &'a Timeline) -> Self {
        let mut activity = Self {
            puts: Vec::new(),
            latest_to_ns: Vec::new(),
            syncs: Vec::new(),
            launching: BTreeSet::new(),
            has_launches: !timeline.counted_launches.is_empty(),
        };
        for call in &timeline.calls {
            activity.add(call);
        }
        for launches in &timeline.counted_launches {
            activity.launching.insert(launches.thread);
            let mut put = |from_ns, to_ns| {
                activity.puts.push(Enqueue { from_ns, to_ns, stream: launches.stream });
            };
            match launches.count {
                0 => {}
                1 | 2 => {
                    put(launches.first_ns, launches.first_ns);
                    put(launches.last_ns, launches.last_ns);
                }
                _ => put(launches.first_ns, launches.last_ns),
            }
        }
        activity.puts.sort_by_key(|put| (put.from_ns, put.to_ns));
        let latest = activity.puts.iter().scan(0, |latest, put| {
            *latest = put.to_ns.max(*latest);
            Some(*latest)
        });
        activity.latest_to_ns = latest.collect();
        activity
    }

    fn add(&mut self, call: &'a Call) {
        match call.kind {
            CallEffect::Launch | CallEffect::GraphLaunch => self.has_launches = true,
            CallEffect::Copy | CallEffect::Collective => {}
            CallEffect::StreamSynchronize
            | CallEffect::DeviceSynchronize
            | CallEffect::EventSynchronize => {
                // A call with an unknown end shows neither how long it waited nor the operations that ended.
                if call.timed {
                    self.syncs.push(call);
                }
                return;
            }
            _ => return,
        }
        self.launching.insert(call.thread);
        self.puts.push(Enqueue { from_ns: call.start_ns, to_ns: call.end_ns, stream: call.stream });
    }

    /// Whether work may have been put into any stream after `from_ns` and before `to_ns`.
    pub(super) fn put_between(&self, from_ns: u64, to_ns: u64) -> bool {
        let begun = self.puts.partition_point(|put| put.from_ns < to_ns);
        let Some(latest) = self.latest_to_ns[..begun].last() else { return false };
        *latest > from_ns
    }

    /// Whether work was put into any stream before that time.
    pub(super) fn put_before(&self, at_ns: u64) -> bool {
        let Some(put) = self.puts.first() else { return false };
        put.from_ns < at_ns
    }

    /// The first synchronizing call that starts at that time or later.
    pub(super) fn next_sync(&self, at_ns: u64) -> Option<&'a Call> {
        let before = self.syncs.partition_point(|sync| sync.start_ns < at_ns);
        self.syncs.get(before).copied()
    }

    /// Answers, for ascending times, whether all streams were known to be empty.
    pub(super) fn emptiness(&self, from_start: bool) -> EmptyQueueSweep<'_> {
        let mut by_end = self.syncs.clone();
        by_end.sort_by_key(|sync| sync.end_ns);
        EmptyQueueSweep {
            activity: self,
            by_end,
            puts_seen: 0,
            syncs_seen: 0,
            latest_put_ns: BTreeMap::new(),
            emptied_ns: BTreeMap::new(),
            all_emptied_ns: None,
            from_start,
        }
    }
}

/// A sweep over puts and synchronizing calls in order of time.
#[derive(Debug)]
pub(super) struct EmptyQueueSweep<'a> {
    activity: &'a CallActivity<'a>,
    by_end: Vec<&'a Call>,
    puts_seen: usize,
    syncs_seen: usize,
    /// For each stream, the last time that work may have been enqueued.
    latest_put_ns: BTreeMap<Option<StreamIndex>, u64>,
    /// For each stream, the end of the time covered by finished work.
    emptied_ns: BTreeMap<StreamIndex, u64>,
    /// The same of all streams.
    all_emptied_ns: Option<u64>,
    /// Whether all calls from the process's start on are in the trace.
    from_start: bool,
}

impl EmptyQueueSweep<'_> {
    /// Whether at that time all streams were empty for certain. Times ascend from call to call.
    pub(super) fn at(&mut self, at_ns: u64) -> bool {
        self.advance(at_ns);
        if !self.from_start && self.all_emptied_ns.is_none() {
            return false;
        }
        self.latest_put_ns.iter().all(|(stream, put_ns)| {
            let own_ns = stream.and_then(|stream| self.emptied_ns.get(&stream));
            Some(*put_ns) <= own_ns.copied().max(self.all_emptied_ns)
        })
    }

    fn advance(&mut self, at_ns: u64) {
        while let Some(put) = self.activity.puts.get(self.puts_seen)
            && put.from_ns < at_ns
        {
            let latest = self.latest_put_ns.entry(put.stream).or_default();
            *latest = put.to_ns.max(*latest);
            self.puts_seen += 1;
        }
        while let Some(sync) = self.by_end.get(self.syncs_seen)
            && sync.end_ns <= at_ns
        {
            match (sync.kind, sync.stream) {
                (CallEffect::DeviceSynchronize, _) => {
                    self.all_emptied_ns = self.all_emptied_ns.max(Some(sync.start_ns));
                }
                (CallEffect::StreamSynchronize, Some(stream)) => {
                    let emptied = self.emptied_ns.entry(stream).or_default();
                    *emptied = sync.start_ns.max(*emptied);
                }
                _ => {}
            }
            self.syncs_seen += 1;
        }
    }
}
