//! The `gctrace` command: parses arguments, starts logging, dispatches, sets the exit code.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod advice;
mod analyze;
mod apply;
mod args;
mod compare;
mod demo;
mod doctor;
mod export;
mod files;
mod guardian;
mod hints;
mod launch;
mod log;
mod manual;
mod print;
mod privileges;
mod record;
mod render;
mod setup;
mod text;
mod top;
mod tune;
mod units;
mod variables;
mod wait;

use crate::args::Invocation;
use crate::args::Verbosity;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (action, verbosity) = match args::parse() {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(args::explain(&error)),
    };
    log::start(verbosity);
    match privileges::keep_what_is_needed().and_then(|()| run(action, verbosity)) {
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
        Invocation::Record(config) => record::run(&config),
        Invocation::Top(config) => top::run(&config),
        Invocation::Guardian => Ok(guardian::guard().map(|()| 0)?),
        Invocation::LoadLibrary(path) => launch::load(&path).map(|()| 0),
        Invocation::TerminalGuardian => Ok(guardian::guard_terminal().map(|()| 0)?),
        Invocation::Doctor(config) => Ok(doctor::run(&config)?),
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
        Invocation::Advice(config) => advice::run(&config),
        Invocation::Apply(config) => apply::run(&config, verbosity),
        Invocation::Compare(config) => compare::run(&config),
        Invocation::Tune(config) => tune::run(&config, verbosity),
        Invocation::Export(config) => export::run(&config),
        Invocation::Demo(config) => demo::run(&config),
        Invocation::Setup(config) => setup::run(&config),
    }
}
