//! The guardian: a small process that lets held programs go on should gctrace be killed.
//!
//! A program is held at exec, by a SIGSTOP from the BPF side, while its probes are placed. If
//! gctrace is killed in that time, nobody would continue it. The guardian sleeps on a pipe whose
//! other end only gctrace has. At the end of that pipe without a farewell it continues what is in
//! the map of held programs. It keeps that map alive and nothing else: programs, links and
//! with them the probes go with gctrace. Another of its kind guards the terminal (`guardian/terminal.rs`).

mod held_map;
mod terminal;

pub(crate) use terminal::TerminalGuardian;
pub(crate) use terminal::guard as guard_terminal;

use crate::guardian::held_map::HeldMap;
use nix::errno::Errno;
use nix::sys::signal::SigHandler;
use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io;
use std::io::Read;
use std::io::Write;
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

/// Name of the process, at most 15 bytes (`TASK_COMM_LEN`).
const NAME: &str = "gctrace-guard";
/// Where the guardian finds the map.
const MAP_DESCRIPTOR: i32 = 3;
/// Sent on the pipe at an orderly end.
const FAREWELL: u8 = b'.';

/// Between two looks at the map.
const PAUSE: Duration = Duration::from_millis(50);
/// The map has to stay empty for so long.
const QUIET: Duration = Duration::from_secs(1);
/// A program is in the map a moment before its SIGSTOP reaches it, so it is continued repeatedly,
/// for this long, and forgotten only then.
const INSIST: Duration = Duration::from_millis(250);

/// gctrace's handle on its guardian. Dropped without [`Guardian::dismiss`], the guardian acts.
#[derive(Debug)]
pub(crate) struct Guardian {
    process: Child,
    pipe: ChildStdin,
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
        let pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { process, pipe })
    }

    /// Tells the guardian that nothing is held any more, and waits until it is gone.
    pub(crate) fn dismiss(mut self) {
        // A guardian that is gone already needs no farewell.
        let _ = self.pipe.write_all(&[FAREWELL]);
        drop(self.pipe);
        let _ = self.process.wait();
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
trait World {
    /// Pids of held processes.
    fn held(&mut self) -> io::Result<Vec<u32>>;
    /// Lets one go on.
    fn resume(&mut self, pid: u32);
    /// Removes it from the held ones.
    fn forget(&mut self, pid: u32);
    /// Since some moment.
    fn now(&mut self) -> Duration;
    /// Waits.
    fn sleep(&mut self, time: Duration);
}

/// Is the guardian: the whole life of the process that [`Guardian::start`] started.
pub(crate) fn guard() -> io::Result<()> {
    live_unnoticed()?;
    // SAFETY: `Guardian::start` put the map there for us; nothing else in this process owns it.
    let map = unsafe { OwnedFd::from_raw_fd(MAP_DESCRIPTOR) };
    let mut world = Kernel {
        map: HeldMap::new(map),
        started: Instant::now(),
    };
    // Tells a map from anything else, should somebody start the guardian by hand.
    world.held()?;
    if abandoned(&mut io::stdin().lock()) {
        release_all(&mut world)
    } else {
        Ok(())
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
    let mut farewell = [0];
    !matches!(pipe.read_exact(&mut farewell), Ok(()))
}

/// Lets everything held go on until nothing new has come for a while.
fn release_all(world: &mut impl World) -> io::Result<()> {
    let mut met: HashMap<u32, Duration> = HashMap::new();
    let mut empty_since = world.now();
    loop {
        let held = world.held()?;
        let now = world.now();
        if !held.is_empty() {
            empty_since = now;
        }
        for pid in held {
            let first = *met.entry(pid).or_insert(now);
            world.resume(pid);
            if now.saturating_sub(first) >= INSIST {
                world.forget(pid);
                met.remove(&pid);
            }
        }
        if now.saturating_sub(empty_since) >= QUIET {
            return Ok(());
        }
        world.sleep(PAUSE);
    }
}

struct Kernel {
    map: HeldMap,
    started: Instant,
}

impl World for Kernel {
    fn held(&mut self) -> io::Result<Vec<u32>> {
        self.map.pids()
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
        self.started.elapsed()
    }

    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests;
