//! `--cuda`: CUDA and NCCL calls, torch's device memory, backward passes.
//!
//! Owns the probed libraries and when they are looked for. `cuda_probes/store.rs` writes the calls.

mod store;

use crate::args::CudaMode;
use crate::clock;
use crate::record::call_sources::CallSources;
use crate::record::kernel::cuda_probes::store::CudaStore;
use crate::record::kernel::recorded_processes::RecordedProcesses;
use crate::record::kernel::stopped_programs::StopPoint;
use crate::record::output::RecordOutput;
use crate::record::trace::RecordingTrace;
use anyhow::Context as _;
use gctrace_ebpf::{
    Attachment, BpfSession, CallKind, CallProbe, CudaEvent, CudaPrograms, FileKey, StopState,
};
use gctrace_event::{CudaLayer, DeviceMemory, Pause, ProbeCost};
use gctrace_probes::Machine;
use gctrace_probes::cuda::{
    CudaFile, CudaLibrary, CudaPoint, CudaPoints, CudaSearch, HOST_FUNCTION, ProbedEnds,
    ProbedFunction, TABLE,
};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// When to look for a library in a process that could not be stopped, after the event that it maps
/// one: the event precedes the mapping.
const RESCAN_DELAYS: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(200)];
/// How often to look for libraries without mapping events (no system call tracepoints on this
/// kernel).
const RESCAN_INTERVAL: Duration = Duration::from_secs(1);

/// The same search is not repeated within this time; it takes half a millisecond. A library installed meanwhile is
/// probed when it is mapped.
const SEARCHED: Duration = Duration::from_secs(1);

/// The probes on CUDA, NCCL and torch libraries.
pub(crate) struct CudaProbes {
    mode: CudaMode,
    ring_bytes: u32,
    /// Loaded when the first library is found.
    programs: Option<CudaPrograms>,
    /// The kernel refused to load the programs.
    refused: bool,
    /// Examined libraries, by device and inode.
    files: HashSet<(u64, u64)>,
    probes: Vec<Attachment>,
    /// Searches of the last second.
    searched: HashMap<CudaSearch, Searched>,
    /// The session reports libraries that are being mapped.
    sees_mappings: bool,
    /// Processes to examine, and when.
    due: Vec<(Instant, u32)>,
    looked_at_all: Instant,
    threads: HashSet<(u32, u32)>,
    pauses: Vec<Pause>,
    store: CudaStore,
    warnings: Vec<String>,
    /// Events read from the ring but not yet written.
    polled: Vec<CudaEvent>,
    /// Drivers already searched for functions that launch one of the host, and the results since.
    drivers: HashSet<(u64, u64)>,
    host_launches: Vec<HostLaunches>,
}

/// A search for the libraries of a process's environment.
struct Searched {
    at: Instant,
    /// Whether the found libraries are left to CUPTI; `None` if none was found.
    left: Option<bool>,
}

/// The functions of a driver that launch a function of the host: their file offsets.
pub(super) struct HostLaunches {
    pub(super) file: PathBuf,
    pub(super) functions: Vec<u64>,
}

impl CudaProbes {
    /// Prepares to probe libraries; none is known yet. `None` for `--cuda off`.
    pub(crate) fn start(mode: CudaMode, ring_bytes: u32, session: &mut BpfSession) -> Option<Self> {
        if mode == CudaMode::Off {
            return None;
        }
        Some(Self {
            mode,
            ring_bytes,
            programs: None,
            refused: false,
            files: HashSet::new(),
            probes: Vec::new(),
            searched: HashMap::new(),
            sees_mappings: session.watch_libraries(),
            due: Vec::new(),
            looked_at_all: Instant::now(),
            threads: HashSet::new(),
            pauses: Vec::new(),
            store: CudaStore::new(mode),
            warnings: Vec::new(),
            polled: Vec::new(),
            drivers: HashSet::new(),
            host_launches: Vec::new(),
        })
    }

    /// A Python program starts: probes the libraries of its environment before it maps them.
    pub(crate) fn program_starts(
        &mut self,
        session: &BpfSession,
        pid: u32,
        calls: &mut CallSources,
    ) {
        let search = match CudaSearch::of(pid) {
            Ok(search) => search,
            Err(error) => return tracing::debug!("CUDA libraries: {error}"),
        };
        // Many processes may be started one after another.
        self.searched.retain(|_, known| known.at.elapsed() < SEARCHED);
        if let Some(known) = self.searched.get(&search)
            && known.left.is_none_or(|left| left == calls.is_left_to_cupti(pid))
        {
            return;
        }
        let files = search.files(pid);
        self.arm_all(session, pid, &files, calls);
        let left = if files.is_empty() { None } else { Some(calls.is_left_to_cupti(pid)) };
        self.searched.insert(search, Searched { at: Instant::now(), left });
    }

    /// Records a process that is already running from now on.
    pub(crate) fn attach_to(&mut self, session: &BpfSession, pid: u32, calls: &mut CallSources) {
        self.probe_mapped(session, pid, calls);
        self.program_starts(session, pid, calls);
    }

    /// A process is about to map a library, or has just done so and is stopped.
    pub(crate) fn library(
        &mut self,
        session: &BpfSession,
        stop: StopPoint,
        file: FileKey,
        calls: &mut CallSources,
    ) {
        if matches!(stop.state, StopState::Stopped { .. }) {
            wait_for_mapping(stop.pid, file.inode);
            self.probe_mapped(session, stop.pid, calls);
        } else {
            let now = Instant::now();
            self.due.extend(RESCAN_DELAYS.map(|after| (now + after, stop.pid)));
        }
    }

    /// Remembers a pause; its device memory is written once all its events are in.
    pub(crate) fn pause(&mut self, pause: &Pause) {
        if self.programs.is_some() {
            self.pauses.push(pause.clone());
        }
    }

    /// Writes pending records of an exited process, and forgets it.
    pub(crate) fn ended(&mut self, pid: u32, output: &mut RecordOutput) {
        self.due.retain(|(_, other)| *other != pid);
        self.threads.retain(|(other, _)| *other != pid);
        self.store.ended(pid, output);
    }

    /// Looks for newly mapped libraries and writes the polled events.
    pub(crate) fn tick(
        &mut self,
        session: &BpfSession,
        processes: &mut RecordedProcesses,
        trace: &mut RecordingTrace,
    ) {
        for pid in self.take_due(processes) {
            self.probe_mapped(session, pid, &mut trace.calls);
        }
        for pid in trace.calls.take_missing() {
            self.attach_to(session, pid, &mut trace.calls);
        }
        for warning in std::mem::take(&mut self.warnings) {
            trace.note(&warning);
        }
        self.take_events(processes, trace);
        self.store.tick(clock::monotonic_ns(), &mut trace.output);
    }

    fn take_due(&mut self, processes: &RecordedProcesses) -> HashSet<u32> {
        let now = Instant::now();
        let mut pids = HashSet::new();
        if !self.sees_mappings && self.looked_at_all.elapsed() >= RESCAN_INTERVAL {
            self.looked_at_all = now;
            pids.extend(processes.pids());
        }
        let due = self.due.extract_if(.., |(at, _)| *at <= now);
        pids.extend(due.map(|(_, pid)| pid));
        pids
    }

    /// Drains the ring. The events are written at the next tick, after the injected library's
    /// records of the same processes were read.
    pub(crate) fn poll(&mut self) {
        let Some(programs) = &mut self.programs else { return };
        match programs.poll() {
            Ok(events) => self.polled.extend(events),
            Err(error) => self.warnings.push(crate::text::chain(&error.into())),
        }
    }

    /// Writes the polled events, then the device memory of pauses: events within a pause were sent before the pause.
    fn take_events(&mut self, processes: &mut RecordedProcesses, trace: &mut RecordingTrace) {
        let RecordingTrace { output, calls, .. } = trace;
        for event in std::mem::take(&mut self.polled) {
            if let CudaEvent::Call(call) = &event
                && calls.is_reported(call.pid, call.start_ns)
                && matches!(function(call.function), Some(one) if is_cuptis(one.layer))
            {
                continue;
            }
            let (CudaEvent::Call(gctrace_ebpf::CudaCallEvent { pid, tid, .. })
            | CudaEvent::Memory(DeviceMemory { pid, tid, .. })) = event;
            if self.threads.insert((pid, tid)) {
                processes.name_thread(pid, tid, output);
            }
            match event {
                CudaEvent::Call(call) => self.store.call(&call, output),
                CudaEvent::Memory(memory) => self.store.memory(&memory, output),
            }
        }
        for pause in std::mem::take(&mut self.pauses) {
            self.store.pause(&pause, output);
        }
    }

    /// Probes the libraries that a process has mapped.
    fn probe_mapped(&mut self, session: &BpfSession, pid: u32, calls: &mut CallSources) {
        match gctrace_probes::cuda::mapped(pid) {
            Ok(files) => self.arm_all(session, pid, &files, calls),
            Err(error) => tracing::debug!("CUDA libraries: {error}"),
        }
    }

    fn arm_all(
        &mut self,
        session: &BpfSession,
        pid: u32,
        files: &[CudaFile],
        calls: &mut CallSources,
    ) {
        let is_left = !files.is_empty() && calls.is_left_to_cupti(pid);
        for file in files {
            self.find_host_launches(file);
            if !is_left || !is_cuptis(file.library) {
                self.arm(session, file);
            }
        }
    }

    /// Also where CUPTI reports the calls: it has no stacks.
    fn find_host_launches(&mut self, file: &CudaFile) {
        let is_driver = file.library == CudaLibrary::Cuda(CudaLayer::Driver);
        if !is_driver || !self.drivers.insert(file.identity) {
            return;
        }
        let found =
            gctrace_probes::cuda::resolve_library(&file.openable, file.library, Machine::HOST);
        let points = found.map(|found| found.points).unwrap_or_default().into_iter();
        let launches = points.filter(|point| point.symbol.starts_with(HOST_FUNCTION));
        let functions: Vec<u64> = launches.map(|point| point.file_offset).collect();
        if !functions.is_empty() {
            self.host_launches.push(HostLaunches { file: file.openable.clone(), functions });
        }
    }

    /// The functions found since the last call.
    pub(super) fn take_host_launches(&mut self) -> Vec<HostLaunches> {
        std::mem::take(&mut self.host_launches)
    }

    fn arm(&mut self, session: &BpfSession, file: &CudaFile) {
        // Inserted before the attempt, so that a failure is neither retried nor reported again.
        if self.refused || !self.files.insert(file.identity) {
            return;
        }
        if let Err(error) = self.try_arm(session, file) {
            let why = format!("{error:#}");
            self.warnings.push(format!("{}: {why}", file.path.display()));
        }
    }

    fn try_arm(&mut self, session: &BpfSession, file: &CudaFile) -> anyhow::Result<()> {
        let found =
            gctrace_probes::cuda::resolve_library(&file.openable, file.library, Machine::HOST)?;
        let shown = file.path.display();
        if !found.absent.is_empty() {
            tracing::debug!("{shown} has no {}", found.absent.join(", "));
        }
        if found.points.is_empty() {
            // A stand-in, as in a PyTorch without CUDA: nothing calls functions that it does not export.
            tracing::info!("{shown} exports none of the functions that gctrace probes");
            return Ok(());
        }
        let probes = probes(&found, self.mode);
        if probes.is_empty() {
            return Ok(());
        }
        let programs = match &mut self.programs {
            Some(programs) => programs,
            none => {
                self.refused = true;
                let loaded = CudaPrograms::load(session, self.ring_bytes)
                    .context("CUDA calls are not recorded")?;
                self.refused = false;
                none.insert(loaded)
            }
        };
        self.probes.push(programs.attach(&file.openable, &probes)?);
        tracing::info!("{} functions probed in {shown}", probes.len());
        Ok(())
    }

    /// Writes the rest at the end of the recording.
    pub(crate) fn finish(&mut self, processes: &mut RecordedProcesses, trace: &mut RecordingTrace) {
        self.poll();
        self.take_events(processes, trace);
        self.store.finish(&mut trace.output);
    }

    /// Losses so far by place, and how often probes in recorded processes were hit.
    ///
    /// # Errors
    /// The kernel does not report the counts.
    pub(crate) fn lost_and_hits(&self) -> Result<(Vec<(String, u64)>, u64), gctrace_ebpf::Error> {
        let Some(programs) = &self.programs else { return Ok(Default::default()) };
        let (mut lost, mut hits) = (Vec::new(), 0);
        for (kind, name, _) in KINDS {
            let counts = programs.counts(kind)?;
            hits += counts.hits;
            if counts.lost > 0 {
                let where_lost = format!("{name}: the ring buffer was full (--ring-size)");
                lost.push((where_lost, counts.lost));
            }
        }
        Ok((lost, hits))
    }

    /// Measures the cost of the probes; discards the ring's contents.
    pub(crate) fn costs(&mut self, session: &BpfSession) -> Vec<ProbeCost> {
        let Some(programs) = &mut self.programs else { return Vec::new() };
        let counted = KINDS.iter().filter_map(|(kind, name, both)| {
            let counts = programs.counts(*kind).inspect_err(|error| {
                tracing::warn!("the number of {name} is unknown: {error}");
            });
            Some((*name, *both, counts.ok()?))
        });
        let counted: Vec<_> = counted.collect();
        let prices = programs
            .calibrate(session)
            .inspect_err(|error| {
                tracing::warn!("the overhead of probes on CUDA calls is unknown: {error}");
            })
            .ok();
        let entry = prices.map(|prices| prices.entry.cost(None));
        let both = prices.map(|prices| prices.both.cost(None));
        let foreign = counted.iter().map(|(_, _, counts)| counts.foreign).sum();
        let foreign = ProbeCost::new(ProbeCost::CUDA_ELSEWHERE, foreign, entry);
        let recorded = counted.iter().map(|(name, has_both, counts)| {
            ProbeCost::new(name, counts.hits, if *has_both { both } else { entry })
        });
        let costs = recorded.chain([foreign]);
        costs.filter(|cost| cost.hits > 0).collect()
    }

    /// The probes in all libraries, for the caller to detach.
    pub(crate) fn into_probes(self) -> Vec<Attachment> {
        self.probes
    }
}

/// Every kind of call, its name for the user, and whether both its ends are probed.
const KINDS: [(CallKind, &str, bool); 10] = [
    (CallKind::Launch, "launches", false),
    (CallKind::Synchronize, "synchronizations", true),
    (CallKind::Copy, "copies", true),
    (CallKind::Set, "fills", true),
    (CallKind::Allocate, "device memory allocations", true),
    (CallKind::Free, "device memory frees", true),
    (CallKind::Event, "CUDA events", false),
    (CallKind::Collective, "collectives", true),
    (CallKind::Step, "backward passes", true),
    (CallKind::Memory, "torch's device memory", false),
];

/// Returns once a file is mapped, or after 10 ms: a process that was sent SIGSTOP stops only at the
/// end of its system call.
pub(super) fn wait_for_mapping(pid: u32, inode: u64) {
    /// The mapping takes microseconds.
    const LOOKS: usize = 50;
    const BETWEEN: Duration = Duration::from_micros(200);
    for _ in 0..LOOKS {
        let mut mappings = gctrace_probes::maps::mappings(pid).into_iter().flatten();
        if mappings.any(|mapping| mapping.inode == inode && mapping.executable) {
            return;
        }
        std::thread::sleep(BETWEEN);
    }
}

/// Whether CUPTI reports calls of functions like this.
fn is_cuptis(layer: CudaLibrary) -> bool {
    matches!(layer, CudaLibrary::Cuda(CudaLayer::Driver | CudaLayer::Runtime))
}

/// The probed function with that number.
fn function(number: u16) -> Option<&'static gctrace_probes::cuda::ProbedFunction> {
    TABLE.get(usize::from(number))
}

/// The probes for the functions found in a library that this mode records.
fn probes(found: &CudaPoints, mode: CudaMode) -> Vec<CallProbe> {
    let wanted = |kind: CallKind| match kind {
        CallKind::Launch => mode != CudaMode::Sync,
        // With many streams there are as many of these as launches; only `all` needs them.
        CallKind::Event => mode == CudaMode::All,
        _ => true,
    };
    let mut probes = Vec::new();
    for point in &found.points {
        if let Some(function) = function(point.function)
            && wanted(function.kind)
        {
            probes.push(probe(point, function));
        }
    }
    probes
}

fn probe(point: &CudaPoint, function: &ProbedFunction) -> CallProbe {
    CallProbe {
        function: point.function,
        kind: function.kind,
        entry: point.file_offset,
        on_return: function.ends == ProbedEnds::Both,
        returns: point.returns.clone(),
        encloses: function.encloses(),
        stream: function.stream,
        bytes: function.bytes,
        grid: function.grid,
    }
}
