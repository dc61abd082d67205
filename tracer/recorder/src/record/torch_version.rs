//! The version of PyTorch in recorded processes, by the files that they map.
//!
//! Owns when a process is examined: at growing intervals after its interpreter was found, as a
//! program imports torch at a time of its own choice.

use crate::files::read_small;
use crate::invoker::{Invoker, act_as};
use gctrace_event::Process;
use gctrace_probes::maps;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Age of a process at its first examination.
const FIRST: Duration = Duration::from_millis(500);
/// Age of the last examination; each examination is at twice the age of the one before.
const LAST: Duration = Duration::from_secs(128);
/// A library of every build of PyTorch, in `torch/lib`.
const LIBRARY: &str = "libtorch_cpu.so";
/// Maximum size of `torch/version.py`, in bytes.
const VERSION_BYTES: u64 = 16 << 10;

/// Processes with an awaited or known version of PyTorch.
pub(super) struct TorchVersions {
    invoker: Invoker,
    processes: HashMap<u32, ExaminedProcess>,
}

struct ExaminedProcess {
    process: Process,
    started: Instant,
    next: Duration,
}

impl TorchVersions {
    /// Files are read with the permissions of the invoker.
    pub(super) fn new(invoker: Invoker) -> Self {
        Self { invoker, processes: HashMap::new() }
    }

    /// A process was described, and will be examined if it runs Python. Returns the version if it
    /// is known already.
    pub(super) fn described(&mut self, process: &Process) -> Option<String> {
        let known = self.processes.get_mut(&process.pid);
        match known {
            Some(known) if known.process.interpreter == process.interpreter => {
                let torch = known.process.torch.take();
                known.process = Process { torch: torch.clone(), ..process.clone() };
                torch
            }
            _ if process.interpreter.is_some() => {
                let new = ExaminedProcess {
                    process: process.clone(),
                    started: Instant::now(),
                    next: FIRST,
                };
                self.processes.insert(process.pid, new);
                None
            }
            _ => None,
        }
    }

    /// The process ended, or is not recorded any more.
    pub(super) fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Examines the processes due. Returns processes with a newly found version.
    pub(super) fn due(&mut self) -> Vec<Process> {
        let now = Instant::now();
        let mut found = Vec::new();
        for process in self.processes.values_mut() {
            let age = now.saturating_duration_since(process.started);
            if process.process.torch.is_some() || age < process.next || process.next > LAST {
                continue;
            }
            process.next = age * 2;
            process.process.torch = version(process.process.pid, &self.invoker);
            if process.process.torch.is_some() {
                found.push(process.process.clone());
            }
        }
        found
    }
}

/// The version that a process has loaded; `None` if it has loaded none, or it cannot be read.
fn version(pid: u32, invoker: &Invoker) -> Option<String> {
    let mappings = maps::mappings(pid).ok()?;
    let name = Path::new("lib").join(LIBRARY);
    let library =
        mappings.iter().find(|mapping| !mapping.deleted && mapping.path.ends_with(&name))?;
    let package = library.path.parent()?.parent()?.strip_prefix("/").ok()?;
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let path = root.join(package).join("version.py");
    let text = act_as(invoker, || read_small(&path, VERSION_BYTES)).ok()??;
    parse(std::str::from_utf8(&text).ok()?)
}

/// The value of `__version__` in the text of `torch/version.py`.
fn parse(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    let value = line.split_once('=')?.1.trim();
    let quote = value.chars().next()?;
    if !matches!(quote, '\'' | '"') {
        return None;
    }
    let version = value.strip_prefix(quote)?.strip_suffix(quote)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte);
    let usual = !version.is_empty() && version.len() <= 64 && version.bytes().all(plain);
    if usual { Some(version.to_owned()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_or_refused() {
        let file = "from typing import Optional\n\n__all__ = ['__version__', 'debug']\n\
                    __version__ = '2.9.0+cu128'\ndebug = False\n";
        assert_eq!(parse(file).as_deref(), Some("2.9.0+cu128"));
        assert_eq!(parse("__version__ = \"2.15.0a0\"").as_deref(), Some("2.15.0a0"));
        for other in
            ["", "__version__", "__version__ = f()", "__version__ = 'a b'", "__version__='"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_keeps_its_version_until_it_runs_another_interpreter() {
        let mut versions = TorchVersions::new(Invoker::detect());
        let process = |version: &str| Process {
            pid: std::process::id(),
            interpreter: Some(gctrace_event::Interpreter {
                version: version.to_owned(),
                ..gctrace_event::Interpreter::default()
            }),
            ..Process::default()
        };
        assert_eq!(versions.described(&process("3.12.1")), None);
        assert!(versions.due().is_empty(), "not due yet");
        let known = versions.processes.get_mut(&std::process::id()).expect("known");
        known.process.torch = Some("2.9.0".to_owned());
        assert_eq!(versions.described(&process("3.12.1")).as_deref(), Some("2.9.0"));
        assert_eq!(versions.described(&process("3.13.1")), None);
        versions.forget(std::process::id());
        assert!(versions.processes.is_empty());
    }
}
