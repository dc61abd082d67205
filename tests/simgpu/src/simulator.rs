//! The simulator, one per process: its state, its thread, its shutdown.

use crate::core::{
    Completion, FinishedOperation, Operation, OperationKind, Rendezvous, SimMachine, StreamKind,
};
use crate::error::{CudaError, Status, guarded};
use crate::log::TruthLog;
use crate::memory::MemoryBlocks;
use crate::settings::SimSettings;
use crate::sync::LockExt;
use crate::usage::{BusyInterval, UsageFile};
use crate::{clock, cupti, handles, link, usage};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// CUPTI's id of the legacy default stream.
const FIRST_STREAM: u32 = 7;

/// Numbers of default streams of the second and later devices start here.
const DEFAULT_STREAMS: u32 = 0x8000_0000;

/// A kernel that can be launched.
#[derive(Debug)]
pub(crate) struct SimKernel {
    pub(crate) name: Arc<str>,
    pub(crate) duration_ns: u64,
    pub(crate) bytes: u64,
    /// For a collective: taken by its only launch.
    pub(crate) meeting: Option<Box<dyn Rendezvous>>,
}

/// One launch of a kernel, as captured into a graph or enqueued in a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelLaunch {
    pub(crate) function: u32,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

/// The latest record of an event.
#[derive(Clone, Debug)]
pub(crate) struct EventRecord {
    pub(crate) completion: Completion,
    /// Correlation id of the call that recorded it.
    pub(crate) correlation: u32,
}

/// All mutable state.
#[derive(Debug)]
pub(crate) struct SimulatorState {
    pub(crate) machine: SimMachine,
    pub(crate) memory: MemoryBlocks,
    pub(crate) kernels: BTreeMap<u32, SimKernel>,
    /// Streams that programs may use, by number; the value is the device.
    pub(crate) streams: BTreeMap<u32, u32>,
    /// `None`: never recorded.
    pub(crate) events: BTreeMap<u32, Option<EventRecord>>,
    /// Graphs, and streams under capture with what was captured.
    pub(crate) graphs: BTreeMap<u32, Vec<KernelLaunch>>,
    pub(crate) captures: BTreeMap<u32, Vec<KernelLaunch>>,
    pub(crate) page_locked: BTreeSet<u64>,
    next_id: u32,
}

impl SimulatorState {
    fn new(settings: &SimSettings) -> Self {
        let mut machine = SimMachine::new(settings.timing);
        let mut streams = BTreeMap::new();
        for device in 0..settings.devices {
            let id = default_stream(device);
            machine.add_stream(id, device, StreamKind::Legacy);
            streams.insert(id, device);
        }
        Self {
            machine,
            memory: MemoryBlocks::new(settings.memory),
            kernels: BTreeMap::new(),
            streams,
            events: BTreeMap::new(),
            graphs: BTreeMap::new(),
            captures: BTreeMap::new(),
            page_locked: BTreeSet::new(),
            next_id: FIRST_STREAM + 6,
        }
    }

    /// A number for a new handle.
    pub(crate) fn fresh_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    pub(crate) fn add_stream(&mut self, device: u32, kind: StreamKind) -> u32 {
        let id = self.fresh_id();
        self.machine.add_stream(id, device, kind);
        self.streams.insert(id, device);
        id
    }
}

/// The number of a device's legacy default stream.
pub(crate) fn default_stream(device: u32) -> u32 {
    if device == 0 { FIRST_STREAM } else { DEFAULT_STREAMS + device }
}

#[derive(Debug)]
pub(crate) struct Simulator {
    pub(crate) settings: SimSettings,
    state: Mutex<SimulatorState>,
    /// Notified when something needs the simulator's thread.
    wake: Condvar,
    log: Option<TruthLog>,
    /// By device, from its first context on.
    usage: Vec<OnceLock<Option<UsageFile>>>,
    correlation: AtomicU32,
}

static SIMULATOR: OnceLock<Simulator> = OnceLock::new();
static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// Set in forked children: as with the real driver, they cannot use what the parent initialized.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The simulator, if `cuInit` was called in this very process.
pub(crate) fn simulator() -> Result<&'static Simulator, CudaError> {
    if FORKED.load(Ordering::Relaxed) || !INITIALIZED.load(Ordering::Acquire) {
        return Err(CudaError::NOT_INITIALIZED);
    }
    SIMULATOR.get().ok_or(CudaError::NOT_INITIALIZED)
}

/// Whether `cuInit` was called here, or in the parent before a fork.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Creates it at the first call; returns whether this was the first.
pub(crate) fn initialize() -> Result<bool, CudaError> {
    if is_forked() {
        return Err(CudaError::NOT_INITIALIZED);
    }
    SIMULATOR.get_or_init(Simulator::new);
    let first = !INITIALIZED.swap(true, Ordering::AcqRel);
    if first {
        start_thread();
        // SAFETY: both take plain functions of this library, which is never unloaded: cuInit
        // keeps a handle to it.
        unsafe {
            nix::libc::pthread_atfork(None, None, Some(after_fork));
            nix::libc::atexit(at_exit);
        }
    }
    Ok(first)
}

extern "C" fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

extern "C" fn at_exit() {
    let Ok(simulator) = simulator() else {
        return;
    };
    guarded(|| {
        simulator.flush();
        let used = simulator.usage.iter().filter_map(OnceLock::get).flatten();
        used.for_each(UsageFile::remove);
        Ok(())
    });
    if simulator.settings.has(crate::settings::SimFault::CrashAtExit) {
        // SAFETY: being killed by a signal is the requested fault.
        unsafe {
            nix::libc::signal(nix::libc::SIGSEGV, nix::libc::SIG_DFL);
            nix::libc::raise(nix::libc::SIGSEGV);
        }
    }
}

/// Writes the log now. For programs that exit without exit handlers, by `_exit` or `exec`, which
/// would lose the last 100 ms of it.
#[unsafe(no_mangle)]
extern "C" fn simgpuFlush() -> i32 {
    guarded(|| simulator().map(Simulator::flush))
}

fn start_thread() {
    let builder = std::thread::Builder::new().name("simgpu".into());
    // Without the thread only the log's flushes and ranks that wait for this one suffer.
    let _ = builder.spawn(|| {
        let mut logged_ns = clock::now_ns();
        while let Ok(simulator) = simulator() {
            simulator.turn(&mut logged_ns);
        }
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "in the program's process; it must not panic if stderr is closed"
)]
fn report_unwritable(prefix: &OsStr, error: &io::Error) {
    let _ = writeln!(io::stderr(), "simgpu: cannot write the log {prefix:?}: {error}");
}

impl Simulator {
    fn new() -> Self {
        let settings = SimSettings::from_environment(&link::folder());
        make_shared_folder(&settings);
        let log = settings.log.as_ref().and_then(|prefix| {
            TruthLog::open(prefix).inspect_err(|error| report_unwritable(prefix, error)).ok()
        });
        let usage = (0..settings.devices).map(|_| OnceLock::new()).collect();
        Self {
            state: Mutex::new(SimulatorState::new(&settings)),
            wake: Condvar::new(),
            log,
            usage,
            correlation: AtomicU32::new(0),
            settings,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SimulatorState> {
        self.state.hold()
    }

    pub(crate) fn log(&self) -> Option<&TruthLog> {
        self.log.as_ref()
    }

    pub(crate) fn next_correlation(&self) -> u32 {
        self.correlation.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Schedules what can be scheduled, and writes the log.
    fn flush(&self) {
        self.settle(&mut self.state());
        if let Some(log) = &self.log {
            log.flush();
        }
    }

    /// Schedules what can be scheduled, and passes it on.
    fn settle(&self, state: &mut SimulatorState) {
        state.machine.settle();
        self.publish(state);
    }

    /// One iteration of the simulator's thread: schedules operations that wait for other ranks,
    /// writes the log if it is due. `logged_ns`: when it did so last.
    fn turn(&self, logged_ns: &mut u64) {
        let state = self.state();
        let open = !state.machine.all_settled();
        let pause = Duration::from_micros(if open { 100 } else { 100_000 });
        let waited = self.wake.wait_timeout(state, pause);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.settle(&mut state);
        let settled = state.machine.all_settled();
        drop(state);
        cupti::deliver_full_buffers();
        let now_ns = clock::now_ns();
        let due = now_ns - *logged_ns >= self.settings.log_every_ns;
        if let Some(log) = self.log.as_ref().filter(|_| settled && due) {
            log.flush();
            *logged_ns = now_ns;
        }
    }

    /// Passes scheduled operations to the log, to NVML and to CUPTI.
    pub(crate) fn publish(&self, state: &mut SimulatorState) {
        let finished = state.machine.take_finished();
        for (device, usage) in (0_u32..).zip(&self.usage) {
            let Some(Some(usage)) = usage.get() else {
                continue;
            };
            let of_device = finished.iter().filter(|one| one.device == device);
            of_device.filter_map(interval).for_each(|one| usage.add(one));
            usage.set_running_since(state.machine.running_since(device));
        }
        cupti::operations(&finished);
        if let Some(log) = self.log.as_ref().filter(|_| !finished.is_empty()) {
            log.operations(finished);
        }
    }

    /// From now on NVML lists this process among those that use the device.
    pub(crate) fn publish_context(&self, device: u32) {
        self.usage[device as usize]
            .get_or_init(|| UsageFile::create(&self.settings.shared, device).ok());
    }

    pub(crate) fn publish_memory(&self, state: &SimulatorState, device: u32) {
        if let Some(Some(usage)) = self.usage[device as usize].get() {
            usage.set_memory(state.memory.used(device));
        }
    }

    pub(crate) fn other_processes_memory(&self, device: u32) -> u64 {
        usage::other_processes_memory(&self.settings.shared, device)
    }

    /// Enqueues one launch in a stream; waits first if its queue is full.
    pub(crate) fn launch(
        &self,
        stream: u32,
        operations: Vec<Operation>,
    ) -> Result<Completion, CudaError> {
        let mut operations = operations;
        loop {
            let mut state = self.state();
            let now_ns = clock::now_ns();
            let Some(full) = state.machine.full(stream, now_ns) else {
                for operation in &mut operations {
                    operation.launched_ns = now_ns;
                }
                let end = state.machine.launch(stream, operations);
                self.publish(&mut state);
                if !state.machine.all_settled() {
                    self.wake.notify_one();
                }
                return end.ok_or(CudaError::INVALID_HANDLE);
            };
            drop(state);
            self.wait(&full);
            cupti::full_queue(now_ns, clock::now_ns());
        }
    }

    /// Returns when it has ended.
    pub(crate) fn wait(&self, completion: &Completion) {
        loop {
            if let Some(end_ns) = completion.end_ns() {
                return clock::wait_until(end_ns);
            }
            self.settle(&mut self.state());
            if completion.end_ns().is_none() {
                clock::nap();
            }
        }
    }

    /// Returns when everything enqueued on a device so far has ended.
    pub(crate) fn wait_for_device(&self, device: u32) -> Status {
        let lasts = self.state().machine.lasts(device);
        lasts.iter().for_each(|last| self.wait(last));
        Ok(())
    }

    /// A stream that the program may use.
    pub(crate) fn stream(&self, handle: u64, device: u32) -> Result<u32, CudaError> {
        if handle == handles::LEGACY_STREAM {
            return Ok(default_stream(device));
        }
        let id = handles::STREAM.id(handle)?;
        let known = self.state().streams.contains_key(&id);
        known.then_some(id).ok_or(CudaError::INVALID_HANDLE)
    }
}

/// An operation as NVML sees it.
fn interval(finished: &FinishedOperation) -> Option<BusyInterval> {
    let (start_ns, end_ns) = (finished.start_ns, finished.end_ns);
    match finished.operation.kind {
        OperationKind::Kernel | OperationKind::Collective => {
            Some(BusyInterval::kernel(start_ns, end_ns))
        }
        OperationKind::Memcpy(kind) => {
            Some(BusyInterval::copy(start_ns, end_ns, finished.operation.bytes, kind))
        }
        OperationKind::Memset
        | OperationKind::HostFunction
        | OperationKind::Event
        | OperationKind::Wait => None,
    }
}

/// Creates the shared folder for all users and records the devices for NVML in other processes.
fn make_shared_folder(settings: &SimSettings) {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::create_dir_all(&settings.shared).is_ok() {
        let everybody = std::fs::Permissions::from_mode(0o1777);
        let _ = std::fs::set_permissions(&settings.shared, everybody);
    }
    let text = format!("{} {}\n", settings.devices, settings.memory);
    let _ = std::fs::write(settings.shared.join("devices"), text);
}
