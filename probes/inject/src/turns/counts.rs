//! The turns of one loop: their counts, and which of them are sent. Counted as by the kernel's programs
//! (`ebpf/bpf/loop.bpf.h`). Knows no clock and no ring.

use gctrace_units::{
    LAST_BUCKET, LONG_PAUSE_NS, LONG_TURN_NS, NS_OF_ONE_RECORDED, TURNS_OF_ONE_RECORDED,
    TURNS_RECORDED, add_to, beyond, duration_ns, length_bucket, sum,
};

/// A call that may wait and takes as long has waited: leaving a CPU and coming back takes some microseconds, a look at
/// what is ready one. In ns.
const BLOCKED_NS: u64 = 5_000;
/// CPU time is read once turns have taken as long since it was read last: its clock takes 0.2 us. In ns.
const UNREAD_NS: u64 = 100_000;

/// Time of a thread in collections, so far.
#[derive(Clone, Copy, Default)]
pub(super) struct CollectedTime {
    pub(super) ns: u64,
    pub(super) cpu_ns: u64,
}

/// A turn to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LongTurn {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) in_pauses_ns: u64,
    pub(super) cpu_ns: Option<u64>,
}

/// Counts since they were last taken; the longest of all.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) turns: u64,
    pub(super) total_ns: u64,
    pub(super) longest_ns: u64,
    pub(super) waits: u64,
    pub(super) waited_ns: u64,
    pub(super) longest_busy_ns: u64,
    /// Readings of the CPU time.
    pub(super) readings: u64,
}

/// A loop of a thread. All zeroes are one that has not begun.
pub(super) struct LoopCounts {
    /// The place; 0: none.
    pub(super) place: u64,
    pub(super) counts: Counts,
    lengths: [u32; LAST_BUCKET as usize + 1],
    /// Start of the turn; 0: none has begun.
    begin_ns: u64,
    /// Start of the wait; 0: there is none.
    wait_ns: u64,
    /// When the wait ends at the latest.
    wait_until_ns: u64,
    /// When a signal interrupted it; 0: none did.
    interrupted_ns: u64,
    /// End of the last wait that blocked; 0: there was none.
    busy_ns: u64,
    /// In collections until the turn began.
    collected_ns: u64,
    /// CPU time outside of collections when it was last read; 0: unknown.
    cpu_ns: u64,
    /// Turns that have ended since, in ns.
    unread_ns: u64,
    /// The shortest turn that is sent, in ns.
    limit_ns: u64,
    /// Start of the first turn; 0: there was none.
    since_ns: u64,
    /// Turns sent, but for the ones with a long pause.
    sent: u64,
    all_turns: u64,
}

impl LoopCounts {
    /// Starts to count at a place. `cpu_ns`: as read now.
    pub(super) fn begin(&mut self, place: u64, collected: CollectedTime, cpu_ns: u64) {
        // touches no memory of a new one
        if self.all_turns > 0 {
            self.lengths.fill(0);
        }
        self.place = place;
        self.counts = Counts::default();
        [self.begin_ns, self.wait_ns, self.interrupted_ns, self.busy_ns, self.unread_ns] = [0; 5];
        self.cpu_ns = beyond(cpu_ns, collected.cpu_ns);
        self.limit_ns = LONG_TURN_NS;
        [self.since_ns, self.sent, self.all_turns] = [0; 3];
    }

    /// Number of turns at the place.
    pub(super) fn all_turns(&self) -> u64 {
        self.all_turns
    }

    /// The thread begins to wait here, for `timeout_ns` at most. 0: it looks, and the next turn begins.
    pub(super) fn waits(
        &mut self,
        now_ns: u64,
        timeout_ns: u64,
        collected: CollectedTime,
        cpu_ns: impl FnOnce() -> u64,
    ) -> Option<LongTurn> {
        let interrupted_ns = std::mem::take(&mut self.interrupted_ns);
        if interrupted_ns > 0 {
            // Python goes on to wait after a signal, until the time is over.
            if timeout_ns > 0 && now_ns <= self.wait_until_ns {
                return None;
            }
            self.returns(interrupted_ns, collected);
        }
        let ended = self.end_turn(now_ns, collected, cpu_ns);
        if timeout_ns == 0 {
            self.begin_turn(now_ns, collected);
        } else {
            self.wait_ns = now_ns;
            self.wait_until_ns = sum([now_ns, timeout_ns]);
        }
        ended
    }

    /// A signal interrupted the wait.
    pub(super) fn interrupted(&mut self, now_ns: u64) {
        self.interrupted_ns = now_ns;
    }

    /// The wait has ended.
    pub(super) fn returns(&mut self, now_ns: u64, collected: CollectedTime) {
        let wait_ns = std::mem::take(&mut self.wait_ns);
        let waited_ns = duration_ns(wait_ns, now_ns);
        if waited_ns < BLOCKED_NS {
            return self.begin_turn(wait_ns, collected);
        }
        self.counts.waits += 1;
        add_to(&mut self.counts.waited_ns, waited_ns);
        if self.busy_ns > 0 {
            let busy_ns = duration_ns(self.busy_ns, wait_ns);
            self.counts.longest_busy_ns = self.counts.longest_busy_ns.max(busy_ns);
        }
        self.busy_ns = now_ns;
        self.begin_turn(now_ns, collected);
    }

    fn begin_turn(&mut self, now_ns: u64, collected: CollectedTime) {
        self.begin_ns = now_ns;
        self.collected_ns = collected.ns;
    }

    fn end_turn(
        &mut self,
        now_ns: u64,
        collected: CollectedTime,
        cpu_ns: impl FnOnce() -> u64,
    ) -> Option<LongTurn> {
        let start_ns = std::mem::take(&mut self.begin_ns);
        if start_ns == 0 {
            return None;
        }
        let length_ns = duration_ns(start_ns, now_ns);
        if let Some(count) = self.lengths.get_mut(length_bucket(length_ns) as usize) {
            *count = count.wrapping_add(1);
        }
        if self.all_turns == 0 {
            self.since_ns = start_ns;
        }
        self.all_turns += 1;
        self.counts.turns += 1;
        add_to(&mut self.counts.total_ns, length_ns);
        self.counts.longest_ns = self.counts.longest_ns.max(length_ns);
        let before_ns = self.unread_ns;
        add_to(&mut self.unread_ns, length_ns);
        if self.unread_ns < UNREAD_NS {
            return None;
        }
        let used_ns = self.read(cpu_ns(), collected);
        if length_ns < LONG_TURN_NS {
            return None;
        }
        let in_pauses_ns = beyond(collected.ns, self.collected_ns).min(length_ns);
        let has_pause = in_pauses_ns >= LONG_PAUSE_NS;
        if !has_pause && !self.is_sent(length_ns, now_ns) {
            return None;
        }
        // the turns before took no more than their lengths
        let cpu_ns = used_ns.map(|ns| beyond(ns, before_ns).min(length_ns - in_pauses_ns));
        Some(LongTurn { start_ns, end_ns: now_ns, in_pauses_ns, cpu_ns })
    }

    /// Whether a long turn is sent: the longest are, some each second.
    fn is_sent(&mut self, length_ns: u64, now_ns: u64) -> bool {
        let enough = sum([
            TURNS_RECORDED,
            self.all_turns / TURNS_OF_ONE_RECORDED,
            duration_ns(self.since_ns, now_ns) / NS_OF_ONE_RECORDED,
        ]);
        let is_sent = length_ns >= self.limit_ns;
        self.sent += u64::from(is_sent);
        match (is_sent, self.sent > enough) {
            (true, true) => self.limit_ns = sum([self.limit_ns, self.limit_ns / 8]),
            (false, false) => self.limit_ns = LONG_TURN_NS.max(self.limit_ns - self.limit_ns / 64),
            _ => {}
        }
        is_sent
    }

    /// CPU time outside of collections since it was last read; `None`: unknown. `cpu_ns`: the thread's; 0: unknown.
    fn read(&mut self, cpu_ns: u64, collected: CollectedTime) -> Option<u64> {
        self.counts.readings += 1;
        self.unread_ns = 0;
        let own_ns = beyond(cpu_ns, collected.cpu_ns);
        let before_ns = std::mem::replace(&mut self.cpu_ns, own_ns);
        if own_ns > 0 && before_ns > 0 { Some(beyond(own_ns, before_ns)) } else { None }
    }

    /// Takes the counts, and turns by length: bucket and number.
    pub(super) fn take(&mut self, mut each: impl FnMut(u16, u32)) -> Counts {
        for (bucket, turns) in (0..).zip(&mut self.lengths) {
            if *turns > 0 {
                each(bucket, std::mem::take(turns));
            }
        }
        let Counts { longest_ns, longest_busy_ns, .. } = self.counts;
        std::mem::replace(
            &mut self.counts,
            Counts { longest_ns, longest_busy_ns, ..Counts::default() },
        )
    }
}

#[cfg(test)]
mod tests;
