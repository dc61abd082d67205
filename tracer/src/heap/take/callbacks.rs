//! The heap of a command at the end of a full collection: the injected library counts them, and waits
//! at the requested one until the heap is taken (`inject/src/python/heap.rs`).

use super::{HeapWatch, UPDATE_SHARE, duration, options};
use crate::args::TakeHeapArgs;
use crate::clock::own_monotonic_ns;
use crate::invoker::Invoker;
use crate::launch::{InjectionPlan, LaunchPlan, library_for};
use crate::record::folder::{FolderOwner, InjectFolder, places};
use crate::record::kernel::permission;
use crate::record::mode::own_filters;
use crate::record::{UNREACHED, Unexamined};
use crate::text::shell_line;
use crate::units::counted;
use crate::{print, units};
use anyhow::Context as _;
use gctrace_heap::{HeapCallback, HeapError, HeapGraph, RunningHeap};
use gctrace_probes::proc_status;
use gctrace_ring::{
    Absence, AbsenceFiles, HeapNotice, HeapState, InjectOptions, RingConnection, RingListener,
};
use nix::poll::PollTimeout;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Connections that are open without a report; beyond that the oldest is closed. The library sends
/// at once.
const MOST_PENDING: usize = 64;

/// If a heap was last read through in less than this, it is read through once more while the program waits: nothing
/// changes then, so nothing can be missing. Six times as long would still fit into the 2 s of its wait.
const SHORT_PASS: Duration = Duration::from_millis(300);

/// The reports of the library in the command's processes.
pub(super) struct HeapCallbacks<'config> {
    config: &'config TakeHeapArgs,
    at_full: NonZeroU32,
    owner: FolderOwner,
    /// `None` once a process has won: the others go on at once.
    listener: Option<RingListener>,
    pending: Vec<RingConnection>,
    seen: SeenCollections,
    /// The process that leads, read through while it runs.
    prepared: Option<PreparedHeap>,
    /// Counts the processes that report nothing, by reason.
    absent: AbsenceFiles,
    /// Dropped last.
    _folder: InjectFolder,
}

/// The reports of processes so far.
#[derive(Default)]
struct SeenCollections {
    pids: BTreeSet<u32>,
    /// The process with the most has started an interpreter since it was last read through: the data read are of
    /// another program.
    has_started: bool,
    /// The process with the most full collections: their number, its pid and its command.
    most: Option<(u64, u32, String)>,
    /// Processes where nothing is counted any more.
    uncounted: BTreeSet<u32>,
}

/// A running heap, and when it was last read through and how long that took.
struct PreparedHeap {
    pid: u32,
    heap: RunningHeap,
    updated: Instant,
    took: Duration,
}

impl PreparedHeap {
    /// When it may be read through again.
    fn is_due_at(&self) -> Instant {
        self.updated + self.took * UPDATE_SHARE
    }
}

impl<'config> HeapCallbacks<'config> {
    /// Adds the library to the command.
    ///
    /// # Errors
    /// It cannot be loaded into the command, or there is no place for the socket.
    pub(super) fn prepare(
        launch: &mut LaunchPlan,
        invoker: &Invoker,
        config: &'config TakeHeapArgs,
        at_full: NonZeroU32,
    ) -> anyhow::Result<Self> {
        let library = library_for(launch)?;
        for obstacle in launch.obstacles() {
            anyhow::ensure!(!obstacle.is_certain(true), "{obstacle}");
            tracing::warn!("{obstacle}");
        }
        let owner = FolderOwner::of_command(invoker, config.as_root);
        let folder = InjectFolder::make(&places(owner), owner)?;
        let socket = folder.socket();
        let listener = RingListener::bind(&socket)
            .with_context(|| format!("cannot listen at {}", socket.display()))?;
        let absent = folder.absence_files(owner)?;
        let heap_interpreter = u32::try_from(config.interpreter).context("--interpreter")?;
        let options = InjectOptions {
            heap: at_full.get(),
            heap_interpreter,
            filters: own_filters(),
            ..InjectOptions::nothing()
        };
        let injection =
            InjectionPlan { library, options, step_function: None, memory_history: None };
        launch.inject(&injection, &socket)?;
        folder.hand_to(owner)?;
        Ok(Self {
            config,
            at_full,
            owner,
            listener: Some(listener),
            pending: Vec::new(),
            seen: SeenCollections::default(),
            prepared: None,
            absent,
            _folder: folder,
        })
    }

    /// Accepts every connection that waits.
    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        loop {
            match listener.accept() {
                Ok(Some(connection)) if self.owner.accepts(connection.pid, connection.uid) => {
                    if self.pending.len() >= MOST_PENDING {
                        self.pending.remove(0);
                    }
                    self.pending.push(connection);
                }
                Ok(Some(_)) => tracing::warn!("a process of another user was refused"),
                Ok(None) => return,
                Err(error) => return tracing::debug!("accept: {error}"),
            }
        }
    }

    /// Takes the reports that have come, up to one of a process that waits.
    fn receive(&mut self) -> Option<(RingConnection, HeapNotice)> {
        for connection in std::mem::take(&mut self.pending) {
            match connection.receive_notice() {
                Ok(Some(notice)) => {
                    self.seen.add(connection.pid, &notice);
                    if matches!(notice.state, HeapState::Waits | HeapState::FreeThreaded) {
                        return Some((connection, notice));
                    }
                }
                Ok(None) => self.pending.push(connection),
                Err(error) => tracing::debug!("process {}: {error}", connection.pid),
            }
        }
        None
    }

    /// Reads the process with the most full collections through, unless that was recent: parts known in advance need
    /// not be found while it waits.
    fn read_ahead(&mut self) {
        let Some((_, pid, _)) = &self.seen.most else { return };
        let start = Instant::now();
        let has_started = std::mem::take(&mut self.seen.has_started);
        let heap = match self.prepared.take() {
            // Also of another process: the lead may change often.
            Some(prepared) if start < prepared.is_due_at() => {
                self.seen.has_started = has_started;
                self.prepared = Some(prepared);
                return;
            }
            Some(prepared) if prepared.pid == *pid && !has_started => {
                let mut heap = prepared.heap;
                heap.update().map(|()| heap)
            }
            _ => RunningHeap::open(*pid, options(self.config)),
        };
        match heap {
            Ok(heap) => {
                self.prepared = Some(PreparedHeap {
                    pid: *pid,
                    heap,
                    updated: Instant::now(),
                    took: start.elapsed(),
                });
            }
            // It will be tried again.
            Err(error) => tracing::debug!("process {pid}: {error}"),
        }
    }

    /// Takes the heap of a process that waits.
    fn take(
        &mut self,
        connection: RingConnection,
        notice: HeapNotice,
    ) -> anyhow::Result<Option<(HeapGraph, Vec<String>)>> {
        let HeapNotice { count, .. } = notice;
        let pid = connection.pid;
        let (start, start_ns) = (Instant::now(), own_monotonic_ns());
        let waiting = WaitingProcess {
            pid,
            uid: connection.uid,
            connection: Mutex::new(Some(connection)),
            left: OnceLock::new(),
        };
        if let Err(error) = waiting.check_user() {
            // Another may reach it, too.
            tracing::warn!("{error:#}");
            return Ok(None);
        }
        // The first one wins.
        (self.listener, self.pending) = (None, Vec::new());
        permission::attachable(pid)?;
        let prepared = self.prepared.take();
        let prepared = prepared.filter(|prepared| prepared.pid == pid && !self.seen.has_started);
        let mut heap = match prepared {
            Some(mut prepared) => {
                if prepared.took < SHORT_PASS {
                    prepared.heap.update()?;
                }
                prepared.heap
            }
            None => RunningHeap::open(pid, options(self.config))?,
        };
        let Some(mut graph) = heap.take_in_callback(&waiting)? else {
            waiting.leave();
            waiting.check_user()?;
            let graph = heap.take()?;
            let late = units::duration(gctrace_units::duration_ns(start_ns, graph.header.at_ns));
            let note = format!(
                "taken {late} after the end of full collection {count}: reading the heap takes longer \
                 than the program waits"
            );
            return Ok(Some((graph, vec![note])));
        };
        let left = waiting.left.get().copied().unwrap_or_else(Instant::now);
        print::message(format!(
            "process {pid} waited for {} (measured) at the end of full collection {count}",
            duration(left.duration_since(start)),
        ));
        let copied = match heap.copied_collections() {
            Some(number) if number != count => {
                format!(" (by gctrace's count; the interpreter's own is {number})")
            }
            _ => String::new(),
        };
        graph.header.notes.push(format!(
            "Taken at the end of full collection {count}{copied}; gctrace's entry in gc.callbacks, a \
             builtin_function_or_method with its PyCapsule, is part of this heap"
        ));
        Ok(Some((graph, Vec::new())))
    }
}

/// A process that waits in a callback until its connection is closed.
struct WaitingProcess {
    pid: u32,
    /// Its user when it connected, from the kernel.
    uid: u32,
    connection: Mutex<Option<RingConnection>>,
    /// When the connection was closed.
    left: OnceLock<Instant>,
}

impl WaitingProcess {
    /// Whether it still has its user: it could execute a program with other rights and keep the
    /// connection.
    fn is_its_users(&self) -> bool {
        let folder = std::fs::metadata(format!("/proc/{}", self.pid));
        folder.is_ok_and(|folder| folder.uid() == self.uid)
    }

    fn check_user(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.is_its_users(),
            "process {} has ended, or has changed its user, before its heap was taken",
            self.pid
        );
        Ok(())
    }
}

impl HeapCallback for WaitingProcess {
    fn is_there(&self) -> bool {
        let connection = self.connection.lock();
        let connection = connection.unwrap_or_else(PoisonError::into_inner);
        let waits = matches!(&*connection, Some(open) if !open.is_closed());
        waits && self.is_its_users()
    }

    fn leave(&self) {
        let connection = self.connection.lock();
        drop(connection.unwrap_or_else(PoisonError::into_inner).take());
        let _already = self.left.set(Instant::now());
    }
}

impl HeapWatch for HeapCallbacks<'_> {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let listener = self.listener.iter().map(RingListener::as_fd);
        let pending = self.pending.iter().map(RingConnection::as_fd);
        listener.chain(pending).collect()
    }

    fn timeout(&self) -> PollTimeout {
        let due = self.prepared.as_ref().map(PreparedHeap::is_due_at);
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        left.and_then(|left| PollTimeout::try_from(left + Duration::from_millis(1)).ok())
            .unwrap_or(PollTimeout::NONE)
    }

    fn poll(&mut self, _pid: Option<u32>) -> anyhow::Result<Option<(HeapGraph, Vec<String>)>> {
        self.accept();
        match self.receive() {
            Some((connection, notice)) if notice.state == HeapState::Waits => {
                self.take(connection, notice)
            }
            Some((connection, _)) => {
                let pid = connection.pid;
                let version = match RunningHeap::open(pid, options(self.config)) {
                    Err(HeapError::FreeThreaded { version, .. }) => version,
                    _ => "of 3.13 or later".to_owned(),
                };
                Err(HeapError::FreeThreaded { pid, version }.into())
            }
            None => {
                self.read_ahead();
                Ok(None)
            }
        }
    }

    fn report_end(&self) {
        let mut text = format!("no heap was taken (--at-full {}): ", self.at_full);
        let absences = self.absent.counts().unwrap_or_default();
        let absences = Absence::ALL.into_iter().zip(absences);
        let saw_pypy =
            absences.clone().any(|(absence, count)| absence == Absence::PyPy && count > 0);
        match (&self.seen.most, self.seen.pids.len()) {
            (None, _) if saw_pypy => text += "no CPython was seen",
            (None, _) => text = format!("{text}no CPython was seen: {UNREACHED}"),
            (Some((count, pid, command)), 1) => {
                let count = counted(*count, "full collection");
                text += &format!("process {pid} ({command}) made {count}");
            }
            (Some((count, pid, command)), processes) => {
                let count = counted(*count, "full collection");
                text += &format!(
                    "none of {processes} processes made as many; most, {count}, were those of \
                     process {pid} ({command})"
                );
            }
        }
        let absences = absences.map(|(absence, count)| (Unexamined::Absent(absence), count));
        let uncounted = (Unexamined::Unhooked, self.seen.uncounted.len() as u64);
        for (why, count) in absences.chain([uncounted]) {
            if count > 0 {
                text += &format!("; not counted: {count} {why}");
            }
        }
        tracing::error!("{text}");
    }
}

impl SeenCollections {
    fn add(&mut self, pid: u32, notice: &HeapNotice) {
        let HeapNotice { count, state } = *notice;
        self.pids.insert(pid);
        if state == HeapState::Uncounted {
            self.uncounted.insert(pid);
        }
        match &mut self.most {
            Some((most, leader, _)) if *leader == pid => {
                self.has_started |= count <= *most;
                *most = count;
            }
            Some((most, ..)) if *most >= count => {}
            _ => {
                let command = proc_status::last_command_line(pid);
                self.most = Some((count, pid, shell_line(&command)));
            }
        }
    }
}
