//! Interpreter files: found, resolved, probed, each once per recording.
//!
//! Owns the probes of every file and the known facts about programs. Does not know processes (`recorded_processes.rs`):
//! it answers about one file or program at a time.

use crate::clock;
use crate::files::open_regular;
use crate::launch::CacheDir;
use crate::record::examination::Unexamined;
use crate::record::plan;
use anyhow::Context as _;
use gctrace_cpython::FrameLayout;
use gctrace_ebpf::{
    Attachment, BpfSession, CollectorArguments, GarbagePrograms, PlannedPoint, ProbePointKind,
};
use gctrace_event::Interpreter;
use gctrace_probes::maps::{FileIdentity, MappedFile, identity};
use gctrace_probes::proc_status::ProcessError;
use gctrace_probes::{ProgramKind, Resolution, proc_status};
use gctrace_ring::Absence;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Index of a probed interpreter in [`ProbedInterpreters`]; valid for the whole recording.
pub(crate) type InterpreterIndex = usize;

/// Interpreters with probes, and the files that were examined for them, each once.
#[derive(Default)]
pub struct ProbedInterpreters {
    cache: Option<CacheDir>,
    armed: Vec<ProbedInterpreter>,
    /// `None`: examined, but without a collector, or the probes could not be placed.
    files: HashMap<FileIdentity, Option<InterpreterIndex>>,
    /// The files that could not be probed although they may contain a collector, and why.
    unprobed: HashMap<FileIdentity, Unexamined>,
    /// Processes that run such a file, or with unreadable files, not yet taken.
    unprobed_in: HashMap<u32, Unexamined>,
    /// Programs that are stopped once at their entry point, when their libraries are mapped.
    entries: HashMap<FileIdentity, Attachment>,
    /// Probes in every process except the process that was probed alone before.
    everywhere: Vec<Attachment>,
    warned: HashSet<String>,
    warnings: Vec<String>,
    /// Missing functions that the user did not request.
    notes: Vec<String>,
    /// The programs that examine garbage; `None`: it is not recorded by probes.
    garbage: Option<GarbagePrograms>,
}

struct ProbedInterpreter {
    description: Interpreter,
    /// Index of its layout in the BPF programs.
    layout: u32,
    frames: Option<FrameLayout>,
    resolution: Resolution,
    probes: Vec<Attachment>,
    /// When the probes were in place, CLOCK_MONOTONIC in ns.
    since_ns: u64,
}

/// Interpreter to probe for a program that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeNeed {
    /// It contains a collector itself, probed now.
    Interpreter(InterpreterIndex),
    /// It links a libpython: to be examined again at its entry point, where it is stopped.
    LinksInterpreter,
    /// Nothing to probe now. It may still load a libpython later.
    Other,
    /// Its process exited before it could be examined.
    Gone,
    /// It contains a collector that cannot be probed. Must not be marked as known: every process
    /// that runs it counts.
    Unprobed(Unexamined),
}

impl ProbedInterpreters {
    /// Starts without interpreters. `cache`: folder that keeps resolutions; `None`: none is kept.
    /// `garbage`: the programs that examine garbage, if they are to.
    pub fn new(cache: Option<CacheDir>, garbage: Option<GarbagePrograms>) -> Self {
        Self { cache, garbage, ..Self::default() }
    }

    /// The trace's description of a probed interpreter.
    pub fn describe(&self, index: InterpreterIndex) -> Option<&Interpreter> {
        self.armed.get(index).map(|armed| &armed.description)
    }

    /// The resolution of a probed interpreter, and the index of its layout in the BPF programs.
    pub fn resolution(&self, index: InterpreterIndex) -> Option<(u32, &Resolution)> {
        self.armed.get(index).map(|armed| (armed.layout, &armed.resolution))
    }

    /// When the probes of an interpreter were in place, CLOCK_MONOTONIC in ns.
    pub fn armed_ns(&self, index: InterpreterIndex) -> u64 {
        self.armed[index].since_ns
    }

    /// The layout of Python stacks for the interpreter with this layout index in the BPF programs.
    pub fn frame_layout(&self, layout: u32) -> Option<&FrameLayout> {
        let armed = self.armed.iter().find(|armed| armed.layout == layout)?;
        armed.frames.as_ref()
    }

    /// Number of executables and libpythons with a probed collector.
    pub fn count(&self) -> usize {
        self.armed.len()
    }

    /// The probes in all files, including entry points, for the caller to detach.
    pub fn into_probes(self) -> impl Iterator<Item = Attachment> {
        let armed = self.armed.into_iter().flat_map(|armed| armed.probes);
        armed.chain(self.entries.into_values()).chain(self.everywhere)
    }

    /// Places the probes of one process in all other processes, and places probes in every process from now on.
    pub fn probe_everywhere(
        &mut self,
        session: &mut BpfSession,
    ) -> Result<(), gctrace_ebpf::Error> {
        self.everywhere.extend(session.probe_everywhere(self.garbage.as_ref())?);
        Ok(())
    }

    /// Warnings not yet taken, each once per recording.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Notes for the trace not yet taken.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes the reason why the last examination of a process found an unreadable file or a collector that cannot be
    /// probed, if it did.
    pub fn take_unprobed(&mut self, pid: u32) -> Option<Unexamined> {
        self.unprobed_in.remove(&pid)
    }

    /// Examines the program of a process stopped at exec: only its executable is mapped.
    pub fn examine_program(&mut self, session: &mut BpfSession, pid: u32) -> ProbeNeed {
        let link = proc_status::executable_link(pid);
        match self.try_examine(session, pid, &link) {
            Ok(program) => match self.take_unprobed(pid) {
                Some(why) => ProbeNeed::Unprobed(why),
                None => program,
            },
            // If this process exited too early, the next process with the file is examined.
            Err(_) if !link.exists() => ProbeNeed::Gone,
            Err(error) => {
                self.not_probed(pid, &shown(&link), &error);
                ProbeNeed::Unprobed(self.take_unprobed(pid).unwrap_or(Unexamined::Forbidden))
            }
        }
    }

    fn try_examine(
        &mut self,
        session: &mut BpfSession,
        pid: u32,
        link: &Path,
    ) -> anyhow::Result<ProbeNeed> {
        let program = match gctrace_probes::identify(link)? {
            ProgramKind::Static | ProgramKind::PyPy => {
                self.arm(session, pid, link, &shown(link))?.map(ProbeNeed::Interpreter)
            }
            ProgramKind::NeedsLibpython { entry_file_offset } => {
                self.stop_at_entry(session, link, entry_file_offset)?;
                Some(ProbeNeed::LinksInterpreter)
            }
            ProgramKind::OtherDynamic { .. } | ProgramKind::Other => None,
        };
        Ok(program.unwrap_or(ProbeNeed::Other))
    }

    fn stop_at_entry(
        &mut self,
        session: &mut BpfSession,
        link: &Path,
        offset: u64,
    ) -> anyhow::Result<()> {
        let identity = identity(link)?;
        if self.entries.contains_key(&identity) {
            return Ok(());
        }
        let point = PlannedPoint {
            kind: ProbePointKind::ProgramEntry,
            layout: None,
            arguments: CollectorArguments::default(),
            runtime_delta: 0,
            entry: Some(offset),
            on_return: None,
            semaphore: None,
        };
        let attachment = session.attach(link, &[point])?;
        self.entries.insert(identity, attachment);
        Ok(())
    }

    /// The program's interpreter is known: it need not stop at its entry point any more.
    pub fn entry_reached(&mut self, pid: u32) {
        if let Ok(identity) = identity(&proc_status::executable_link(pid)) {
            self.entries.remove(&identity);
        }
    }

    /// Probes the collector that a program would run with, before it runs. Returns the file and the
    /// interpreter's index.
    pub fn arm_named(
        &mut self,
        session: &mut BpfSession,
        program: &Path,
    ) -> Option<(PathBuf, InterpreterIndex)> {
        let file = match gctrace_probes::identify(program) {
            Ok(ProgramKind::Static) => program.to_owned(),
            Ok(ProgramKind::NeedsLibpython { .. }) => gctrace_probes::likely_libpython(program)?,
            _ => return None,
        };
        // A failure is retried, and reported, when a process runs the file.
        let armed = self.arm(session, std::process::id(), &file, &file);
        let index = armed.inspect_err(|_| self.forget(&file)).ok()??;
        Some((file, index))
    }

    fn forget(&mut self, file: &Path) {
        if let Ok(identity) = identity(file) {
            self.files.remove(&identity);
        }
    }

    /// Probes every collector that a process has mapped. Returns the interpreter's index, and
    /// whether it was probed only now.
    pub fn arm_mapped(
        &mut self,
        session: &mut BpfSession,
        pid: u32,
    ) -> Option<(InterpreterIndex, bool)> {
        let files = match gctrace_probes::maps::candidates(pid) {
            Ok(files) => files,
            Err(error @ ProcessError::Forbidden { .. }) => {
                self.not_probed(pid, &proc_status::executable_link(pid), &error.into());
                return None;
            }
            // It exited.
            Err(_) => return None,
        };
        files.iter().find_map(|file| self.arm_mapped_file(session, pid, file))
    }

    fn arm_mapped_file(
        &mut self,
        session: &mut BpfSession,
        pid: u32,
        file: &MappedFile,
    ) -> Option<(InterpreterIndex, bool)> {
        let before = self.armed.len();
        match self.arm(session, pid, &file.openable, &file.lowest.path) {
            Ok(index) => {
                let index = index?;
                let (layout, resolution) = self.resolution(index)?;
                let bias = file.lowest.start.wrapping_sub(resolution.lowest_address);
                session.note_interpreter(pid, layout, resolution.runtime.wrapping_add(bias));
                Some((index, self.armed.len() > before))
            }
            Err(error) => {
                self.not_probed(pid, &file.lowest.path, &error);
                None
            }
        }
    }

    /// Resolves and probes one file; `None` if it contains no collector.
    fn arm(
        &mut self,
        session: &mut BpfSession,
        pid: u32,
        open: &Path,
        shown: &Path,
    ) -> anyhow::Result<Option<InterpreterIndex>> {
        let identity = identity(open)?;
        if let Some(known) = self.files.get(&identity) {
            if let Some(why) = self.unprobed.get(&identity) {
                self.unprobed_in.insert(pid, *why);
            }
            return Ok(*known);
        }
        // Inserted before the attempt, so that a failure is neither retried nor reported again.
        self.files.insert(identity, None);
        self.unprobed.insert(identity, Unexamined::Forbidden);
        let armed = self.arm_new(session, pid, open, shown, identity);
        if let (Err(_), Some(why)) = (&armed, self.unprobed.get(&identity)) {
            self.unprobed_in.insert(pid, *why);
        }
        let index = armed?;
        if index.is_none() && gctrace_probes::identify(open)? == ProgramKind::PyPy {
            self.unprobed.insert(identity, Unexamined::Absent(Absence::PyPy));
            self.unprobed_in.insert(pid, Unexamined::Absent(Absence::PyPy));
        } else {
            self.unprobed.remove(&identity);
        }
        self.files.insert(identity, index);
        Ok(index)
    }

    fn arm_new(
        &mut self,
        session: &mut BpfSession,
        pid: u32,
        open: &Path,
        shown: &Path,
        identity: FileIdentity,
    ) -> anyhow::Result<Option<InterpreterIndex>> {
        let opened = open_regular(open)?;
        let owner = std::fs::metadata(open)?.uid();
        let root = proc_status::root(pid);
        let options = CacheDir::resolve_options(self.cache.as_ref(), Some(owner), &root);
        let Some(resolution) = gctrace_probes::resolve(open, &options)? else { return Ok(None) };
        self.unprobed.insert(identity, Unexamined::Unprobed);
        let layout = session.add_layout(
            resolution.layout.as_ref(),
            resolution.frames.as_ref(),
            resolution.objects.as_ref(),
        )?;
        if resolution.layout.is_none() {
            self.warn(format!(
                "{}: the memory layout of CPython {} is unknown: pauses are timed, but collected objects are not counted",
                shown.display(),
                resolution.version
            ));
        }
        let points = plan::points(&resolution, layout);
        // Through our own descriptor: the process may exit while the file is resolved.
        let probes = session
            .attach(&by_descriptor(&opened), &points)
            .context("the interpreter was found but not probed")?;
        let garbage = self.probe_garbage(session, &opened, shown, &resolution, layout);
        for warning in &resolution.warnings {
            self.warn(format!("{}: {warning}", shown.display()));
        }
        tracing::info!(
            "probes placed in {} ({}, found by {})",
            shown.display(),
            resolution.version,
            resolution.rung
        );
        let index = self.armed.len();
        self.armed.push(ProbedInterpreter {
            description: plan::describe(&resolution, shown),
            layout,
            frames: plan::frame_layout(&resolution).cloned(),
            resolution,
            probes: [Some(probes), garbage].into_iter().flatten().collect(),
            since_ns: clock::monotonic_ns(),
        });
        Ok(Some(index))
    }

    /// Probes the loop over the garbage; pauses are recorded without it too.
    fn probe_garbage(
        &mut self,
        session: &mut BpfSession,
        opened: &File,
        shown: &Path,
        resolution: &Resolution,
        layout: u32,
    ) -> Option<Attachment> {
        let programs = self.garbage.as_ref()?;
        let Some(point) = plan::garbage(resolution, layout) else {
            let why = if resolution.free_threaded {
                "a free-threaded collector keeps no list of it that probes could read"
            } else {
                "its list was not found in this build"
            };
            self.notes
                .push(format!("{}: what collections free is not recorded: {why}", shown.display()));
            return None;
        };
        match programs.attach(session, &by_descriptor(opened), &point) {
            Ok(attachment) => Some(attachment),
            Err(error) => {
                let error = crate::text::chain(&error.into());
                self.warn(format!(
                    "{}: what collections free is not recorded: {error}",
                    shown.display()
                ));
                None
            }
        }
    }

    /// Whether Python runs there, or its pauses, are unknown: must never count as "no Python".
    fn not_probed(&mut self, pid: u32, file: &Path, error: &anyhow::Error) {
        self.unprobed_in.entry(pid).or_insert(Unexamined::Forbidden);
        let is_forbidden = |cause: &(dyn std::error::Error + 'static)| {
            let io = cause.downcast_ref::<std::io::Error>();
            matches!(io, Some(io) if io.kind() == std::io::ErrorKind::PermissionDenied)
                || matches!(
                    cause.downcast_ref::<ProcessError>(),
                    Some(ProcessError::Forbidden { .. })
                )
        };
        let advice = if error.chain().any(is_forbidden) {
            "; files of other users need CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (gctrace doctor lists the available ones)"
        } else {
            ""
        };
        self.warn(format!("process {pid} is not recorded: {}: {error:#}{advice}", file.display()));
    }

    fn warn(&mut self, warning: String) {
        if self.warned.insert(warning.clone()) {
            self.warnings.push(warning);
        }
    }
}

/// A path to an open file.
fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The name of an executable as its process sees it.
fn shown(link: &Path) -> PathBuf {
    std::fs::read_link(link).unwrap_or_else(|_| link.to_owned())
}
