//! Time namespaces: how far the clocks of processes are ahead of the kernel's clocks, read by probes.
//!
//! A process may be in one of its own (containers, CRIU, unshare --time); it changes with a fork, an exec or setns(2)
//! alone. The kernel states the offsets of the namespace that the next child of a process will be in.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Inode of the first namespace: its clocks are the kernel's (`PROC_TIME_INIT_INO`, Linux 5.6).
const FIRST: u64 = 0xEFFF_FFFA;
/// [`own_ahead_ns`] is unknown; the kernel permits no such offset.
const UNKNOWN: i64 = i64::MIN;

/// Why probes cannot be used where [`own_ahead_ns`] is unknown.
pub const UNKNOWN_CLOCK: &str = "gctrace is in a time namespace, and how far its clock is from the kernel's \
    cannot be asked for: start gctrace outside of it, nsenter -t 1 -T";

/// How far CLOCK_MONOTONIC of this process is ahead of the kernel's, in ns; `None` if that is unknown.
pub fn own_ahead_ns() -> Option<i64> {
    // For this process: a forked child may be in another namespace. No lock: a fork could leave it locked.
    static PID: AtomicU32 = AtomicU32::new(0);
    static AHEAD_NS: AtomicI64 = AtomicI64::new(0);
    let pid = std::process::id();
    if PID.load(Ordering::Acquire) != pid {
        let own = namespace("self", "time");
        let ahead_ns = if let Some(own) = own { ahead(own, "self") } else { Some(0) };
        let ahead_ns = ahead_ns.or_else(|| all_ahead_ns().get(&own?).copied());
        AHEAD_NS.store(ahead_ns.unwrap_or(UNKNOWN), Ordering::Relaxed);
        PID.store(pid, Ordering::Release);
    }
    let ahead_ns = AHEAD_NS.load(Ordering::Relaxed);
    if ahead_ns != UNKNOWN { Some(ahead_ns) } else { None }
}

/// The clocks of other processes.
#[derive(Default)]
pub struct ProcessClocks {
    /// By namespace, of all processes that could be read. A namespace may be gone, and its number reused.
    scanned: Option<HashMap<u64, i64>>,
}

impl ProcessClocks {
    /// Forgets earlier results.
    pub fn forget(&mut self) {
        self.scanned = None;
    }

    /// How far CLOCK_MONOTONIC of a process is ahead of a trace's clock, in ns; `None` if that is unknown. `otherwise`:
    /// if it has exited, or may not be looked at; the namespace number reported by the process, or an assumption.
    pub fn ahead_ns(&mut self, pid: u32, otherwise: OtherClock) -> Option<i64> {
        let process = pid.to_string();
        let id = match (namespace(&process, "time"), otherwise) {
            (Some(id), _) | (None, OtherClock::Stated(id @ 1..)) => id,
            (None, OtherClock::Stated(_)) => return Some(own_ahead_ns().unwrap_or(0)),
            (None, OtherClock::Assumed(ahead_ns)) => return Some(ahead_ns),
        };
        if namespace("self", "time") == Some(id) {
            return Some(own_ahead_ns().unwrap_or(0));
        }
        own_ahead_ns()?;
        match ahead(id, &process) {
            None => self.scanned.get_or_insert_with(all_ahead_ns).get(&id).copied(),
            found => found,
        }
    }
}

/// Knowledge of a process's clock without asking the kernel.
#[derive(Clone, Copy, Debug)]
pub enum OtherClock {
    /// The number of its namespace as the process reports it; 0: the process does not know it.
    Stated(u64),
    /// How far it is ahead, in ns.
    Assumed(i64),
}

/// Number of a namespace of a process: of its `time`, or of its `time_for_children`. `None`: the kernel has none, or the
/// process has exited or may not be looked at.
fn namespace(process: &str, which: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/{which}")).ok()?.ino())
}

/// How far the clocks in a namespace are ahead, if this process's children are in it.
fn ahead(namespace_id: u64, process: &str) -> Option<i64> {
    if namespace_id == FIRST {
        return Some(0);
    }
    if namespace(process, "time_for_children")? != namespace_id {
        return None;
    }
    monotonic_offset_ns(&fs::read_to_string(format!("/proc/{process}/timens_offsets")).ok()?)
}

/// By namespace, of all processes that this process may inspect.
fn all_ahead_ns() -> HashMap<u64, i64> {
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(process) = name.to_str()
            && process.bytes().all(|digit| digit.is_ascii_digit())
            && let Some(id) = namespace(process, "time_for_children")
            && !found.contains_key(&id)
            && let Some(ahead_ns) = ahead(id, process)
        {
            found.insert(id, ahead_ns);
        }
    }
    found
}

/// The offset of CLOCK_MONOTONIC in a file `timens_offsets` (time_namespaces(7)), in ns.
fn monotonic_offset_ns(offsets: &str) -> Option<i64> {
    let mut lines = offsets.lines().map(str::split_ascii_whitespace);
    // Before Linux 5.7 the clock is a number.
    let mut words = lines.find_map(|mut words| match words.next() {
        Some("monotonic" | "1") => Some(words),
        _ => None,
    })?;
    let seconds: i64 = words.next()?.parse().ok()?;
    let ns: i64 = words.next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read() {
        let text = "monotonic      86400         5\nboottime          -7         0\n";
        assert_eq!(monotonic_offset_ns(text), Some(86_400_000_000_005));
        assert_eq!(monotonic_offset_ns("7 1 1\n1 -2 500000000\n"), Some(-1_500_000_000));
        for damaged in [
            "",
            "boottime 1 0\n",
            "monotonic\n",
            "monotonic x 0\n",
            "monotonic 9223372036854775807 0",
        ] {
            assert_eq!(monotonic_offset_ns(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn a_process_like_this_one_has_its_clock() {
        let mut clocks = ProcessClocks::default();
        let own = own_ahead_ns();
        assert!(own.is_some());
        assert_eq!(clocks.ahead_ns(std::process::id(), OtherClock::Stated(0)), own);
        // It has exited, or never was.
        assert_eq!(clocks.ahead_ns(u32::MAX, OtherClock::Stated(0)), own);
        assert_eq!(clocks.ahead_ns(u32::MAX, OtherClock::Assumed(3)), Some(3));
        let nowhere = OtherClock::Stated(5);
        assert_eq!(clocks.ahead_ns(u32::MAX, nowhere), None, "in a namespace that is nowhere");
    }
}
