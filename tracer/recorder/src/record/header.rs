//! The first line of a trace: the recording's sources, place and start.

use crate::args::{RecordConfig, RecordTarget};
use crate::clock;
use crate::files::name::NameValues;
use crate::invoker::{Invoker, act_as};
use crate::record::git;
use crate::record::git::GitState;
use gctrace_event::{FORMAT, RecordingMode, TraceHeader};
use gctrace_probes::proc_status::RANK_VARIABLES;
use std::ffi::OsStr;

/// Values that a name pattern of the trace can use.
pub(crate) fn name_facts(header: &TraceHeader) -> NameValues<'_> {
    NameValues {
        host: &header.host,
        rank: header.rank,
        pid: header.attached_pid.unwrap_or_else(std::process::id),
    }
}

/// Describes the recording. `variable` reads the environment that the command will have.
pub(crate) fn header<'a>(
    config: &RecordConfig,
    collections: RecordingMode,
    invoker: &Invoker,
    variable: impl Fn(&str) -> Option<&'a OsStr>,
) -> TraceHeader {
    let name = nix::sys::utsname::uname().ok();
    let owned = |text: &OsStr| text.to_string_lossy().into_owned();
    // Empty in the trace if the system does not report it.
    let text = |of: Option<&OsStr>| if let Some(of) = of { owned(of) } else { String::new() };
    let (command, attached_pid) = match &config.target {
        RecordTarget::Command(words) => (words.iter().map(|word| owned(word)).collect(), None),
        RecordTarget::Process(pid) => (Vec::new(), Some(*pid)),
        RecordTarget::Everything => (Vec::new(), None),
    };
    let GitState { commit, modified } = match &config.target {
        RecordTarget::Command(_) => git_state(invoker),
        RecordTarget::Process(_) | RecordTarget::Everything => GitState::default(),
    };
    TraceHeader {
        format: FORMAT.to_owned(),
        gctrace: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        attached_pid,
        host: text(name.as_ref().map(nix::sys::utsname::UtsName::nodename)),
        kernel: text(name.as_ref().map(nix::sys::utsname::UtsName::release)),
        cpus: std::thread::available_parallelism()
            .ok()
            .and_then(|count| u32::try_from(count.get()).ok()),
        git_commit: commit,
        git_modified: modified,
        rank: RANK_VARIABLES.iter().find_map(|name| variable(name)?.to_str()?.parse().ok()),
        started_ns: clock::monotonic_ns(),
        started_unix_ns: clock::unix_ns(),
        min_pause_ns: clock::nanoseconds(config.min_pause),
        follow: config.sources.follow,
        stack_depth: config.sources.stack_depth,
        cuda: Some(config.sources.cuda.into_str().to_owned()),
        step_function: config.sources.step_function.clone(),
        mode: collections,
        ..TraceHeader::default()
    }
}

/// The repository that the command starts in, read with the invoker's permissions.
fn git_state(invoker: &Invoker) -> GitState {
    let directory = std::env::current_dir();
    let state = directory.and_then(|directory| act_as(invoker, || git::state(&directory)));
    state.unwrap_or_default()
}
