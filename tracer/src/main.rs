//! The `gctrace` command: parses arguments, starts logging, dispatches, sets the exit code.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, unused_imports, reason = "options and texts of the commands that record")
)]

mod advice;
mod analyze;
mod args;
mod compare;
mod export;
mod files;
mod heap;
mod hints;
mod log;
mod manual;
mod platform;
mod print;
mod render;
mod setting;
mod summarize;
mod text;
mod units;
mod unseen;
mod variables;

#[cfg(target_os = "linux")]
mod apply;
#[cfg(target_os = "linux")]
mod demo;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod guardian;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod privileges;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod setup;
#[cfg(target_os = "linux")]
mod top;
#[cfg(target_os = "linux")]
mod tune;
#[cfg(target_os = "linux")]
mod wait;

use crate::args::{Invocation, Verbosity};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (action, verbosity) = match args::parse() {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(args::explain(&error)),
    };
    log::start(verbosity);
    match platform::keep_what_is_needed().and_then(|()| run(action, verbosity)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            print::message(text::chain(&error));
            if let Some(hint) = hints::hint(&error) {
                print::lines(&hint);
            }
            ExitCode::from(hints::exit_code(&error))
        }
    }
}

fn run(action: Invocation, verbosity: Verbosity) -> anyhow::Result<u8> {
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
        Invocation::Summarize(config) => summarize::run(&config),
        Invocation::Advice(config) => advice::run(&config),
        Invocation::Compare(config) => compare::run(&config),
        Invocation::Heap(config) => heap::run(&config),
        Invocation::Export(config) => export::run(&config),
        Invocation::OnLinux(action) => platform::run(&action, verbosity),
    }
}
