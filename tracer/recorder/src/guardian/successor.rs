//! The guardian's successor: a fork of it that takes over when the guardian itself is killed.
//!
//! gctrace and its guardian may be killed together while a program is stopped, and no stop ends by
//! itself: a SIGSTOP lasts until a SIGCONT. A BPF timer could send one, but it is canceled once no
//! process has its map open (`bpf_map_put_uref` in kernel/bpf/syscall.c), unless the map is pinned: that needs a
//! mounted bpffs, and leaves a file when all are killed. So a third process waits. It has the guardian's descriptors
//! and a name of its own, so that neither `killall gctrace` nor `killall gc-guardian` reaches it. A successor that
//! takes over forks the next.

use super::{DISMISSED, NAME, abandoned, set_name};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use std::io;
use std::io::{PipeWriter, Write};

/// Name of the process while it waits, at most 15 bytes (`TASK_COMM_LEN`).
const WAITING: &str = "gc-successor";

/// The guardian's handle on its successor. Dropping it has the same effect as a kill of the guardian: the successor
/// takes over.
#[derive(Debug)]
pub(super) struct Successor {
    process: Pid,
    pipe: PipeWriter,
}

impl Successor {
    /// Forks it. Returns in the guardian at once, and in each successor once its guardian was killed: the process where
    /// it returns is the guardian from then on. `None` if no process or pipe could be made; the guardian is alone then.
    pub(super) fn fork() -> io::Result<Option<Self>> {
        loop {
            let Ok((mut elder, pipe)) = io::pipe() else {
                return Ok(None);
            };
            // SAFETY: a guardian has one thread, so no lock is held by another one.
            match unsafe { fork() } {
                Ok(ForkResult::Parent { child }) => return Ok(Some(Self { process: child, pipe })),
                Ok(ForkResult::Child) => {
                    drop(pipe);
                    set_name(WAITING)?;
                    if !abandoned(&mut elder) {
                        std::process::exit(0);
                    }
                    set_name(NAME)?;
                }
                Err(_) => return Ok(None),
            }
        }
    }

    /// Ends it, and waits for that. It does nothing else meanwhile, so it needs no timeout unless another process
    /// stopped it; even then gctrace waits no longer than its patience.
    pub(super) fn dismiss(mut self) {
        // It may have been killed already; ignore EPIPE and ECHILD.
        let _ = self.pipe.write_all(&[DISMISSED]);
        let _ = waitpid(self.process, None);
    }
}
