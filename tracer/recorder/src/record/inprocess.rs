//! In-process: the other source of a recording, by rings of shared memory that processes hand over.
//!
//! Owns the private folder and its socket, the connected processes, and the figures about all of
//! them. One process and its records are in `inprocess/injected_process.rs`; `launch/preload.rs`
//! loads the library into programs.

mod connections;
mod counted_allocations;
pub mod folder;
mod garbage;
mod gpu;
mod injected_process;
mod layers;
mod library_cost;
mod notices;
mod process_facts;
mod python;
mod ring_event;
mod texts;
mod turns;

use crate::clock;
use crate::clock::namespaces::{OtherClock, ProcessClocks};
use crate::invoker::Invoker;
use crate::launch::{CommandEnd, InjectionPlan};
use crate::record::Source;
use crate::record::examination::Unexamined;
use crate::record::inprocess::connections::RingConnections;
use crate::record::inprocess::folder::{FolderOwner, InjectFolder};
use crate::record::inprocess::injected_process::InjectedProcess;
use crate::record::inprocess::library_cost::LibraryCost;
use crate::record::inprocess::notices::NoticeCounts;
use crate::record::inprocess::process_facts::InjectedProcessFacts;
use crate::record::kept_memory::KeptMemory;
use crate::record::losses::RecordingLosses;
use crate::record::output::{RecordOutput, RecordSink as _};
use crate::record::private_memory::PrivateMemory;
use crate::record::trace::RecordingTrace;
use anyhow::Context as _;
use gctrace_event::{ProcessExit, ProcessOrigin, Record, TraceEnd, UnseenCollections};
use gctrace_ring::{Absence, InjectOptions, OfferedRing, RingConsumer, RingListener, RingRole};
use gctrace_units::{add_to, sum};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// The processes that are recorded in-process.
pub(crate) struct InProcessSource {
    connections: RingConnections,
    /// The listener, open connections and all living processes.
    waiting: Epoll,
    /// The sources for the library to record.
    options: InjectOptions,
    processes: HashMap<u32, InjectedProcess>,
    clocks: ProcessClocks,
    /// Rings of this user are accepted, in addition to root's.
    owner: FolderOwner,
    launched: Option<u32>,
    stats: InjectedStats,
    /// Collections are to be recorded in-process, and no process has handed over a ring for them
    /// yet.
    lacks_python: bool,
    /// GPU work is to be recorded, and no process has handed over a ring for it yet.
    lacks_cuda: bool,
    /// The function of `--step-function`, until the end of the recording.
    step_function: Option<String>,
    /// The command handed over a ring.
    has_launched: bool,
    /// When all rings were last read, in ns of CLOCK_MONOTONIC.
    read_until_ns: u64,
    /// Counts the processes that hand over no ring, by reason.
    absent: gctrace_ring::AbsenceFiles,
    /// Dropped last.
    folder: InjectFolder,
}

/// Figures about all processes.
#[derive(Default)]
struct InjectedStats {
    /// There are no probes: processes, threads and exits are written from here.
    describes_processes: bool,
    notices: NoticeCounts,
    lost: BTreeMap<String, u64>,
    unseen: UnseenCollections,
    private: PrivateMemory,
    kept: KeptMemory,
    /// Children that were forked and have no ring, to be recorded.
    forked: Vec<InjectedProcessFacts>,
    /// Of the closed rings.
    cost: LibraryCost,
    /// As `lost`, not yet written.
    lost_by_process: BTreeMap<(u32, &'static str), u64>,
    overhead: CuptiOverhead,
    /// Collections recorded in-process.
    collections: u64,
    /// Calls that CUPTI reported.
    calls: u64,
    /// There are probes on PyTorch's backward passes and allocator.
    probes_see_torch: bool,
    /// Marks of steps recorded in-process.
    steps: u64,
    /// The function of `--step-function` was called, or it is reported why that is not recorded.
    function_is_settled: bool,
    /// Steps with memory by layer.
    layers: u64,
}

/// How long CUPTI itself kept the programs' threads busy.
#[derive(Clone, Copy, Debug, Default)]
struct CuptiOverhead {
    count: u64,
    total_ns: u64,
    queue_full: u64,
}

impl InProcessSource {
    /// Creates the private folder and listens in it. `describes_processes`: there are no probes to describe them;
    /// `injection`: the sources for the library to record.
    pub(crate) fn start(
        invoker: &Invoker,
        as_root: bool,
        describes_processes: bool,
        injection: &InjectionPlan,
    ) -> anyhow::Result<Self> {
        let options = &injection.options;
        let owner = FolderOwner::of_command(invoker, as_root);
        let folder = InjectFolder::make(&folder::places(owner), owner)?;
        let listener = RingListener::bind(&folder.socket())
            .with_context(|| format!("cannot listen at {}", folder.socket().display()))?;
        let absent = folder.absence_files(owner)?;
        let waiting = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll")?;
        let mut injected = Self {
            connections: RingConnections::new(listener),
            waiting,
            options: *options,
            processes: HashMap::new(),
            clocks: ProcessClocks::default(),
            owner,
            launched: None,
            stats: InjectedStats {
                describes_processes,
                probes_see_torch: !describes_processes && options.cuda,
                ..InjectedStats::default()
            },
            lacks_python: options.collections,
            // On a machine without a GPU its absence is expected.
            lacks_cuda: options.cuda && !options.yields && crate::record::mode::has_device(),
            step_function: injection.step_function.clone(),
            has_launched: false,
            read_until_ns: 0,
            absent,
            folder,
        };
        injected.connections.listen(&injected.waiting);
        raise_descriptor_limit();
        Ok(injected)
    }

    /// The socket's path, for the environment of programs.
    pub(crate) fn rendezvous(&self) -> PathBuf {
        self.folder.socket()
    }

    /// Hands the folder to its user, once gctrace has put everything into it.
    pub(crate) fn hand_over(&self) -> anyhow::Result<()> {
        self.folder.hand_to(self.owner)
    }

    /// Sets the pid of the command that gctrace started.
    pub(crate) fn launched(&mut self, pid: u32) {
        self.launched = Some(pid);
    }

    /// Counts the processes known only by their absence, unless probes see them. Returns whether one
    /// of them loaded the library and has a reason of its own not to be recorded.
    fn count_absent(&self, trace: &mut RecordingTrace) -> bool {
        let counts = self.absent.counts().unwrap_or_else(|error| {
            tracing::debug!("{}: {error}", gctrace_ring::ABSENCE_FILE);
            Default::default()
        });
        let counts = Absence::ALL.into_iter().zip(counts);
        if self.stats.describes_processes {
            for (absence, count) in counts.clone() {
                trace.examination.absent(Unexamined::Absent(absence), count);
            }
        }
        let is_reason = |absence| matches!(absence, Absence::PyPy | Absence::Limited);
        counts.into_iter().any(|(absence, count)| is_reason(absence) && count > 0)
    }

    /// Accepts new rings, drains all of them, reaps exited processes.
    fn drain(&mut self, trace: &mut RecordingTrace) {
        let begin_ns = clock::monotonic_ns();
        self.clocks.forget();
        self.connections.listen(&self.waiting);
        // A process seen as exited here writes no more; the loop below drains it.
        let dead = self.dead();
        self.accept(trace);
        let mut gone = Vec::new();
        for (pid, process) in &mut self.processes {
            let is_dead = process.pidfd.is_none() || dead.contains(pid);
            process.read(is_dead, trace, &mut self.stats);
            if !is_dead {
                process.facts.write_memory(begin_ns, trace, &mut self.stats);
            }
            if is_dead {
                gone.push(*pid);
            }
        }
        for facts in std::mem::take(&mut self.stats.forked) {
            gone.extend(self.begin_forked(facts, trace));
        }
        let now_ns = clock::monotonic_ns();
        for pid in gone {
            self.reap(pid, now_ns, trace);
        }
        // The ring of a process that waits to be accepted may have records of any age.
        if self.connections.accepted_all() {
            self.read_until_ns = begin_ns;
        }
    }

    fn dead(&self) -> Vec<u32> {
        let most = self.processes.len() + self.connections.most_events();
        let mut events = vec![EpollEvent::empty(); most];
        let count = self.waiting.wait(&mut events, EpollTimeout::ZERO);
        // A failed call found none.
        let ready = events.iter().take(count.unwrap_or(0)).map(EpollEvent::data);
        ready.filter_map(|data| u32::try_from(data).ok()).collect()
    }

    fn accept(&mut self, trace: &mut RecordingTrace) {
        let mut offers = Vec::new();
        let is_short_of_files = self.connections.take(&self.waiting, &mut offers);
        for offered in offers {
            self.take(offered, trace);
        }
        if is_short_of_files {
            self.warn(0, TOO_MANY_FILES.to_owned(), trace);
        }
    }

    fn take(&mut self, offered: OfferedRing, trace: &mut RecordingTrace) {
        let OfferedRing { ring, hello, pid, uid } = offered;
        if !self.owner.accepts(pid, uid) {
            let text = format!(
                "a ring from a process of user {uid} was refused: that is not the command's user"
            );
            return self.warn(pid, text, trace);
        }
        let records = hello.role.records(&self.options);
        let inode = nix::sys::stat::fstat(&ring).ok().map(|status| status.st_ino);
        let known = self.processes.get(&pid);
        if matches!(known, Some(known) if known.still_maps(hello.role)) {
            return self.warn(pid, SECOND_RING.to_owned(), trace);
        }
        let consumer = match RingConsumer::open(ring.as_fd(), records) {
            Ok(consumer) => consumer,
            Err(error) => {
                let text = format!(
                    "a ring was refused ({error}): is libgctrace_inject.so from this version of gctrace?"
                );
                return self.warn(pid, text, trace);
            }
        };
        // From here on only the mapping keeps the memory alive.
        drop(ring);
        let stated = OtherClock::Stated(hello.time_namespace);
        let Some(ahead_ns) = self.clocks.ahead_ns(pid, stated) else {
            return self.warn(pid, OTHER_CLOCK.to_owned(), trace);
        };
        let (consumer, hello) = (consumer.on_clock(ahead_ns), hello.on_clock(ahead_ns));
        if !self.processes.contains_key(&pid) {
            let pidfd = self.watch_end(pid);
            let origin = if self.launched == Some(pid) {
                ProcessOrigin::Launched
            } else {
                ProcessOrigin::Child
            };
            let process = InjectedProcess::new(pid, &hello, origin, pidfd);
            self.processes.insert(pid, process);
            if self.stats.describes_processes {
                trace.examination.started(pid, None);
            }
        }
        self.lacks_python &= hello.role != RingRole::Python;
        self.lacks_cuda &= hello.role != RingRole::Gpu;
        self.has_launched |= self.launched == Some(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.ahead_ns = ahead_ns;
            process.add(&hello, (consumer, inode), trace, &mut self.stats);
        }
    }

    /// Records a forked child that has no ring yet. Returns its pid if it has exited.
    fn begin_forked(
        &mut self,
        mut facts: InjectedProcessFacts,
        trace: &mut RecordingTrace,
    ) -> Option<u32> {
        let pid = facts.process.pid;
        // Its parent may have given its children another clock than its own.
        let parent = facts.process.parent.and_then(|parent| self.processes.get(&parent));
        let parents_ns = if let Some(parent) = parent { parent.ahead_ns } else { 0 };
        let assumed = OtherClock::Assumed(parents_ns);
        let ahead_ns = self.clocks.ahead_ns(pid, assumed).unwrap_or(parents_ns);
        let since_ns = facts.process.since_ns.saturating_add_signed(parents_ns);
        facts.process.since_ns = since_ns.saturating_add_signed(ahead_ns.saturating_neg());
        // Its id is read from the program's memory, and may be any number.
        let user = std::fs::metadata(format!("/proc/{pid}")).map(|entry| entry.uid());
        let is_foreign = user.is_ok_and(|uid| !self.owner.accepts(pid, uid));
        if is_foreign || self.processes.contains_key(&pid) {
            return None;
        }
        let pidfd = self.watch_end(pid);
        let is_gone = pidfd.is_none();
        trace.examination.started(pid, None);
        let has_python = facts.process.interpreter.is_some();
        trace.examination.examined(pid, has_python);
        let mut process = InjectedProcess::forked(facts, pidfd);
        process.ahead_ns = ahead_ns;
        process.facts.announce(trace, &self.stats);
        self.processes.insert(pid, process);
        if is_gone { Some(pid) } else { None }
    }

    /// `None` if the process has exited and was waited for already.
    fn watch_end(&self, pid: u32) -> Option<OwnedFd> {
        let pidfd = crate::platform::pidfd(pid).ok()?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(pid));
        if let Err(errno) = self.waiting.add(&pidfd, event) {
            tracing::warn!("the exit of process {pid} will not be seen: {errno}");
        }
        Some(pidfd)
    }

    /// Closes an exited process with drained rings.
    fn reap(&mut self, pid: u32, at_ns: u64, trace: &mut RecordingTrace) {
        let Some(mut process) = self.processes.remove(&pid) else { return };
        process.close(Some(at_ns), trace, &mut self.stats);
        if let Some(pidfd) = &process.pidfd {
            let _ = self.waiting.delete(pidfd);
        }
        if self.stats.describes_processes {
            trace.output.forget(pid);
            trace.examination.ended(pid);
            trace.calls.ended(pid);
            // The command's status is known only after waiting for it.
            if self.launched != Some(pid) {
                let (code, signal) = (None, None);
                trace.output.write(&Record::ProcessExit(ProcessExit { pid, at_ns, code, signal }));
            }
        }
    }

    fn warn(&mut self, pid: u32, text: String, trace: &mut RecordingTrace) {
        let notice = ring_event::InjectedNotice {
            at_ns: clock::monotonic_ns(),
            weight: ring_event::NoticeLevel::Warning,
            text,
        };
        self.stats.notices.report(pid, notice, &mut trace.output);
    }
}

impl Source for InProcessSource {
    fn wake_descriptor(&self) -> BorrowedFd<'_> {
        self.waiting.0.as_fd()
    }

    fn poll(&mut self, trace: &mut RecordingTrace) -> anyhow::Result<()> {
        self.drain(trace);
        Ok(())
    }

    fn read_until_ns(&self) -> u64 {
        self.read_until_ns
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    fn tally(
        &mut self,
        _trace: &RecordingTrace,
        losses: &mut RecordingLosses,
    ) -> anyhow::Result<()> {
        losses.lost.extend(self.stats.lost.clone());
        losses.hits += self.stats.collections + self.stats.calls + self.stats.steps;
        let mut cost = self.stats.cost;
        for process in self.processes.values() {
            process.add_cost(&mut cost);
        }
        // With probes, if their cost is known too.
        losses.cost_ns = match (self.stats.describes_processes, losses.cost_ns) {
            (false, None) => None,
            (_, probes_ns) => Some(sum(probes_ns.into_iter().chain([cost.total_ns()]))),
        };
        Ok(())
    }

    fn finish(
        mut self,
        trace: &mut RecordingTrace,
        end: &mut TraceEnd,
        ended: Option<CommandEnd>,
    ) -> anyhow::Result<usize> {
        // Covers every pending connection: the kernel queues that many.
        for _ in 0..RingListener::MAX_WAITING / connections::ACCEPTED_AT_ONCE {
            self.drain(trace);
            if !self.connections.has_more() {
                break;
            }
        }
        let is_known_why = self.count_absent(trace);
        for process in self.processes.values_mut() {
            process.close(None, trace, &mut self.stats);
        }
        let now_ns = clock::monotonic_ns();
        if let (Some(pid), Some(ended)) = (self.launched, ended)
            && self.stats.describes_processes
            && self.has_launched
        {
            let exit = ended.exit(pid, now_ns);
            trace.output.write(&Record::ProcessExit(exit));
        }
        // The summary of the recording has the reason.
        if self.lacks_python && !is_known_why {
            self.warn(0, format!("no CPython was recorded: {UNREACHED}"), trace);
        } else if let Some(function) = &self.step_function
            && !self.stats.function_is_settled
        {
            let text = format!(
                "no function named {function} was called (--step-function): no step is marked by it"
            );
            self.warn(0, text, trace);
        } else if self.options.layers > 0 && self.stats.layers == 0 {
            self.warn(0, layers::NONE_MEASURED.to_owned(), trace);
        } else if self.lacks_cuda {
            self.warn(0, NO_CUDA.to_owned(), trace);
        }
        self.stats.overhead.note(&mut trace.output);
        self.stats.notices.finish(&mut trace.output);
        end.probes.extend(self.stats.cost.entries(self.stats.calls));
        end.unseen = (self.stats.describes_processes && self.options.collections)
            .then_some(self.stats.unseen);
        end.lost.extend(self.stats.lost);
        Ok(self.processes.len())
    }
}

const TOO_MANY_FILES: &str = "gctrace has reached its limit of open files: new processes are recorded once others \
    have exited; ulimit -n raises the limit";

const OTHER_CLOCK: &str = "it is not recorded in-process: it is in a time namespace whose clock is unknown; gctrace \
    can ask for the clock of a process that it may trace, and that has not exited";

const SECOND_RING: &str =
    "a second ring was refused: a process creates another one only after exec or fork";

/// Why the library may be in no CPython of a command.
pub const UNREACHED: &str = "the command runs none, or one that the library is not loaded into \
    (statically linked, set-user-id, built for musl, started with an environment of its own) or that \
    cannot reach gctrace's private folder (a sandbox or chroot with a /dev/shm or /tmp of its own)";

const NO_CUDA: &str = "no GPU times were recorded: no program initialized CUDA, so that CUPTI was not loaded \
    (--cuda off disables this)";

/// Each living process takes one descriptor. The command gets the limit that gctrace was started
/// with.
fn raise_descriptor_limit() {
    use nix::sys::resource::Resource;
    let Ok((soft, hard)) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if soft < hard
        && let Err(errno) = nix::sys::resource::setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!("the limit on open files stays {soft}: {errno}");
    }
}

impl InjectedStats {
    /// Counts lost records, in total and for their process.
    fn lose(&mut self, pid: u32, what: &'static str, count: u64) {
        for lost in [
            self.lost.entry(what.to_owned()).or_default(),
            self.lost_by_process.entry((pid, what)).or_default(),
        ] {
            add_to(lost, count);
        }
    }

    /// Writes to the trace the processes that lost records, after they have exited.
    fn report_lost(&mut self, output: &mut RecordOutput) {
        let now_ns = clock::monotonic_ns();
        for ((pid, what), count) in std::mem::take(&mut self.lost_by_process) {
            output.note(Some(pid), now_ns, format!("lost: {count} ({what})"));
        }
    }
}

impl CuptiOverhead {
    fn add(&mut self, ns: u64, queue_full: bool) {
        self.count += 1;
        add_to(&mut self.total_ns, ns);
        self.queue_full += u64::from(queue_full);
    }

    fn note(&self, output: &mut RecordOutput) {
        if self.count > 0 {
            let milliseconds = self.total_ns as f64 / 1e6;
            let message = format!(
                "CUPTI reported {} overhead intervals, {milliseconds:.3} ms in total; in {} of them the launch queue was full",
                self.count, self.queue_full
            );
            output.note(None, clock::monotonic_ns(), message);
        }
    }
}
