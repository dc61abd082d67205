//! Systems other than Linux: stand-ins, and the refusal of commands that need Linux.

use crate::args::{LinuxInvocation, RecordConfig, Verbosity};
use std::io;
use std::path::{Path, PathBuf};

/// The user on whose behalf gctrace works: always its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invoker {
    /// For messages.
    pub(crate) name: String,
}

impl Invoker {
    pub(crate) fn detect() -> Self {
        Self { name: "you".to_owned() }
    }
}

/// Runs `action` as the invoker, who runs it already.
///
/// # Errors
/// None.
pub(crate) fn act_as<R: Send>(_: &Invoker, action: impl FnOnce() -> R + Send) -> io::Result<R> {
    Ok(action())
}

/// File capabilities exist on Linux only.
pub(crate) fn has_more_rights_than_its_user() -> bool {
    false
}

/// There are no rights to give up.
///
/// # Errors
/// None.
pub(crate) fn keep_what_is_needed() -> anyhow::Result<()> {
    Ok(())
}

/// No trace is recorded.
///
/// # Errors
/// None.
pub(crate) fn check_trace_name(_: &Path) -> Result<(), String> {
    Ok(())
}

/// Writes wait for their reader.
pub(crate) fn is_writable_within<T>(_: &T, _limit_ms: u16) -> bool {
    true
}

/// Errors here have no remedies of their own.
pub(crate) fn hint(_: &anyhow::Error) -> Option<String> {
    None
}

/// No command is started.
pub(crate) fn exit_code(_: &anyhow::Error) -> Option<u8> {
    None
}

/// # Errors
/// Always: the subcommand needs Linux.
pub(crate) fn run(action: &LinuxInvocation, _: Verbosity) -> anyhow::Result<u8> {
    let name = match action {
        LinuxInvocation::Record(_) => "record",
        LinuxInvocation::Top(_) => "top",
        LinuxInvocation::Apply(_) => "apply",
        LinuxInvocation::Tune(_) => "tune",
        LinuxInvocation::TakeHeap(_) => "taking a heap",
        LinuxInvocation::Demo(_) => "demo",
        LinuxInvocation::Doctor(_) => "doctor",
        LinuxInvocation::Setup(_) => "setup",
        LinuxInvocation::Guardian
        | LinuxInvocation::TerminalGuardian
        | LinuxInvocation::LoadLibrary(_) => "this internal command",
    };
    Err(needs_linux(name))
}

/// # Errors
/// Always: recording needs Linux.
pub(crate) fn record_to_trace(_: &RecordConfig) -> anyhow::Result<(u8, Option<PathBuf>)> {
    Err(needs_linux("recording a command"))
}

fn needs_linux(what: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{what} needs Linux, and this is {}. Record there, and copy the trace here: analyze, advice, \
         compare (of traces), export, completions and man work here",
        std::env::consts::OS
    )
}
