//! Turns of loops: what a thread does between two waits for input at the same place.

use super::kind::{LONGEST_NS, Phase, declare};
use super::{FrameId, OffCpuReason};
use bitcode::{Decode, Encode};
use gctrace_units::{add_to, beyond};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a thread waits for input again and again.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Encode,
    Decode,
)]
pub struct LoopPlace {
    /// Name of the system call or function that waits, `epoll_wait` for example; [`WORK_CALL`] for work, [`THREAD_CALL`]
    /// where each turn is the life of a thread.
    pub call: String,
    /// The lower half of its first argument, a descriptor or an address; of `poll` the first descriptor; of its stack where it waits for work or starts
    /// threads.
    pub argument: u32,
}

/// The call of a [`LoopPlace`] where a thread waits for a lock until another thread gives it work ([`takes_work`]).
pub const WORK_CALL: &str = "queue";

/// The call of a [`LoopPlace`] that starts a thread for each piece of work ([`starts_threads`]).
pub const THREAD_CALL: &str = "thread";

/// Functions that take work from other threads, with their files: `queue` and `multiprocessing` of the standard library,
/// its thread pool, and the threads of waitress.
const TAKE_WORK: [(&str, &str); 4] = [
    ("queue.py", "get"),
    ("queues.py", "get"),
    ("thread.py", "_worker"),
    ("task.py", "handler_thread"),
];

/// Whether a thread that waits for a lock with these frames, file and function from the innermost on, waits for work.
///
/// ```
/// let wait = ("/usr/lib/python3.11/threading.py", "Condition.wait");
/// let get = ("/usr/lib/python3.11/queue.py", "Queue.get");
/// assert!(gctrace_event::takes_work([wait, get]));
/// assert!(!gctrace_event::takes_work([wait, ("serve.py", "put")]));
/// ```
pub fn takes_work<'a>(frames: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
    for (path, qualified) in frames {
        let file = path.rsplit('/').next().unwrap_or_default();
        let function = qualified.rsplit('.').next().unwrap_or_default();
        // Conditions wait there.
        if file != "threading.py" {
            return TAKE_WORK.contains(&(file, function));
        }
    }
    false
}

/// Whether a thread with these frames, file and function from the innermost on, starts another one with
/// `threading.Thread`.
///
/// ```
/// let start = ("/usr/lib/python3.11/threading.py", "Thread.start");
/// assert!(gctrace_event::starts_threads([start, ("serve.py", "serve")]));
/// ```
pub fn starts_threads<'a>(frames: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
    let Some((path, qualified)) = frames.into_iter().next() else { return false };
    path.ends_with("/threading.py") && qualified.ends_with("start")
}

/// Whether a call waits for several inputs or for connections, as the loop of a service does. Who waits for one may wait
/// for the answer to a question of its own.
#[must_use]
pub fn waits_for_many(call: &str) -> bool {
    ["poll", "select", "accept"].iter().any(|many| call.contains(many))
}

/// The turns of one loop that ended in an interval. A turn ends when the thread waits for input there, or looks
/// whether there is some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Turns {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the thread.
    #[serde(skip)]
    pub tid: u32,
    /// Start of the interval, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Its end.
    pub until_ns: u64,
    /// The loop.
    pub place: LoopPlace,
    /// Number of turns that ended.
    pub turns: u64,
    /// The sum of their lengths, in ns.
    pub total_ns: u64,
    /// The longest turn of the loop so far, in ns.
    pub longest_ns: u64,
    /// Waits that blocked the thread: as many busy periods ended. A busy period is one or several turns without a wait.
    pub waits: u64,
    /// The sum of these waits, in ns.
    pub waited_ns: u64,
    /// The longest busy period of the loop so far, in ns.
    pub longest_busy_ns: u64,
    /// Turns by length: bucket ([`gctrace_units::bucket_ns`]) and number, ascending.
    pub lengths: Vec<(u32, u64)>,
    /// Whether looks that do not wait end turns. Otherwise each turn is a busy period.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sees_looks: bool,
    /// The innermost Python frame of its last wait; `None` if no stack was taken.
    #[serde(skip)]
    pub stack: Option<FrameId>,
}

impl Turns {
    /// Adds the turns of a later interval of the same loop.
    pub fn append(&mut self, later: Self) {
        let mut lengths: BTreeMap<u32, u64> = self.lengths.drain(..).collect();
        for (bucket, count) in later.lengths {
            add_to(lengths.entry(bucket).or_default(), count);
        }
        let sums = [
            (&mut self.turns, later.turns),
            (&mut self.total_ns, later.total_ns),
            (&mut self.waits, later.waits),
            (&mut self.waited_ns, later.waited_ns),
        ];
        for (sum, more) in sums {
            add_to(sum, more);
        }
        self.until_ns = self.until_ns.max(later.until_ns);
        self.longest_ns = self.longest_ns.max(later.longest_ns);
        self.longest_busy_ns = self.longest_busy_ns.max(later.longest_busy_ns);
        self.lengths = lengths.into_iter().collect();
        self.sees_looks |= later.sees_looks;
        self.stack = later.stack.or(self.stack);
    }

    /// What was added since an earlier reading of the same loop.
    #[must_use]
    pub fn since(self, before: &Self) -> Self {
        let mut counted = before.lengths.iter().peekable();
        let lengths = self.lengths.iter().filter_map(|(bucket, count)| {
            while counted.next_if(|(of, _)| of < bucket).is_some() {}
            let known = counted.next_if(|(of, _)| of == bucket).map_or(0, |(_, count)| *count);
            Some((*bucket, beyond(*count, known))).filter(|(_, added)| *added > 0)
        });
        Self {
            turns: beyond(self.turns, before.turns),
            total_ns: beyond(self.total_ns, before.total_ns),
            waits: beyond(self.waits, before.waits),
            waited_ns: beyond(self.waited_ns, before.waited_ns),
            lengths: lengths.collect(),
            ..self
        }
    }
}

declare! {
    Turns: Phase::Meta, "gctrace_turns", "turns of a loop",
    pid: pid, tid: tid, at: at_ns, end: until_ns, stack: stack, by: "--sample";
    fn check(&self) -> Result<(), &'static str> {
        if !(self.at_ns..=LONGEST_NS).contains(&self.until_ns) {
            return Err("turns of a loop end before they start");
        }
        Ok(())
    }
}

/// A turn that was long, compared to the others of its loop, or contains a millisecond of collections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Turn {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the thread.
    #[serde(skip)]
    pub tid: u32,
    /// The return of the wait, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub start_ns: u64,
    /// The next wait or look.
    #[serde(skip)]
    pub end_ns: u64,
    /// The loop.
    pub place: LoopPlace,
    /// Time in collections of this thread, in ns, with its waits there.
    #[serde(default)]
    pub in_pauses_ns: u64,
    /// Other time off the CPU by reason, in ns, however short each wait was.
    #[serde(default)]
    pub waits: Vec<(OffCpuReason, u64)>,
    /// CPU time of the thread in it outside of these collections, in ns, at most 0.1 ms too much. `None` where `waits`
    /// tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
}

declare! {
    Turn: Phase::Slice, "turn", "a turn",
    pid: pid, tid: tid, at: start_ns, end: end_ns, spaced: Samples, by: "--sample"
}

impl Turn {
    /// Its length, in ns.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        gctrace_units::duration_ns(self.start_ns, self.end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_written_as_what_was_added() {
        let before = Turns { turns: 3, lengths: vec![(1, 1), (5, 2)], ..Turns::default() };
        let lengths = vec![(0, 1), (1, 1), (5, 4), (9, 1)];
        let added = Turns { turns: 7, lengths, ..Turns::default() }.since(&before);
        assert_eq!((added.turns, &added.lengths), (4, &vec![(0, 1), (5, 2), (9, 1)]));
        let mut all = before;
        all.append(added);
        assert_eq!((all.turns, all.lengths), (7, vec![(0, 1), (1, 1), (5, 4), (9, 1)]));
    }
}
