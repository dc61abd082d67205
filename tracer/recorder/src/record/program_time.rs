//! CPU time of the recorded programs: their overhead is stated as a share of it.
//!
//! A program's time is its own and the time of the children that it waited for. gctrace waits for its command; the time
//! of other processes, still running or attached to, is read from their clocks.

use gctrace_probes::proc_status;
use gctrace_units::{beyond, met, sum};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::collections::HashMap;

/// CPU time of running programs since each was first recorded.
#[derive(Debug, Default)]
pub(super) struct ProgramTime {
    /// CPU time before the recording, of programs that already ran.
    before: HashMap<u32, u64>,
    /// CPU time of the attached process, at the last look.
    attached: Option<(u32, u64)>,
}

impl ProgramTime {
    /// These processes run already.
    pub(super) fn begin(&mut self, pids: impl IntoIterator<Item = u32>) {
        self.before.extend(pids.into_iter().filter_map(|pid| Some((pid, used_ns(pid)?))));
    }

    /// Looks at the attached process: it may end before the recording does.
    pub(super) fn look(&mut self, pid: u32) {
        if let Some(used_ns) = used_ns(pid) {
            self.attached = Some((pid, used_ns));
        }
    }

    /// CPU time of all: `ended_ns` of a command that has ended, and of these that still run.
    pub(super) fn until_now(
        &self,
        ended_ns: Option<u64>,
        running: impl IntoIterator<Item = u32>,
    ) -> Option<u64> {
        let mut used: HashMap<u32, u64> = self.attached.into_iter().collect();
        used.extend(running.into_iter().filter_map(|pid| Some((pid, used_ns(pid)?))));
        let since = used.iter().map(|(pid, used_ns)| beyond(*used_ns, met(self.before.get(pid))));
        since.chain(ended_ns).reduce(u64::saturating_add)
    }
}

/// CPU time of a process and of the children that it waited for.
fn used_ns(pid: u32) -> Option<u64> {
    let time = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.cast_signed())).ok()?.now().ok()?;
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    let own_ns = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).ok()?;
    Some(sum([own_ns, proc_status::stat(pid).ok()?.waited_ns]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_the_recording_is_no_part_of_it() {
        let own = std::process::id();
        let mut time = ProgramTime::default();
        assert_eq!(time.until_now(None, []), None);
        assert_eq!(time.until_now(Some(7), []), Some(7), "the command has ended");
        let all = time.until_now(None, [own]).unwrap();
        assert!(all > 0);
        time.begin([own]);
        let since = time.until_now(None, [own]).unwrap();
        assert!(since < all, "{since} of {all}");
        time.look(own);
        assert!(time.until_now(None, []).unwrap() >= since, "it counts when it has ended");
    }
}
