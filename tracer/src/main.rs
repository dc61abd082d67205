//! The `gctrace` command: parses arguments, starts logging, sets the exit code.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, unused_imports, reason = "options and texts of the commands that record")
)]

mod advice;
mod analyze;
mod commands;
mod compare;
mod export;
mod heap;
mod hints;
mod judged;
mod log;
mod manual;
mod output;
mod report;
mod summarize;

#[cfg(target_os = "linux")]
mod apply;
#[cfg(target_os = "linux")]
mod auto;
#[cfg(target_os = "linux")]
mod demo;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod dump;
#[cfg(target_os = "linux")]
mod recording;
#[cfg(target_os = "linux")]
mod setup;
#[cfg(target_os = "linux")]
mod top;
#[cfg(target_os = "linux")]
mod tune;

use gctrace_analysis::units;
use gctrace_args as args;
#[cfg(target_os = "linux")]
use gctrace_base::{clock, trust, wait};
use gctrace_base::{files, invoker, platform, print, text, variables};
#[cfg(target_os = "linux")]
use gctrace_recorder::{guardian, launch, privileges, record};
use gctrace_view::{document, render, setting};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (action, verbosity) = match args::parse() {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(args::explain(&error)),
    };
    log::start(verbosity);
    match commands::run(action, verbosity) {
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
