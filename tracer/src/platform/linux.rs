//! Linux.

mod hints;

pub(crate) use crate::files::name::check_pattern as check_trace_name;
pub(crate) use crate::launch::{Invoker, act_as};
pub(crate) use crate::privileges::{has_more_rights_than_its_user, keep_what_is_needed};
pub(crate) use hints::{exit_code, hint};

use crate::args::{LinuxInvocation, RecordConfig, Verbosity};
use crate::{apply, demo, doctor, guardian, heap, launch, record, setup, top, tune};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::SigSet;
use std::os::fd::AsFd;
use std::path::PathBuf;

/// Executes a subcommand. Returns the exit code.
///
/// # Errors
/// Those of the subcommand.
pub(crate) fn run(action: &LinuxInvocation, verbosity: Verbosity) -> anyhow::Result<u8> {
    match action {
        LinuxInvocation::Record(config) => record::run(config),
        LinuxInvocation::Top(config) => top::run(config),
        LinuxInvocation::Apply(config) => apply::run(config, verbosity),
        LinuxInvocation::Tune(config) => tune::run(config, verbosity),
        LinuxInvocation::TakeHeap(config) => heap::take::run(config),
        LinuxInvocation::Demo(config) => demo::run(config),
        LinuxInvocation::Doctor(config) => Ok(doctor::run(config)?),
        LinuxInvocation::Setup(config) => setup::run(config),
        LinuxInvocation::Guardian => Ok(guardian::guard().map(|()| 0)?),
        LinuxInvocation::TerminalGuardian => Ok(guardian::guard_terminal().map(|()| 0)?),
        LinuxInvocation::LoadLibrary(path) => launch::load(path).map(|()| 0),
    }
}

/// Records as configured. Returns gctrace's exit code, and the trace, if there is one.
///
/// # Errors
/// The recording is not possible.
pub(crate) fn record_to_trace(config: &RecordConfig) -> anyhow::Result<(u8, Option<PathBuf>)> {
    let recorded = record::run_to_trace(config)?;
    // What follows can be interrupted.
    SigSet::all().thread_unblock()?;
    Ok(recorded)
}

/// Whether a write of at most a page to `output` will not block; waits this long for it.
pub(crate) fn is_writable_within(output: &impl AsFd, limit_ms: u16) -> bool {
    let mut room = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
    nix::poll::poll(&mut room, limit_ms) != Ok(0)
}
