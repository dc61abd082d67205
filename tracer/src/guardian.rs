//! The guardian: a small process that lets held programs go on whatever becomes of gctrace.
//!
//! A program is held at exec, by a SIGSTOP from the BPF side, while its probes are placed. gctrace may be killed in
//! that time, stopped, or stuck. The guardian has the map of held programs and a pipe whose other end only gctrace
//! has. While that pipe is open it continues whatever is held for too long; at its end, with a farewell or without,
//! whatever is held still. It keeps that map alive and nothing else: programs, links and with them the probes go
//! with gctrace. Another of its kind guards the terminal (`guardian/terminal.rs`).

mod held_map;
mod terminal;

pub(crate) use terminal::LEAVE;
pub(crate) use terminal::TerminalGuardian;
pub(crate) use terminal::guard as guard_terminal;
pub(crate) use terminal::raw;

use crate::guardian::held_map::HeldMap;
use nix::errno::Errno;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use nix::poll::poll;
use nix::sys::signal::SigHandler;
use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

/// Name of the process, at most 15 bytes (`TASK_COMM_LEN`). Without the name of gctrace in it: `pkill gctrace` and
/// `killall gctrace` must leave those that look after what gctrace held.
const NAME: &str = "gc-guardian";
/// Where the guardian finds the map.
const MAP_DESCRIPTOR: i32 = 3;
/// Sent on the pipe at an orderly end.
const DISMISSED: u8 = b'.';

/// Between two looks at the map.
const PAUSE: Duration = Duration::from_millis(50);
/// After a gctrace that was killed, the map has to stay empty for so long.
const QUIET: Duration = Duration::from_secs(1);
/// Between two looks at the map while gctrace lives.
const WATCH: Duration = Duration::from_millis(200);
/// Most time that a program is held: what was held for longer at a look is continued. With the time between two
/// looks, 2 s at most.
const LONGEST: Duration = Duration::from_millis(1700);
/// Most time that gctrace waits for the end of its guardian, which another gctrace or a user may have stopped.
const PATIENCE: Duration = Duration::from_secs(2);
/// A program is in the map a moment before its SIGSTOP reaches it, so it is continued repeatedly,
/// for this long, and forgotten only then.
const INSIST: Duration = Duration::from_millis(250);

/// gctrace's handle on its guardian. When it is dropped, the guardian continues what is held still, and ends.
#[derive(Debug)]
pub(crate) struct Guardian {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    /// Starts the guardian of `map` (u32 pid -> u64 time of the hold): this executable again, in a
    /// session of its own.
    pub(crate) fn start(map: BorrowedFd<'_>) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).arg(crate::args::GUARDIAN);
        Self::spawn(command, map)
    }

    fn spawn(mut command: Command, map: BorrowedFd<'_>) -> io::Result<Self> {
        let map = map.as_raw_fd();
        command.env_clear().current_dir("/");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: the closure makes system calls only; it neither allocates nor locks.
        unsafe {
            command.pre_exec(move || detach_with(map));
        }
        let mut process = command.spawn()?;
        let pipe = process.stdin.take();
        Ok(Self { process, pipe })
    }
}

/// Nothing new is held from now on. Waits until the guardian is gone, and with it whatever was held: a program that
/// is stopped when gctrace ends may lose its process group's last parent, and the kernel ends it for that
/// (`kill_orphaned_pgrp` in kernel/exit.c).
impl Drop for Guardian {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // The guardian may have ended already.
            let _ = pipe.write_all(&[DISMISSED]);
        }
        wait_for_end(&mut self.process);
    }
}

/// Waits for a guardian, but not for ever.
fn wait_for_end(guardian: &mut Child) {
    let begin = Instant::now();
    while matches!(guardian.try_wait(), Ok(None)) && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// In the forked child: leave the terminal, and keep the map and the standard descriptors only.
fn detach_with(map: i32) -> io::Result<()> {
    // SAFETY: system calls on plain numbers. Closing on exec rather than now leaves alone the pipe
    // on which the parent waits for the exec.
    unsafe {
        Errno::result(libc::setsid())?;
        let first = u32::try_from(MAP_DESCRIPTOR).unwrap_or(u32::MAX);
        let flag = libc::CLOSE_RANGE_CLOEXEC;
        Errno::result(libc::syscall(libc::SYS_close_range, first, u32::MAX, flag))?;
        if map == MAP_DESCRIPTOR {
            Errno::result(libc::fcntl(map, libc::F_SETFD, 0))?;
        } else {
            Errno::result(libc::dup2(map, MAP_DESCRIPTOR))?;
        }
    }
    Ok(())
}

/// What the guardian needs from the world.
trait GuardianWorld {
    /// Held processes, and since when.
    fn held(&mut self) -> io::Result<Vec<(u32, Duration)>>;
    /// Lets one go on.
    fn resume(&mut self, pid: u32);
    /// Removes it from the held ones.
    fn forget(&mut self, pid: u32);
    /// CLOCK_MONOTONIC, as for the held ones.
    fn now(&mut self) -> Duration;
    /// Waits.
    fn sleep(&mut self, time: Duration);
}

/// Is the guardian: the whole life of the process that [`Guardian::start`] started.
pub(crate) fn guard() -> io::Result<()> {
    live_unnoticed()?;
    // SAFETY: `Guardian::start` put the map there for us; nothing else in this process owns it.
    let map = unsafe { OwnedFd::from_raw_fd(MAP_DESCRIPTOR) };
    let mut world = KernelWorld {
        map: HeldMap::new(map),
    };
    // Tells a map from anything else, should somebody start the guardian by hand.
    world.held()?;
    let mut pipe = io::stdin();
    while !is_readable(pipe.as_fd(), WATCH)? {
        release_overdue(&mut world)?;
    }
    let quiet = match abandoned(&mut pipe) {
        true => QUIET,
        false => Duration::ZERO,
    };
    release_all(&mut world, quiet)
}

/// Whether there is something to read, or the other end is closed.
fn is_readable(pipe: BorrowedFd<'_>, within: Duration) -> io::Result<bool> {
    let mut descriptors = [PollFd::new(pipe, PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(within).unwrap_or(PollTimeout::ZERO);
    match poll(&mut descriptors, limit) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// No signal that can be ignored ends the guardian before gctrace.
fn live_unnoticed() -> io::Result<()> {
    for signal in
        Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP))
    {
        // SAFETY: ignoring runs no code of ours. Faults (SIGSEGV and the like) cannot be ignored and
        // still end the process.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn)? };
    }
    let name = std::ffi::CString::new(NAME)?;
    nix::sys::prctl::set_name(&name)?;
    Ok(())
}

/// Waits for gctrace's end: true if there was no farewell.
fn abandoned(pipe: &mut impl Read) -> bool {
    let mut dismissal = [0];
    !matches!(pipe.read_exact(&mut dismissal), Ok(()))
}

/// Lets what is held for too long go on: gctrace is stopped, stuck or slow.
fn release_overdue(world: &mut impl GuardianWorld) -> io::Result<()> {
    let held = world.held()?;
    let now = world.now();
    for (pid, since) in held {
        let held_for = now.saturating_sub(since);
        if held_for >= LONGEST {
            // In this order: once it runs it may be held anew, which must not be forgotten.
            world.forget(pid);
            world.resume(pid);
        }
    }
    Ok(())
}

/// Lets everything held go on until nothing new has come for so long.
fn release_all(world: &mut impl GuardianWorld, quiet: Duration) -> io::Result<()> {
    let mut met: HashMap<u32, Duration> = HashMap::new();
    let mut empty_since = world.now();
    loop {
        let held = world.held()?;
        let now = world.now();
        if !held.is_empty() {
            empty_since = now;
        }
        // One that ends while it is insisted on is taken out of the map by the kernel.
        met.retain(|pid, _| held.iter().any(|(one, _)| one == pid));
        for (pid, _) in held {
            let first = *met.entry(pid).or_insert(now);
            world.resume(pid);
            if now.saturating_sub(first) >= INSIST {
                world.forget(pid);
                met.remove(&pid);
            }
        }
        if met.is_empty() && now.saturating_sub(empty_since) >= quiet {
            return Ok(());
        }
        world.sleep(PAUSE);
    }
}

struct KernelWorld {
    map: HeldMap,
}

impl GuardianWorld for KernelWorld {
    fn held(&mut self) -> io::Result<Vec<(u32, Duration)>> {
        self.map.pids_and_times()
    }

    fn resume(&mut self, pid: u32) {
        // A process that has ended, or that may not be signalled, is not ours to worry about.
        if let Ok(pid) = i32::try_from(pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
    }

    fn forget(&mut self, pid: u32) {
        self.map.remove(pid);
    }

    fn now(&mut self) -> Duration {
        Duration::from_nanos(crate::record::monotonic_ns())
    }

    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests;
