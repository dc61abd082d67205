//! Requests to keep segments for good, and their reasons.
//!
//! Owns the choice of pauses and steps above their limits to keep or to let go. The first one is kept at once, and so
//! is one of twice the length of all that were kept. The others wait until the segments that were kept last are
//! deleted, or the recording ends: until then one folder can have several.

use super::{Now, SegmentedTrace};
use crate::units::count;
use gctrace_event::{NotKept, Note, Record};
use gctrace_units::{add_to, beyond, duration_ns};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// Most folders that pauses and steps have kept; folders requested by a user are kept in any case.
const MOST_KEPT: usize = 20;

/// Requests to keep segments for good.
#[derive(Default)]
pub(super) struct KeepRequests {
    /// The user asked.
    pub(super) asked: Option<&'static str>,
    /// Pauses and steps that no folder has yet, by the number of their segment.
    noticed: BTreeMap<u64, Noticed>,
    /// The folders that this recording has kept.
    kept: Vec<KeptFolder>,
    /// The last segment that was kept.
    last_kept: u64,
    /// The longest of all that were kept, in ns.
    longest_kept_ns: u64,
    /// Pauses and steps that no folder has, and no segment any more.
    let_go: Option<Noticed>,
    /// The limit on folders was stated.
    is_limit_noted: bool,
}

/// Pauses and steps above their limits.
#[derive(Clone, Debug)]
struct Noticed {
    count: u64,
    longest: LongEvent,
}

/// A pause, a step or a turn above its limit.
#[derive(Clone, Debug)]
pub(super) struct LongEvent {
    pub(super) length_ns: u64,
    /// Its end, in ns of CLOCK_MONOTONIC.
    pub(super) at_ns: u64,
    /// With its length, in words.
    pub(super) what: String,
}

struct KeptFolder {
    path: PathBuf,
    /// The segments in it.
    numbers: Vec<u64>,
    /// The pauses, steps and turns it was kept for; empty if the user asked for it.
    noticed: BTreeMap<u64, Noticed>,
}

impl Noticed {
    fn one(longest: LongEvent) -> Self {
        Self { count: 1, longest }
    }

    fn add(&mut self, more: Self) {
        add_to(&mut self.count, more.count);
        if more.longest.length_ns > self.longest.length_ns {
            self.longest = more.longest;
        }
    }

    fn sum(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|mut sum, more| {
            sum.add(more);
            sum
        })
    }

    /// `a pause of 3.97 s in process 7, the longest of 4`.
    fn words(&self) -> String {
        match self.count {
            1 => self.longest.what.clone(),
            count => format!("{}, the longest of {count}", self.longest.what),
        }
    }
}

impl KeptFolder {
    fn longest_ns(&self) -> Option<u64> {
        self.noticed.values().map(|noticed| noticed.longest.length_ns).max()
    }
}

impl KeepRequests {
    /// A pause or a step above its limit, in this segment; `None`: in none.
    pub(super) fn notice(&mut self, segment: Option<u64>, event: LongEvent) {
        let noticed = Noticed::one(event);
        let Some(segment) = segment else { return self.let_go(noticed) };
        match self.noticed.get_mut(&segment) {
            Some(before) => before.add(noticed),
            None => drop(self.noticed.insert(segment, noticed)),
        }
    }

    /// Whether segments are to be kept now; `oldest`: the number of the oldest one.
    pub(super) fn is_due(&self, oldest: u64) -> bool {
        let waiting = self.noticed.values().map(|noticed| noticed.longest.length_ns).max();
        let is_new = |length_ns: u64| length_ns / 2 >= self.longest_kept_ns;
        self.asked.is_some()
            || matches!(waiting, Some(length_ns) if oldest > self.last_kept || is_new(length_ns))
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.noticed.is_empty()
    }

    /// Why segments are kept now.
    pub(super) fn reason(&self) -> String {
        let noticed = Noticed::sum(self.noticed.values().cloned());
        let noticed = noticed.map(|noticed| noticed.words());
        let reasons: Vec<String> =
            self.asked.map(ToOwned::to_owned).into_iter().chain(noticed).collect();
        reasons.join("; ")
    }

    /// A segment is deleted.
    pub(super) fn deleted(&mut self, number: u64) {
        self.noticed.remove(&number).into_iter().for_each(|noticed| self.let_go(noticed));
    }

    fn let_go(&mut self, noticed: Noticed) {
        match &mut self.let_go {
            Some(sum) => sum.add(noticed),
            None => self.let_go = Some(noticed),
        }
    }

    /// Takes the folder with the shortest pauses and steps, if a longer one is to have its place.
    fn take_shorter(&mut self, length_ns: u64) -> Option<KeptFolder> {
        let lengths = self.kept.iter().enumerate();
        let lengths = lengths.filter_map(|(at, kept)| Some((kept.longest_ns()?, at)));
        let (shortest_ns, at) = lengths.min()?;
        if shortest_ns < length_ns { Some(self.kept.remove(at)) } else { None }
    }

    /// A folder is gone: pauses and steps that no other folder has are let go.
    fn removed(&mut self, folder: KeptFolder) {
        for (number, noticed) in folder.noticed {
            if !self.kept.iter().any(|kept| kept.numbers.contains(&number)) {
                self.let_go(noticed);
            }
        }
    }

    /// The pauses and steps let go, for the totals.
    pub(super) fn not_kept(&self) -> NotKept {
        let Some(sum) = &self.let_go else { return NotKept::default() };
        NotKept {
            count: sum.count,
            longest_ns: sum.longest.length_ns,
            longest_at_ns: sum.longest.at_ns,
        }
    }
}

impl SegmentedTrace {
    /// Notices a pause or a step above its limit, if the segment that is written has it.
    pub(super) fn notice(&mut self, event: LongEvent) {
        let segment = self.current.as_ref().map(|current| current.number);
        self.requests.notice(segment, event);
    }

    /// Completes the segments to keep with all that belongs to them.
    pub(super) fn prepare_kept(&mut self, at_ns: u64) {
        self.begin_gpu_part(at_ns);
        let message = format!("kept: {}", self.requests.reason());
        self.put(&Record::Note(Note { pid: None, at_ns, message }));
    }

    /// Keeps all present segments in a folder.
    pub(super) fn keep(&mut self, now: Now) {
        let numbers: Vec<u64> = self.closed.iter().map(|segment| segment.number).collect();
        let reason = self.requests.reason();
        self.requests.last_kept = numbers.last().copied().unwrap_or(0);
        let mut noticed = std::mem::take(&mut self.requests.noticed);
        // Pauses and steps of the unfinished segment.
        self.requests.noticed = noticed.split_off(&(self.requests.last_kept + 1));
        let sum = Noticed::sum(noticed.values().cloned());
        let length_ns = if let Some(sum) = &sum { sum.longest.length_ns } else { 0 };
        let is_asked = self.requests.asked.take().is_some();
        if !is_asked && !self.has_room(length_ns, &reason) {
            return sum.into_iter().for_each(|sum| self.requests.let_go(sum));
        }
        match self.folder.keep(&numbers, &format!("{}: {reason}", time_of(now.unix_ns))) {
            Ok(path) => {
                tracing::warn!("kept in {}: {reason}", path.display());
                self.requests.longest_kept_ns = self.requests.longest_kept_ns.max(length_ns);
                if is_asked {
                    noticed.clear();
                }
                self.requests.kept.push(KeptFolder { path, numbers, noticed });
            }
            Err(error) => {
                tracing::warn!("cannot keep the last segments ({reason}): {error}");
                sum.into_iter().for_each(|sum| self.requests.let_go(sum));
            }
        }
    }

    /// Whether there is room for another folder; a folder of shorter pauses and steps makes room for longer ones.
    fn has_room(&mut self, length_ns: u64, reason: &str) -> bool {
        if self.folder.kept() < MOST_KEPT {
            self.requests.is_limit_noted = false;
            return true;
        }
        if let Some(shorter) = self.requests.take_shorter(length_ns) {
            match self.folder.remove_kept(&shorter.path) {
                Ok(()) => {
                    tracing::warn!("{} makes room for {reason}", shorter.path.display());
                    self.requests.removed(shorter);
                    return true;
                }
                Err(error) => tracing::warn!("{} stays: {error}", shorter.path.display()),
            }
        }
        if !std::mem::replace(&mut self.requests.is_limit_noted, true) {
            tracing::warn!(
                "not kept ({reason}): {MOST_KEPT} folders are kept in {} already; remove some of \
                 them, and the next is kept",
                self.path().display()
            );
        }
        false
    }

    /// States the pauses and steps let go, on the screen and in the trace; at the end.
    pub(super) fn state_let_go(&mut self) {
        let Some(let_go) = &self.requests.let_go else { return };
        let LongEvent { at_ns, what, .. } = &let_go.longest;
        let ago_ns = duration_ns(*at_ns, self.now.monotonic_ns);
        let time = time_of(beyond(self.now.unix_ns, ago_ns));
        let message = format!(
            "pauses and steps above the limit that are not kept: {}; the longest: {what}, at {time}",
            count(let_go.count)
        );
        tracing::warn!("{message}");
        let at_ns = self.now.monotonic_ns;
        self.put(&Record::Note(Note { pid: None, at_ns, message }));
    }
}

fn time_of(unix_ns: u64) -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(unix_ns))
}
