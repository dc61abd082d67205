//! The `gctrace` command: parses arguments, starts logging, sets the exit code.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, unused_imports, reason = "options and texts of the commands that record")
)]

mod advice;
mod analyze;
mod args;
mod commands;
mod compare;
mod document;
mod export;
mod files;
mod heap;
mod hints;
#[cfg_attr(not(target_os = "linux"), path = "invoker/elsewhere.rs")]
mod invoker;
mod judged;
mod log;
mod manual;
#[cfg_attr(not(target_os = "linux"), path = "platform/elsewhere.rs")]
mod platform;
mod print;
mod render;
mod report;
mod setting;
mod summarize;
mod text;
mod unseen;
mod variables;

#[cfg(target_os = "linux")]
mod apply;
#[cfg(target_os = "linux")]
mod auto;
#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod demo;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod dump;
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
mod trust;
#[cfg(target_os = "linux")]
mod tune;
#[cfg(target_os = "linux")]
mod wait;

use gctrace_analysis::units;
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
