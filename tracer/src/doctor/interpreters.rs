//! Finds the interpreters of this machine: running ones, and others that a user would start.

use crate::args::InterpreterArg;
use crate::doctor::child_query;
use crate::files::open_regular;
use crate::invoker::Invoker;
use crate::launch::{CacheDir, LaunchPlan};
use crate::print::clean;
use anyhow::{Context, bail};
use gctrace_probes::maps::{FileIdentity, MappedFile, identity};
use gctrace_probes::proc_status::ProcessError;
use gctrace_probes::{ProgramKind, Resolution, ResolveOptions, maps, proc_status};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that contains a collector.
#[derive(Debug)]
pub(crate) struct InterpreterFile {
    /// Path of the file, as its processes see it.
    pub(crate) file: PathBuf,
    /// Where it was found: `PATH`, `venv`, `pyenv`, ...
    pub(crate) seen_in: BTreeSet<&'static str>,
    /// Pids of the processes that run it.
    pub(crate) pids: Vec<u32>,
    /// Its collector, or the reason why it cannot be probed.
    pub(crate) outcome: Result<Resolution, String>,
}

/// Result of a search for interpreters on this machine, with the number of uninspected processes.
#[derive(Debug, Default)]
pub(crate) struct FoundInterpreters {
    /// The interpreters that were found, each file once, sorted by path.
    pub(crate) interpreters: Vec<InterpreterFile>,
    /// Number of processes that could not be inspected.
    pub(crate) hidden_processes: usize,
}

#[derive(Debug)]
struct InterpreterPath {
    file: PathBuf,
    openable: PathBuf,
    seen_in: BTreeSet<&'static str>,
    pids: Vec<u32>,
}

/// Finds and resolves interpreters on behalf of a user.
pub(crate) struct InterpreterExaminer {
    invoker: Invoker,
    /// The user's environment, not sudo's.
    environment: LaunchPlan,
    cache: Option<CacheDir>,
}

impl InterpreterExaminer {
    pub(crate) fn new() -> Self {
        let invoker = Invoker::detect();
        Self {
            environment: LaunchPlan::new(&[], &invoker, false),
            cache: CacheDir::open(&invoker),
            invoker,
        }
    }

    /// Searches PATH, virtual environments and running processes.
    pub(crate) fn find(&self) -> FoundInterpreters {
        let mut places = BTreeMap::new();
        for (seen_in, program) in self.programs() {
            // A program that does not answer is not an interpreter, whatever its name.
            for file in self.collectors_of(&program).into_iter().flatten() {
                if let Some(place) = place_of(&mut places, &file, &file) {
                    place.seen_in.insert(seen_in);
                }
            }
        }
        let hidden_processes = add_running(&mut places);
        let mut interpreters: Vec<_> =
            places.into_values().filter_map(|place| self.resolved(place)).collect();
        interpreters.sort_by(|one, other| one.file.cmp(&other.file));
        FoundInterpreters { interpreters, hidden_processes }
    }

    /// Resolves the collectors of a named interpreter.
    pub(crate) fn examine(&self, python: &InterpreterArg) -> anyhow::Result<Vec<Resolution>> {
        let found = match python {
            InterpreterArg::Process(pid) => self.examine_process(*pid),
            InterpreterArg::File(file) => self.examine_file(file),
        }?;
        if found.is_empty() && self.is_pypy(python) {
            let python = shown(python);
            bail!(
                "{python}: does not contain CPython: it is PyPy, and gctrace does not record its collector"
            );
        }
        if found.is_empty() {
            bail!("{}: does not contain CPython", shown(python));
        }
        Ok(found)
    }

    fn is_pypy(&self, python: &InterpreterArg) -> bool {
        let program = match python {
            InterpreterArg::Process(pid) => Some(proc_status::executable_link(*pid)),
            InterpreterArg::File(file) => self.looked_up(file),
        };
        let Some(program) = program else { return false };
        matches!(gctrace_probes::identify(&program), Ok(ProgramKind::PyPy))
    }

    fn examine_file(&self, file: &Path) -> anyhow::Result<Vec<Resolution>> {
        let program = self
            .looked_up(file)
            .with_context(|| format!("{}: not found in PATH", file.display()))?;
        // Reading a FIFO would block.
        anyhow::ensure!(
            !program.exists() || program.is_file(),
            "{} is not a regular file; name an executable or a libpython",
            clean::path(&program)
        );
        let mut found = Vec::new();
        for collector in self.collectors_of(&program)? {
            found.extend(gctrace_probes::resolve(
                &collector,
                &self.options(&collector, Path::new("/")),
            )?);
        }
        Ok(found)
    }

    fn examine_process(&self, pid: u32) -> anyhow::Result<Vec<Resolution>> {
        let mut found = Vec::new();
        for candidate in maps::candidates(pid)? {
            let options = self.options(&candidate.openable, &proc_status::root(pid));
            if let Some(resolution) = gctrace_probes::resolve(&candidate.openable, &options)? {
                found.push(Resolution { file: candidate.lowest.path, ..resolution });
            }
        }
        Ok(found)
    }

    fn resolved(&self, place: InterpreterPath) -> Option<InterpreterFile> {
        let InterpreterPath { file, openable, seen_in, pids } = place;
        let root = pids.first().map_or_else(|| PathBuf::from("/"), |pid| proc_status::root(*pid));
        let outcome = gctrace_probes::resolve(&openable, &self.options(&openable, &root));
        let outcome = outcome.map_err(|error| error.to_string()).transpose()?;
        Some(InterpreterFile { file, seen_in, pids, outcome })
    }

    fn options(&self, file: &Path, root: &Path) -> ResolveOptions {
        let owner = fs::metadata(file).map(|metadata| metadata.uid()).ok();
        CacheDir::resolve_options(self.cache.as_ref(), owner, root)
    }

    /// The files that contain the collector of a program: itself, or a libpython.
    fn collectors_of(&self, program: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let kind = gctrace_probes::identify(program)?;
        if kind == ProgramKind::Static {
            return Ok(vec![fs::canonicalize(program).unwrap_or_else(|_| program.to_owned())]);
        }
        let asks = match kind {
            ProgramKind::NeedsLibpython { .. } => true,
            _ => is_script(program),
        };
        if !asks {
            return Ok(Vec::new());
        }
        let files = child_query::mapped_files(program, &self.invoker).with_context(|| {
            format!("{}: cannot find out which libpython it uses", program.display())
        })?;
        let holds = |file: &PathBuf| may_be_python(file) && is_collector(file);
        let collectors: BTreeSet<PathBuf> = files.into_iter().filter(holds).collect();
        Ok(collectors.into_iter().collect())
    }

    /// Looks up a program like a shell.
    fn looked_up(&self, named: &Path) -> Option<PathBuf> {
        if named.components().count() > 1 || named.exists() {
            return Some(named.to_owned());
        }
        let candidates = self.path().into_iter().map(|directory| directory.join(named));
        candidates.into_iter().find(|candidate| candidate.is_file())
    }

    fn path(&self) -> Vec<PathBuf> {
        let path = self.environment.variable("PATH").into_iter();
        path.flat_map(std::env::split_paths).collect()
    }

    /// Programs that a user would start, with the place where each was found.
    fn programs(&self) -> Vec<(&'static str, PathBuf)> {
        let variable = |name| self.environment.variable(name).map(PathBuf::from);
        let home = &self.invoker.home;
        let mut programs = Vec::new();
        for directory in self.path() {
            programs.extend(pythons_in(&directory).into_iter().map(|file| ("PATH", file)));
        }
        for (seen_in, directory) in
            [("venv", variable("VIRTUAL_ENV")), ("conda", variable("CONDA_PREFIX"))]
        {
            programs.extend(directory.map(|directory| (seen_in, directory.join("bin/python"))));
        }
        let pyenv = variable("PYENV_ROOT").unwrap_or_else(|| home.join(".pyenv"));
        programs.extend(in_each(&pyenv.join("versions"), "pyenv"));
        for name in ["miniconda3", "anaconda3", "miniforge3", "mambaforge"] {
            programs.push(("conda", home.join(name).join("bin/python")));
            programs.extend(in_each(&home.join(name).join("envs"), "conda"));
        }
        // pyenv's shims start versions that are already in the list.
        programs
            .retain(|(_, file)| file.is_file() && !(is_script(file) && file.starts_with(&pyenv)));
        unique_files(programs)
    }
}

/// Removes duplicates of a file (by several names) in the same place.
fn unique_files(programs: Vec<(&'static str, PathBuf)>) -> Vec<(&'static str, PathBuf)> {
    let mut seen = BTreeSet::new();
    let key = |seen_in, file: &Path| Some((seen_in, fs::canonicalize(file).ok()?));
    programs
        .into_iter()
        .filter(|(seen_in, file)| key(*seen_in, file).is_some_and(|key| seen.insert(key)))
        .collect()
}

/// `bin/python` in each directory of `parent`.
fn in_each(parent: &Path, seen_in: &'static str) -> Vec<(&'static str, PathBuf)> {
    entries(parent).into_iter().map(|directory| (seen_in, directory.join("bin/python"))).collect()
}

/// Files named `python`, `python3`, `python3.11`, `python3.13t` in a directory.
fn pythons_in(directory: &Path) -> Vec<PathBuf> {
    let named = |file: &PathBuf| {
        let Some(name) = file.file_name() else { return false };
        name.to_str().is_some_and(is_python_name)
    };
    entries(directory).into_iter().filter(named).collect()
}

fn is_python_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("python") else { return false };
    let version = rest.strip_suffix(['t', 'd']).unwrap_or(rest);
    version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !version.starts_with('2')
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries.map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// Executables and libpythons have `python` in their names; other libraries are skipped.
fn may_be_python(file: &Path) -> bool {
    let Some(name) = file.file_name() else { return false };
    name.to_string_lossy().contains("python")
}

fn is_script(file: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 2];
    let Ok(mut file) = open_regular(file) else { return false };
    file.read_exact(&mut start).is_ok() && &start == b"#!"
}

fn place_of<'a>(
    places: &'a mut BTreeMap<FileIdentity, InterpreterPath>,
    file: &Path,
    openable: &Path,
) -> Option<&'a mut InterpreterPath> {
    let place = places.entry(identity(openable).ok()?);
    Some(place.or_insert_with(|| InterpreterPath {
        file: file.to_owned(),
        openable: openable.to_owned(),
        seen_in: BTreeSet::new(),
        pids: Vec::new(),
    }))
}

/// Adds running interpreters. Returns the number of processes that could not be inspected.
fn add_running(places: &mut BTreeMap<FileIdentity, InterpreterPath>) -> usize {
    let mut known = HashMap::new();
    let mut hidden = 0;
    let listed = proc_status::all().into_iter().flatten();
    let pids: BTreeSet<u32> = listed.map(|process| process.pid).collect();
    for pid in pids {
        match maps::candidates(pid) {
            Ok(candidates) => {
                for candidate in candidates {
                    if holds_collector(&mut known, &candidate) {
                        add_process(places, pid, &candidate);
                    }
                }
            }
            Err(ProcessError::Forbidden { .. }) => hidden += 1,
            // The process has exited.
            Err(_) => {}
        }
    }
    hidden
}

fn add_process(
    places: &mut BTreeMap<FileIdentity, InterpreterPath>,
    pid: u32,
    candidate: &MappedFile,
) {
    if let Some(place) = place_of(places, &candidate.lowest.path, &candidate.openable) {
        place.pids.push(pid);
    }
}

/// Whether a file contains a collector; each file is read only once.
fn holds_collector(known: &mut HashMap<FileIdentity, bool>, candidate: &MappedFile) -> bool {
    let Ok(file) = identity(&candidate.openable) else { return false };
    let known = known.entry(file);
    *known.or_insert_with(|| is_collector(&candidate.openable))
}

/// Whether an executable or library contains the interpreter.
fn is_collector(file: &Path) -> bool {
    gctrace_probes::identify(file).is_ok_and(|kind| kind == ProgramKind::Static)
}

fn shown(python: &InterpreterArg) -> String {
    match python {
        InterpreterArg::File(file) => clean::path(file),
        InterpreterArg::Process(pid) => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests;
