//! Private memory of forked processes: pages shared with their parent until one of both wrote to them.
//!
//! `smaps_rollup` goes through the page tables with the memory's lock, for milliseconds in a large process: each is
//! read at the ages of 0, 1, 2, 4, 8 seconds and so on, of the first processes.

use gctrace_probes::process_memory;
use gctrace_units::{after, duration_ns, times};

/// Maximum number of forked processes to look at.
const MOST: usize = 16;

/// The forked processes of a recording that are examined for private memory.
#[derive(Debug, Default)]
pub(crate) struct PrivateMemory {
    forked: Vec<ForkedProcess>,
}

#[derive(Debug)]
struct ForkedProcess {
    pid: u32,
    forked_ns: u64,
    next_ns: u64,
}

impl PrivateMemory {
    /// A process was forked, and has executed nothing.
    pub(crate) fn forked(&mut self, pid: u32, at_ns: u64) {
        if self.forked.len() < MOST && self.forked.iter().all(|one| one.pid != pid) {
            self.forked.push(ForkedProcess { pid, forked_ns: at_ns, next_ns: at_ns });
        }
    }

    /// It shares no pages any more: it executed a program.
    pub(crate) fn executed(&mut self, pid: u32) {
        for one in &mut self.forked {
            if one.pid == pid {
                one.next_ns = u64::MAX;
            }
        }
    }

    /// Its private memory in bytes, if it is time to look.
    pub(crate) fn look(&mut self, pid: u32, now_ns: u64) -> Option<u64> {
        const SECOND: u64 = 1_000_000_000;
        let one = self.forked.iter_mut().find(|one| one.pid == pid && one.next_ns <= now_ns)?;
        let age_ns = duration_ns(one.forked_ns, now_ns).max(SECOND / 2);
        one.next_ns = after(one.forked_ns, times(age_ns, 2));
        process_memory::private_bytes(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_look_is_twice_as_late_as_the_one_before() {
        let mut memory = PrivateMemory::default();
        let pid = std::process::id();
        assert_eq!(memory.look(pid, 0), None);
        memory.forked(pid, 0);
        let looks = |memory: &mut PrivateMemory| {
            let all = 0..160_u64;
            all.filter(|tenth| memory.look(pid, tenth * 100_000_000).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(looks(&mut memory), [0, 10, 20, 40, 80]);
        memory.executed(pid);
        assert!(looks(&mut memory).is_empty());
    }
}
