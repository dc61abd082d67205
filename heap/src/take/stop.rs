//! Stops all threads of a process by ptrace, between collections or in a callback at the end of one,
//! and lets them go.
//!
//! `PTRACE_SEIZE` without options: no signal is sent, and if the tracing thread ends, however it
//! does, the kernel detaches and resumes (`exit_ptrace` in kernel/ptrace.c; `PTRACE_O_EXITKILL` is
//! not set). A process that is stopped by a signal stays so. Threads that wait in a system call are
//! interrupted: the kernel restarts most calls, but some return EINTR (signal(7), "Interruption of
//! system calls and library functions by stop signals").

use crate::HeapError;
use crate::take::watchdog::Watchdog;
use gctrace_probes::proc_status;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// The threads of a process, stopped by this thread until dropped.
#[derive(Debug, Default)]
pub(crate) struct StoppedThreads {
    /// Each, and once it is stopped the number of the signal that was on its way to it, or 0.
    threads: BTreeMap<i32, Option<i32>>,
}

/// How long threads may take to stop.
const STOP_LIMIT: Duration = Duration::from_millis(500);
/// Time between two looks at threads that have not stopped yet.
const PAUSE: Duration = Duration::from_micros(200);

impl StoppedThreads {
    /// Stops all threads, including threads just being created. A thread in an uninterruptible wait is left behind at
    /// the deadline: it runs no code of the program until it stops.
    pub(crate) fn stop(pid: u32, deadline: Instant) -> Result<Self, HeapError> {
        let mut stopped = Self::default();
        loop {
            let new = stopped.seize(pid)?;
            stopped.wait(pid, deadline)?;
            if new == 0 {
                break;
            }
            // It starts threads as fast as they are stopped.
            if Instant::now() >= deadline {
                return Err(HeapError::NotStopped { pid, tid: pid.cast_signed() });
            }
        }
        if stopped.threads.is_empty() {
            return Err(HeapError::Gone { pid });
        }
        Ok(stopped)
    }

    /// Seizes and interrupts threads that are not yet. Returns their number.
    fn seize(&mut self, pid: u32) -> Result<usize, HeapError> {
        let mut new = 0;
        for tid in proc_status::threads(pid)? {
            let tid = tid.cast_signed();
            if self.threads.contains_key(&tid) {
                continue;
            }
            let thread = Pid::from_raw(tid);
            match ptrace::seize(thread, ptrace::Options::empty()) {
                Ok(()) => {
                    new += 1;
                    self.threads.insert(tid, None);
                    // ESRCH: it is exiting.
                    let _exiting = ptrace::interrupt(thread);
                }
                Err(Errno::ESRCH) => {}
                // The kernel's answer for threads that have exited, too.
                Err(Errno::EPERM) if has_exited(pid, tid) => {}
                Err(errno) => return Err(refusal(pid, errno)),
            }
        }
        Ok(new)
    }

    /// Waits until every seized thread has stopped or exited.
    fn wait(&mut self, pid: u32, deadline: Instant) -> Result<(), HeapError> {
        loop {
            self.threads.retain(|tid, state| {
                if state.is_none() {
                    match poll(pid, *tid) {
                        Poll::Runs => {}
                        Poll::Stopped(signal) => *state = Some(signal),
                        Poll::Gone => return false,
                    }
                }
                true
            });
            let mut running = self.threads.iter().filter(|(_, state)| state.is_none());
            if running.clone().next().is_none() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return match running.find(|(tid, _)| !waits_in_kernel(pid, **tid)) {
                    Some((tid, _)) => Err(HeapError::NotStopped { pid, tid: *tid }),
                    None => Ok(()),
                };
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl StoppedThreads {
    /// The threads that have stopped, with their `pthread_self`; `None`: unknown.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = (u32, Option<u64>)> {
        let stopped = self.threads.iter().filter(|(_, state)| state.is_some());
        stopped.map(|(tid, _)| (tid.cast_unsigned(), thread_pointer(Pid::from_raw(*tid))))
    }
}

/// The thread's control block: its address is the `pthread_t` of glibc and musl, held in `fs` (psABI x86-64, 3.4.6).
#[cfg(target_arch = "x86_64")]
fn thread_pointer(thread: Pid) -> Option<u64> {
    ptrace::getregs(thread).ok().map(|registers| registers.fs_base)
}

/// Not read: `pthread_t` lies before `tpidr_el0` by a distance that is the C library's own.
#[cfg(not(target_arch = "x86_64"))]
fn thread_pointer(_thread: Pid) -> Option<u64> {
    None
}

/// Detaches from all threads. The end of this thread detaches threads that have not stopped yet.
impl Drop for StoppedThreads {
    fn drop(&mut self) {
        for (tid, state) in &self.threads {
            let signal = i64::from(state.unwrap_or(0));
            // ESRCH: it was killed, or it has not stopped.
            // SAFETY: numbers only; real-time signals have no name in `nix`.
            let _gone = unsafe { libc::ptrace(libc::PTRACE_DETACH, *tid, 0_usize, signal) };
        }
    }
}

enum Poll {
    Runs,
    /// With the number of the signal to deliver, 0 for none.
    Stopped(i32),
    Gone,
}

/// Whether a seized thread has stopped. Takes no other news: the exit of a child is for whoever
/// waits for it.
fn poll(pid: u32, tid: i32) -> Poll {
    // SAFETY: all zeros are a valid siginfo_t; waitid overwrites it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    // SAFETY: `info` is writable.
    let result = unsafe { libc::waitid(libc::P_PID, tid.cast_unsigned(), &raw mut info, flags) };
    if result != 0 {
        return match Errno::last() {
            Errno::EINTR => Poll::Runs,
            _ => Poll::Gone,
        };
    }
    // SAFETY: waitid filled it in, or left it zero.
    let (found, status) = unsafe { (info.si_pid(), info.si_status()) };
    match (found, status >> 8) {
        (0, _) if has_exited(pid, tid) => Poll::Gone,
        (0, _) => Poll::Runs,
        // A signal on its way to the program: delivered when the thread goes on.
        (_, 0) => Poll::Stopped(status),
        // PTRACE_EVENT_STOP.
        _ => Poll::Stopped(0),
    }
}

/// The letter of a thread's state, and the thread that traces it.
fn state(pid: u32, tid: i32) -> io::Result<(Option<char>, Option<u32>)> {
    let text = std::fs::read(format!("/proc/{pid}/task/{tid}/status"))?;
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let letter = field("State:").and_then(|text| text.trim().chars().next());
    let tracer = field("TracerPid:").and_then(|text| text.trim().parse().ok());
    Ok((letter, tracer.filter(|tracer| *tracer != 0)))
}

/// Whether a thread is there no more, or in one of these states; not if that cannot be found out.
fn is_gone_or(pid: u32, tid: i32, states: &[char]) -> bool {
    match state(pid, tid) {
        Ok((letter, _)) => letter.is_none_or(|letter| states.contains(&letter)),
        Err(error) => {
            matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::ESRCH))
        }
    }
}

fn has_exited(pid: u32, tid: i32) -> bool {
    is_gone_or(pid, tid, &['Z', 'X'])
}

fn waits_in_kernel(pid: u32, tid: i32) -> bool {
    is_gone_or(pid, tid, &['D', 'Z', 'X'])
}

/// Why a process may not be traced.
pub(crate) fn refusal(pid: u32, errno: Errno) -> HeapError {
    if let Ok((_, Some(thread))) = state(pid, pid.cast_signed()) {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let process = process.and_then(|text| text.trim().parse().ok());
        let tracer = process.unwrap_or(thread);
        let name = std::fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        return HeapError::Traced { pid, tracer, name: name.trim().to_owned() };
    }
    HeapError::Forbidden { pid, errno }
}

/// Stops a process and has `look` read it, with the stopped threads and the start time of the stop. Also returns how
/// long the process was stopped. Works in a thread of its own: the end of that thread detaches any threads still
/// attached.
///
/// # Errors
/// It may not be stopped, or did not stop.
pub(crate) fn while_stopped<T: Send>(
    pid: u32,
    watchdog: &Watchdog,
    look: impl FnOnce(&StoppedThreads, Instant) -> T + Send,
) -> Result<(T, Duration), HeapError> {
    let stop = || {
        let watched = |source| HeapError::Watchdog { pid, source };
        let _is_urgent = be_urgent();
        watchdog.arm().map_err(watched)?;
        let start = Instant::now();
        let threads = StoppedThreads::stop(pid, start + STOP_LIMIT);
        let seen = threads.map(|threads| look(&threads, start));
        let stopped = start.elapsed();
        watchdog.disarm().map_err(watched)?;
        Ok((seen?, stopped))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, stop);
        match thread.map_err(|source| HeapError::Thread { source })?.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Has this thread run before all that have no deadline, as the stop is as short as it gets to run.
/// Whether that is allowed: to root, and with a second CPU for everybody else, who could wait for
/// the whole stop otherwise. The priority ends with the thread.
pub(super) fn be_urgent() -> bool {
    if !std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        return false;
    }
    // SAFETY: all zeros are a valid sched_param.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: of this thread; `priority` is valid.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}

/// A program that waits in a callback of `gc.callbacks`, at the end of a collection.
pub trait HeapCallback: Sync {
    /// Whether it still does; asked while all its threads are stopped.
    fn is_there(&self) -> bool;

    /// It may go on: its heap was copied.
    fn leave(&self);
}

/// When the program is stopped.
pub(crate) enum HeapMoment<'callback> {
    /// While no collection runs.
    BetweenCollections,
    /// At the end of one.
    InCallback(&'callback dyn HeapCallback),
}

impl HeapMoment<'_> {
    /// Whether a collection is in the way.
    pub(crate) fn is_disturbed(&self, is_collecting: impl FnOnce() -> bool) -> bool {
        matches!(self, Self::BetweenCollections) && is_collecting()
    }
}

/// Why a heap cannot be taken in a callback: the program has left it.
pub(crate) const NOT_THERE: &str = "was not in the callback";

#[cfg(test)]
mod tests {
    use super::be_urgent;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    #[test]
    fn on_one_cpu_others_are_not_held_up() {
        let pid = Pid::from_raw(0);
        let is_urgent = std::thread::spawn(move || {
            let all = sched_getaffinity(pid).unwrap();
            let first = (0..CpuSet::count()).find(|cpu| all.is_set(*cpu).unwrap()).unwrap();
            let mut one = CpuSet::new();
            one.set(first).unwrap();
            sched_setaffinity(pid, &one).unwrap();
            be_urgent()
        });
        assert!(!is_urgent.join().unwrap());
    }
}
