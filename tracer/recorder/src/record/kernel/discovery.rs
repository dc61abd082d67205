//! Finds every Python process that this user may trace, in `/proc`; reports each once.
//!
//! Owns the examined processes, with the time and the result of each examination. `gctrace_probes` decides whether a
//! file is an interpreter; `kernel.rs` follows children and places probes.

use crate::clock;
use crate::record::kernel::recorded_processes::RESCAN_DELAYS;
use gctrace_probes::proc_status::ListedProcess;
use gctrace_probes::{ProgramKind, maps, proc_status};
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// Processes past the last of [`RESCAN_DELAYS`] that one scan examines at most, to bound its time:
/// each takes 50 to 100 us.
const OLD_PROCESSES_PER_SCAN: usize = 100;

/// How long a process is young: the next scan sees if it executed another program. Wrapper scripts
/// and shims (pyenv's, conda's) run some other program first, and become Python in seconds.
const YOUNG: Duration = Duration::from_secs(60);

/// Maximum number of cached programs; beyond that the cache is cleared.
const PROGRAMS: usize = 4096;

/// Finds Python processes by scanning `/proc` repeatedly.
pub(crate) struct ProcessDiscovery {
    /// Only processes of this user; `None`: of all.
    owner: Option<u32>,
    known: HashMap<u32, ScannedProcess>,
    programs: HashMap<Program, ProgramKind>,
}

/// A process that was examined at least once.
struct ScannedProcess {
    /// Inode of its folder in `/proc`.
    inode: u64,
    started_ns: u64,
    state: ScanState,
}

enum ScanState {
    /// Reported, or unable to run any program (a kernel thread, a zombie).
    Settled,
    /// No CPython so far.
    Waiting {
        /// When to examine it again.
        due: Instant,
        /// How often it was examined: index into [`RESCAN_DELAYS`].
        looked: usize,
        /// The program that it ran then.
        program: Option<Program>,
    },
}

/// An executable file: device, inode, time of the last change (s, ns).
type Program = (u64, u64, i64, i64);

/// The result of examining a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanResult {
    Python,
    NotYet,
    Never,
}

impl ProcessDiscovery {
    /// `owner`: only processes of this user.
    pub(crate) fn new(owner: Option<u32>) -> Self {
        Self { owner, known: HashMap::new(), programs: HashMap::new() }
    }

    /// Processes that run CPython and were not reported before, by ascending pid; never gctrace
    /// itself. To be called about once a second.
    pub(crate) fn scan(&mut self) -> Vec<u32> {
        self.scan_at(Instant::now())
    }

    fn scan_at(&mut self, now: Instant) -> Vec<u32> {
        // If `/proc` cannot be listed, no process is new and none has ended.
        let Ok(listed) = proc_status::all() else { return Vec::new() };
        self.forget_ended(&listed);
        let mut due: Vec<u32> = listed
            .iter()
            .filter(|process| self.is_new(process, now))
            .map(|process| process.pid)
            .collect();
        due.extend(self.waited(now));
        due.extend(self.became_another(now));
        due.retain(|pid| self.examine(*pid, now) == ScanResult::Python);
        due.sort_unstable();
        due
    }

    fn forget_ended(&mut self, listed: &[ListedProcess]) {
        let there: HashSet<u32> = listed.iter().map(|process| process.pid).collect();
        self.known.retain(|pid, _| there.contains(pid));
    }

    /// Whether this process is new; if so, remembers it as due.
    fn is_new(&mut self, listed: &ListedProcess, now: Instant) -> bool {
        if listed.pid == std::process::id() {
            return false;
        }
        // The inode comes with the listing, the start time costs a file. The kernel numbers a new
        // inode when it has dropped the old one to save memory (`proc_pid_make_inode`), so only the
        // same one proves that it is the same process.
        // https://github.com/torvalds/linux/blob/v6.12/fs/proc/base.c
        let known = self.known.get_mut(&listed.pid);
        if matches!(&known, Some(known) if known.inode == listed.inode) {
            return false;
        }
        let Ok(proc_status::ProcessStat { started_ns, .. }) = proc_status::stat(listed.pid) else {
            return false;
        };
        if let Some(known) = known
            && known.started_ns == started_ns
        {
            known.inode = listed.inode;
            return false;
        }
        let looked = scans_before(age(started_ns));
        let state = ScanState::Waiting { due: now, looked, program: None };
        self.known.insert(listed.pid, ScannedProcess { inode: listed.inode, started_ns, state });
        true
    }

    /// Processes due again: all young ones, and the old ones with the longest wait.
    fn waited(&self, now: Instant) -> Vec<u32> {
        let (mut young, mut old) = (Vec::new(), Vec::new());
        for (pid, known) in &self.known {
            match known.state {
                ScanState::Waiting { due, looked, .. } if due < now => {
                    let list = if looked < RESCAN_DELAYS.len() { &mut young } else { &mut old };
                    list.push((due, *pid));
                }
                _ => {}
            }
        }
        if old.len() > OLD_PROCESSES_PER_SCAN {
            old.select_nth_unstable(OLD_PROCESSES_PER_SCAN);
            old.truncate(OLD_PROCESSES_PER_SCAN);
        }
        young.into_iter().chain(old).map(|(_, pid)| pid).collect()
    }

    /// Young processes that are not due but have executed another program.
    fn became_another(&mut self, now: Instant) -> Vec<u32> {
        let mut changed = Vec::new();
        for (pid, known) in &mut self.known {
            let age = age(known.started_ns);
            let ScanState::Waiting { due, looked, program } = &mut known.state else { continue };
            // execve(2) changes neither pid nor start time: only the executable shows it.
            let is_waiting = *due >= now && program.is_some() && age < YOUNG;
            if is_waiting && running(*pid).is_some_and(|file| *program != Some(identity(&file))) {
                *looked = 0;
                changed.push(*pid);
            }
        }
        changed
    }

    fn examine(&mut self, pid: u32, now: Instant) -> ScanResult {
        let program = running(pid).map(|file| identity(&file));
        let seen = self.see(pid);
        if let Some(known) = self.known.get_mut(&pid) {
            known.state = match (seen, &known.state) {
                (ScanResult::NotYet, ScanState::Waiting { looked, .. }) => {
                    ScanState::Waiting { due: now + wait(*looked), looked: looked + 1, program }
                }
                _ => ScanState::Settled,
            };
        }
        seen
    }

    fn see(&mut self, pid: u32) -> ScanResult {
        if matches!(self.owner, Some(owner) if !belongs_to(pid, owner)) {
            // It may become this user's process, as a login does.
            return ScanResult::NotYet;
        }
        match std::fs::metadata(proc_status::executable_link(pid)) {
            Ok(file) => self.see_program(pid, &file),
            // Only a process without memory of its own has no executable (`proc_exe_link`).
            // https://github.com/torvalds/linux/blob/v6.12/fs/proc/base.c
            Err(error) if error.kind() == ErrorKind::NotFound => ScanResult::Never,
            Err(_) => ScanResult::NotYet,
        }
    }

    fn see_program(&mut self, pid: u32, file: &Metadata) -> ScanResult {
        let python = match self.kind(pid, file) {
            ProgramKind::Static => true,
            // Whether it is Python shows once its loader, or the program itself, has mapped a
            // libpython.
            ProgramKind::NeedsLibpython { .. } | ProgramKind::OtherDynamic { .. } => {
                maps::has_libpython(pid).unwrap_or(false)
            }
            ProgramKind::PyPy | ProgramKind::Other => false,
        };
        if python { ScanResult::Python } else { ScanResult::NotYet }
    }

    /// Kind of the program that a process runs; each file is read once.
    fn kind(&mut self, pid: u32, file: &Metadata) -> ProgramKind {
        let program = identity(file);
        if let Some(kind) = self.programs.get(&program) {
            return *kind;
        }
        if self.programs.len() >= PROGRAMS {
            self.programs.clear();
        }
        let kind = gctrace_probes::identify(&proc_status::executable_link(pid));
        // It exited, or may not be read: nothing to remember about the file.
        let Ok(kind) = kind else { return ProgramKind::Other };
        self.programs.insert(program, kind);
        kind
    }
}

/// The `/proc` folder of a process that its own user may not inspect (it changed its user id, it is
/// not dumpable) belongs to root (proc(5)).
fn belongs_to(pid: u32, owner: u32) -> bool {
    std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|folder| folder.uid() == owner)
}

fn wait(looked: usize) -> Duration {
    RESCAN_DELAYS[looked.min(RESCAN_DELAYS.len() - 1)]
}

/// The executable of a process.
fn running(pid: u32) -> Option<Metadata> {
    std::fs::metadata(proc_status::executable_link(pid)).ok()
}

fn identity(file: &Metadata) -> Program {
    (file.dev(), file.ino(), file.mtime(), file.mtime_nsec())
}

/// How many of [`RESCAN_DELAYS`] have passed for a process of this age.
fn scans_before(age: Duration) -> usize {
    RESCAN_DELAYS.iter().filter(|wait| **wait <= age).count()
}

/// A process that starts now may seem to start later, as its time is rounded: its age is 0.
fn age(started_ns: u64) -> Duration {
    let now = gctrace_units::duration_ns(started_ns, clock::boot_ns());
    Duration::from_nanos(now)
}

#[cfg(test)]
mod tests;
