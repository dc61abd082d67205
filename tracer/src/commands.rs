//! Every command by its name. The ceiling of this crate: only `main.rs` knows it.

use crate::args::{Invocation, LinuxInvocation, Verbosity};
use crate::{advice, analyze, compare, export, heap, manual, print, report, summarize};
#[cfg(target_os = "linux")]
use crate::{
    apply, auto, demo, doctor, dump, guardian, launch, privileges, record, setup, top, tune,
};

/// Executes a command. Returns the exit code.
///
/// # Errors
/// The errors of the command.
pub(crate) fn run(action: Invocation, verbosity: Verbosity) -> anyhow::Result<u8> {
    // Before any thread is started.
    #[cfg(target_os = "linux")]
    privileges::keep_what_is_needed()?;
    match action {
        Invocation::Completions(shell) => {
            let written = print::exactly(|out| manual::completions(shell, out));
            Ok(print::unless_closed(written).map(|()| 0)?)
        }
        Invocation::Man(None) => {
            let written = print::exactly(manual::page);
            Ok(print::unless_closed(written).map(|()| 0)?)
        }
        Invocation::Man(Some(directory)) => Ok(manual::write(&directory).map(|()| 0)?),
        Invocation::Analyze(config) => analyze::run(&config),
        Invocation::Report(config) => report::run(&config),
        Invocation::Summarize(config) => summarize::run(&config),
        Invocation::Advice(config) => advice::run(&config),
        Invocation::Compare(config) => compare::run(&config),
        Invocation::Heap(config) => heap::run(&config),
        Invocation::Export(config) => export::run(&config),
        Invocation::OnLinux(action) => on_linux(&action, verbosity),
    }
}

/// Executes a command that needs Linux. Returns the exit code.
///
/// # Errors
/// The errors of the command.
#[cfg(target_os = "linux")]
fn on_linux(action: &LinuxInvocation, verbosity: Verbosity) -> anyhow::Result<u8> {
    match action {
        LinuxInvocation::Record(config) => record::run(config),
        LinuxInvocation::Top(config) => top::run(config),
        LinuxInvocation::Apply(config) => apply::run(config, verbosity),
        LinuxInvocation::Auto(config) => auto::run(config, verbosity),
        LinuxInvocation::Tune(config) => tune::run(config, verbosity),
        LinuxInvocation::TakeHeap(config) => heap::take::run(config),
        LinuxInvocation::Dump(config) => dump::run(config),
        LinuxInvocation::Demo(config) => demo::run(config),
        LinuxInvocation::Doctor(config) => Ok(doctor::run(config)?),
        LinuxInvocation::Setup(config) => setup::run(config),
        LinuxInvocation::Guardian => Ok(guardian::guard().map(|()| 0)?),
        LinuxInvocation::TerminalGuardian => Ok(guardian::guard_terminal().map(|()| 0)?),
        LinuxInvocation::LoadLibrary(path) => launch::load(path).map(|()| 0),
    }
}

/// # Errors
/// Always: the command needs Linux.
#[cfg(not(target_os = "linux"))]
fn on_linux(action: &LinuxInvocation, _: Verbosity) -> anyhow::Result<u8> {
    let name = match action {
        LinuxInvocation::Record(_) => "record",
        LinuxInvocation::Top(_) => "top",
        LinuxInvocation::Apply(_) => "apply",
        LinuxInvocation::Auto(_) => "auto",
        LinuxInvocation::Tune(_) => "tune",
        LinuxInvocation::TakeHeap(_) => "taking a heap",
        LinuxInvocation::Dump(_) => "dump",
        LinuxInvocation::Demo(_) => "demo",
        LinuxInvocation::Doctor(_) => "doctor",
        LinuxInvocation::Setup(_) => "setup",
        LinuxInvocation::Guardian
        | LinuxInvocation::TerminalGuardian
        | LinuxInvocation::LoadLibrary(_) => "this internal command",
    };
    Err(crate::platform::needs_linux(name))
}
