//! Every command by its name. The ceiling of this crate: only `main.rs` knows it.

use crate::args::{HeapArgs, Invocation, Verbosity};
use crate::{advice, analyze, compare, export, heap, manual, print, report, summarize};
#[cfg(target_os = "linux")]
use crate::{
    apply, auto, demo, doctor, dump, guardian, launch, privileges, recording, setup, top, tune,
};

/// Executes a command. Returns the exit code.
///
/// # Errors
/// The errors of the command.
pub(crate) fn run(action: Invocation, verbosity: Verbosity) -> anyhow::Result<u8> {
    // Before any thread is started.
    #[cfg(target_os = "linux")]
    privileges::keep_what_is_needed()?;
    match &action {
        Invocation::Completions { shell } => {
            print::written_answer(|out| manual::completions(*shell, out)).map(|()| 0)
        }
        Invocation::Man { directory: None } => print::written_answer(manual::page).map(|()| 0),
        Invocation::Man { directory: Some(directory) } => Ok(manual::write(directory).map(|()| 0)?),
        Invocation::Analyze(config) => analyze::run(config),
        Invocation::Report(config) => report::run(config),
        Invocation::Summarize(config) => summarize::run(config),
        Invocation::Advice(config) => advice::run(config),
        Invocation::Compare(config) => compare::run(config),
        Invocation::Heap(HeapArgs { question: Some(question), .. }) => heap::run(question),
        Invocation::Export(config) => export::run(config),
        #[cfg(target_os = "linux")]
        Invocation::Record(config) => recording::run(config),
        #[cfg(target_os = "linux")]
        Invocation::Top(config) => top::run(config, verbosity),
        #[cfg(target_os = "linux")]
        Invocation::Apply(config) => apply::run(config, verbosity),
        #[cfg(target_os = "linux")]
        Invocation::Auto(config) => auto::run(config, verbosity),
        #[cfg(target_os = "linux")]
        Invocation::Tune(config) => tune::run(config, verbosity),
        #[cfg(target_os = "linux")]
        Invocation::Heap(config) => heap::take::run(&config.take),
        #[cfg(target_os = "linux")]
        Invocation::Dump(config) => dump::run(config),
        #[cfg(target_os = "linux")]
        Invocation::Demo(config) => demo::run(config),
        #[cfg(target_os = "linux")]
        Invocation::Doctor(config) => doctor::run(config),
        #[cfg(target_os = "linux")]
        Invocation::Setup(config) => setup::run(config),
        #[cfg(target_os = "linux")]
        Invocation::Guardian => Ok(guardian::guard().map(|()| 0)?),
        #[cfg(target_os = "linux")]
        Invocation::TerminalGuardian => Ok(guardian::guard_terminal().map(|()| 0)?),
        #[cfg(target_os = "linux")]
        Invocation::LoadLibrary { path } => launch::load(path).map(|()| 0),
        #[cfg(not(target_os = "linux"))]
        action => {
            let _ = (action, verbosity);
            // As it was typed; a recording without a subcommand may begin with an option.
            let name = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
            Err(crate::platform::needs_linux(name.as_deref().unwrap_or("record")))
        }
    }
}
