//! Resumes stopped processes.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::fd::{AsFd, BorrowedFd};

/// The processes that were stopped at exec and wait for their probes. Uses the map alone, so that
/// another process can keep it open and resume them when gctrace is gone.
#[derive(Debug)]
pub struct StoppedProcesses {
    map: MapHandle,
}

impl StoppedProcesses {
    /// Takes the map `stopped` of a loaded session.
    pub(crate) fn new(map: MapHandle) -> Self {
        Self { map }
    }

    /// The map's descriptor; keeps no program and no probe alive.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Ends the stop of a process that started at `since_ns` (the time of its event); returns
    /// whether it was still in effect. A process that was resumed meanwhile (by the guardian) may
    /// have been stopped by its user since, and is left alone. It is not an error if the process
    /// has exited.
    ///
    /// # Errors
    /// The kernel's error, if the signal may not be sent.
    pub fn release(&self, pid: u32, since_ns: u64) -> Result<bool, Errno> {
        if self.since(pid) != Some(since_ns) {
            return Ok(false);
        }
        // Signal first, delete afterwards: if we die in between, the guardian signals once more, without harm. In the
        // other order the process would wait forever.
        let sent = self.resume(pid);
        self.forget(pid, Some(since_ns));
        sent.map(|()| true)
    }

    /// Resumes one process, listed or not. It is not an error if it has exited.
    ///
    /// # Errors
    /// The kernel's error, if the signal may not be sent.
    pub fn resume(&self, pid: u32) -> Result<(), Errno> {
        match i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), Signal::SIGCONT)) {
            Ok(Ok(()) | Err(Errno::ESRCH)) => Ok(()),
            Ok(Err(errno)) => Err(errno),
            Err(_) => Err(Errno::EINVAL),
        }
    }

    /// Deletes the entry of the stop at `since`. The process may have been stopped again since it
    /// was resumed (at its entry point): that entry stays.
    fn forget(&self, pid: u32, since: Option<u64>) {
        let key = pid.to_ne_bytes();
        let Ok(Some(value)) = self.map.lookup_and_delete(&key) else {
            return;
        };
        let of_this_hold = value.as_slice().try_into().map(u64::from_ne_bytes).ok() == since;
        if !of_this_hold {
            let _ = self.map.update(&key, &value, MapFlags::NO_EXIST);
        }
    }

    /// Resumes all stopped processes, and keeps them listed: a stop signal under way may arrive after this. Returns
    /// whether there were any.
    pub fn resume_all(&self) -> bool {
        let pids: Vec<u32> = self
            .map
            .keys()
            .filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?)))
            .collect();
        for pid in &pids {
            // It has exited, or may not be signaled: then we did not stop it (`stop_only_user`).
            let _ = self.resume(*pid);
        }
        !pids.is_empty()
    }

    /// When each process was stopped, in nanoseconds of CLOCK_MONOTONIC.
    pub fn since(&self, pid: u32) -> Option<u64> {
        let value = self.map.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??;
        Some(u64::from_ne_bytes(value.try_into().ok()?))
    }
}

/// Whether this process may signal the processes of every user: with CAP_KILL. Root lacks it where its capabilities are
/// limited (containers, services).
pub(crate) fn may_resume_all_users() -> bool {
    /// CAP_KILL is bit 5, `_LINUX_CAPABILITY_VERSION_3` the version (include/uapi/linux/capability.h).
    const KILL: u32 = 1 << 5;
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: a header for the calling thread and room for two triples of sets (capget(2)).
    let result = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    result == 0 && sets[0] & KILL != 0
}
