//! Loops: threads that wait for input again and again at the same place, and their turns.
//!
//! Owns the counts of each loop that are not written yet, and whether the kernel shows us the system calls in which
//! loops look for input. The kernel's program counts (`ebpf/bpf/loop.bpf.h`).

use crate::clock;
use crate::record::kernel::stacks::StackResolver;
use crate::record::output::{RecordOutput, RecordSink as _};
use gctrace_ebpf::{LoopKey, LoopReading, SamplePrograms};
use gctrace_event::{Record, Turns};
use gctrace_units::duration_ns;
use std::collections::HashMap;
use std::path::Path;

/// Turns are written this often, in ns: those not yet written are lost if gctrace is killed.
const WRITTEN_NS: u64 = 1_000_000_000;

/// With more places, a quarter of the most that the program has, the ones with few turns and none since the last time make
/// room: a server reads each connection at another place.
const CROWD: usize = 128;
/// A place with more turns stays: its turn may be a long one.
const FEW_TURNS: u64 = 20;

/// The loops of recorded threads.
pub(super) struct Loops {
    known: HashMap<LoopKey, KnownLoop>,
    written_ns: u64,
}

#[derive(Default)]
struct KnownLoop {
    /// What was written of it, its interval's end included.
    written: Turns,
    /// It looks for input without waiting, so that entries of its system call are shown.
    looks: bool,
}

impl Loops {
    /// Turns count from now on.
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), written_ns: clock::monotonic_ns() }
    }

    /// A thread waits for input again and again: from now on, calls that do not wait are seen, too.
    pub(super) fn found(&mut self, key: LoopKey, programs: &mut SamplePrograms) {
        self.known.entry(key).or_default().looks = true;
        self.look(programs);
    }

    fn look(&self, programs: &mut SamplePrograms) {
        let looking = self.known.iter().filter(|(_, known)| known.looks);
        let mut calls: Vec<i32> = looking.map(|(key, _)| key.system_call).collect();
        calls.sort_unstable();
        calls.dedup();
        if let Err(error) = programs.look_at(&calls) {
            tracing::warn!("turns of loops end where they wait, not where they look: {error}");
        }
    }

    /// Writes the turns since the last time.
    pub(super) fn tick(
        &mut self,
        now_ns: u64,
        programs: &mut SamplePrograms,
        stacks: &StackResolver,
        output: &mut RecordOutput,
    ) {
        if duration_ns(self.written_ns, now_ns) >= WRITTEN_NS {
            self.write(now_ns, programs, stacks, output);
        }
    }

    /// Writes the turns up to now.
    pub(super) fn write(
        &mut self,
        now_ns: u64,
        programs: &mut SamplePrograms,
        stacks: &StackResolver,
        output: &mut RecordOutput,
    ) {
        let before_ns = std::mem::replace(&mut self.written_ns, now_ns);
        let readings = programs.loops().unwrap_or_else(|error| {
            tracing::warn!("turns of loops are unknown: {error}");
            Vec::new()
        });
        let is_crowded = readings.len() > CROWD;
        let mut ended = false;
        for LoopReading { key, turns, stack } in readings {
            let known = self.known.entry(key.clone()).or_default();
            let at_ns =
                if known.written.until_ns == 0 { before_ns } else { known.written.until_ns };
            let stack = stacks.innermost_so_far(stack).or(known.written.stack);
            let sees_looks = known.looks;
            let turns = Turns { at_ns, until_ns: now_ns, stack, sees_looks, ..turns };
            let is_new = turns.turns > known.written.turns;
            if is_new {
                output.write(&Record::Turns(turns.clone().since(&known.written)));
                known.written = turns;
            }
            let is_idle = is_crowded && !is_new && known.written.turns < FEW_TURNS;
            if is_idle || !is_alive(&key) {
                self.known.remove(&key);
                ended = true;
                if let Err(error) = programs.forget_loop(&key) {
                    tracing::debug!("a loop of an exited thread remains: {error}");
                }
            }
        }
        if ended {
            self.look(programs);
        }
    }
}

/// Whether the thread still exists.
fn is_alive(key: &LoopKey) -> bool {
    Path::new(&format!("/proc/{}/task/{}", key.pid, key.tid)).exists()
}
