//! The guardian: a small process that resumes stopped programs whatever happens to gctrace.
//!
//! A program is stopped at exec, by a SIGSTOP from the BPF side, while its probes are placed. In
//! that time gctrace may be killed, stopped, or stuck. The guardian has the map of stopped programs and a pipe; only
//! gctrace has its other end. While that pipe is open it resumes programs stopped for too long. When the pipe is
//! closed, with or without a final message, it resumes all stopped programs. It keeps only that map alive: programs,
//! links and with them the probes are released with gctrace. A successor (`guardian/successor.rs`) takes over if the
//! guardian is killed, also together with gctrace. Another process of this kind guards the terminal
//! (`guardian/terminal.rs`).

mod stopped_map;
mod successor;
mod terminal;

pub use terminal::{LEAVE, TerminalGuardian, guard as guard_terminal, raw};

use crate::guardian::stopped_map::StoppedMap;
use crate::guardian::successor::Successor;
use crate::wait;
use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Name of the process, at most 15 bytes (`TASK_COMM_LEN`). It does not contain "gctrace": `pkill
/// gctrace` and `killall gctrace` must leave guardians alone.
const NAME: &str = "gc-guardian";
/// The guardian's descriptor of the map of stopped programs, or of the terminal.
const GIVEN_DESCRIPTOR: i32 = 3;
/// Sent on the pipe at an orderly end.
const DISMISSED: u8 = b'.';

/// Time between two polls of the map after gctrace's end.
const PAUSE: Duration = Duration::from_millis(50);
/// After gctrace was killed, the map has to stay empty for this time.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two polls of the map while gctrace lives.
const WATCH_MS: u8 = 200;
/// A program found stopped for longer than this at a poll is resumed. It may be stopped twice in a row, at its exec
/// and when it loads its libpython: with the time between two polls after each, it is stopped for 2 s at most.
const LONGEST: Duration = Duration::from_millis(1500);
/// Stops farther apart than this do not add up: gctrace was there in between.
const IN_A_ROW: Duration = Duration::from_secs(10);
/// How long gctrace waits for the end of its guardian: another gctrace or a user may have stopped it.
const PATIENCE: Duration = Duration::from_secs(2);
/// A program is in the map slightly before its SIGSTOP reaches it, so it is resumed repeatedly for
/// this time, and only then forgotten.
const INSIST: Duration = Duration::from_millis(250);

/// gctrace's handle on a guardian. When dropped without a dismissal, the guardian resumes the programs or restores the
/// terminal, and exits.
#[derive(Debug)]
struct GuardianProcess {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl GuardianProcess {
    /// Starts this executable again as the guardian that `argument` names.
    fn start(argument: &str, given: BorrowedFd<'_>, answers: Stdio) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).arg(argument);
        Self::spawn(command, given, answers)
    }

    /// Starts it in a session of its own; `given` becomes its [`GIVEN_DESCRIPTOR`].
    fn spawn(mut command: Command, given: BorrowedFd<'_>, answers: Stdio) -> io::Result<Self> {
        let given = given.as_raw_fd();
        command.env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(answers).stderr(Stdio::null());
        // SAFETY: the closure only makes system calls; it neither allocates nor locks.
        unsafe {
            command.pre_exec(move || detach_with(given));
        }
        let mut process = command.spawn()?;
        let pipe = process.stdin.take();
        Ok(Self { process, pipe })
    }

    /// Reports an orderly end; waits until the guardian has exited, with a timeout.
    fn dismiss(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // The guardian may have exited already; ignore EPIPE.
            let _ = pipe.write_all(&[DISMISSED]);
        }
        let begin = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The guardian of stopped programs. When dropped, it resumes all still stopped, and exits.
#[derive(Debug)]
pub struct Guardian(GuardianProcess);

impl Guardian {
    /// Starts the guardian of `map` (u32 pid -> u64 time of the stop).
    pub fn start(map: BorrowedFd<'_>) -> io::Result<Self> {
        GuardianProcess::start(crate::args::GUARDIAN, map, Stdio::null()).map(Self)
    }
}

/// No program is stopped from now on. Waits until the guardian has exited, and with it resumed every program. A program
/// still stopped at gctrace's exit may lose its process group's last parent, and the kernel then terminates it
/// (`kill_orphaned_pgrp` in kernel/exit.c).
impl Drop for Guardian {
    fn drop(&mut self) {
        self.0.dismiss();
    }
}

/// In the forked child: leaves the terminal, and keeps `given` and the standard descriptors only.
fn detach_with(given: i32) -> io::Result<()> {
    // SAFETY: system calls on plain numbers. The parent waits for the exec on the pipe: closing on exec rather than now
    // keeps it.
    unsafe {
        Errno::result(libc::setsid())?;
        let first = GIVEN_DESCRIPTOR.cast_unsigned();
        let flag = libc::CLOSE_RANGE_CLOEXEC;
        Errno::result(libc::syscall(libc::SYS_close_range, first, u32::MAX, flag))?;
        if given == GIVEN_DESCRIPTOR {
            Errno::result(libc::fcntl(given, libc::F_SETFD, 0))?;
        } else {
            Errno::result(libc::dup2(given, GIVEN_DESCRIPTOR))?;
        }
    }
    Ok(())
}

/// The guardian's view of the system.
trait GuardianWorld {
    /// Stopped processes, and the CLOCK_MONOTONIC time of each stop.
    fn stopped(&mut self) -> io::Result<Vec<(u32, Duration)>>;
    fn resume(&mut self, pid: u32);
    /// Removes a process from the map.
    fn forget(&mut self, pid: u32);
    /// CLOCK_MONOTONIC, as for the stopped ones.
    fn now(&mut self) -> Duration;
    fn sleep(&mut self, time: Duration);
}

/// The main function of the process that [`Guardian::start`] started.
pub fn guard() -> io::Result<()> {
    ignore_signals()?;
    // SAFETY: `Guardian::start` put the map there for us; it has no other owner in this process.
    let map = unsafe { OwnedFd::from_raw_fd(GIVEN_DESCRIPTOR) };
    let mut world = KernelWorld { map: StoppedMap::new(map) };
    // Fails for anything but a map, in case the guardian was started by hand.
    world.stopped()?;
    let successor = Successor::fork()?;
    let mut pipe = io::stdin();
    let mut overdue = OverdueStops::default();
    while !wait::readable([pipe.as_fd()], WATCH_MS)? {
        overdue.resume(&mut world)?;
    }
    let quiet = if abandoned(&mut pipe) { QUIET } else { Duration::ZERO };
    let resumed = resume_all(&mut world, quiet);
    if let Some(successor) = successor {
        successor.dismiss();
    }
    resumed
}

/// Ignores every signal that can be ignored, so that the guardian outlives gctrace.
fn ignore_signals() -> io::Result<()> {
    for signal in Signal::iterator() {
        if matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            continue;
        }
        // SAFETY: ignoring runs no code of ours. Faults (SIGSEGV and the like) cannot be ignored
        // and still terminate the process.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn)? };
    }
    set_name(NAME)
}

fn set_name(name: &str) -> io::Result<()> {
    Ok(nix::sys::prctl::set_name(&std::ffi::CString::new(name)?)?)
}

/// Waits for the end of the process at the pipe's other end: true if it came without [`DISMISSED`].
fn abandoned(pipe: &mut impl Read) -> bool {
    let mut dismissal = [0];
    !matches!(pipe.read_exact(&mut dismissal), Ok(()))
}

/// By process: how long programs that had to be resumed were stopped in a row, and when the last stop ended.
#[derive(Default)]
struct OverdueStops(HashMap<u32, (Duration, Duration)>);

impl OverdueStops {
    /// Resumes programs stopped for too long: gctrace is stopped, stuck or slow.
    fn resume(&mut self, world: &mut impl GuardianWorld) -> io::Result<()> {
        let stopped = world.stopped()?;
        let now = world.now();
        self.0.retain(|_, (_, ended)| now.saturating_sub(*ended) < IN_A_ROW);
        for (pid, since) in stopped {
            let before = if let Some((of, _)) = self.0.get(&pid) { *of } else { Duration::ZERO };
            let stopped_for = before + now.saturating_sub(since);
            if stopped_for >= LONGEST {
                // In this order: once resumed, it may be stopped again, and that stop must not be forgotten.
                world.forget(pid);
                world.resume(pid);
                self.0.insert(pid, (stopped_for, now));
            }
        }
        Ok(())
    }
}

/// Resumes all stopped programs until no new one has appeared for `quiet`.
fn resume_all(world: &mut impl GuardianWorld, quiet: Duration) -> io::Result<()> {
    let mut seen: HashMap<u32, Duration> = HashMap::new();
    let mut empty_since = world.now();
    loop {
        let stopped = world.stopped()?;
        let now = world.now();
        if !stopped.is_empty() {
            empty_since = now;
        }
        // If a program exits meanwhile, the kernel removes it from the map.
        seen.retain(|pid, _| stopped.iter().any(|(one, _)| one == pid));
        for (pid, _) in stopped {
            let first = *seen.entry(pid).or_insert(now);
            world.resume(pid);
            if now.saturating_sub(first) >= INSIST {
                world.forget(pid);
                seen.remove(&pid);
            }
        }
        if seen.is_empty() && now.saturating_sub(empty_since) >= quiet {
            return Ok(());
        }
        world.sleep(PAUSE);
    }
}

struct KernelWorld {
    map: StoppedMap,
}

impl GuardianWorld for KernelWorld {
    fn stopped(&mut self) -> io::Result<Vec<(u32, Duration)>> {
        self.map.pids_and_times()
    }

    fn resume(&mut self, pid: u32) {
        // Processes that have exited, or that may not be signaled, are ignored.
        if let Ok(pid) = i32::try_from(pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
    }

    fn forget(&mut self, pid: u32) {
        self.map.remove(pid);
    }

    fn now(&mut self) -> Duration {
        Duration::from_nanos(crate::clock::monotonic_ns())
    }

    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests;
