//! The `gctrace` command: parse, log, dispatch, exit code.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod analyze;
mod args;
mod demo;
mod doctor;
mod export;
mod files;
mod guardian;
mod hints;
mod launch;
#[cfg(test)]
#[path = "../../tests/limit.rs"]
mod limit;
mod log;
mod manual;
mod print;
mod privileges;
mod record;
mod render;
mod top;
mod variables;

use crate::args::Action;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (action, verbosity) = match args::parse() {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(args::explain(&error)),
    };
    log::start(verbosity);
    match privileges::keep_what_is_needed().and_then(|()| run(action)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            print::message(hints::chain(&error));
            if let Some(hint) = hints::hint(&error) {
                print::lines(&hint);
            }
            ExitCode::from(hints::exit_code(&error))
        }
    }
}

fn run(action: Action) -> anyhow::Result<u8> {
    match action {
        Action::Record(config) => record::run(&config),
        Action::Top(config) => top::run(&config),
        Action::Guardian => Ok(guardian::guard().map(|()| 0)?),
        Action::LoadLibrary(path) => launch::load(&path).map(|()| 0),
        Action::TerminalGuardian => Ok(guardian::guard_terminal().map(|()| 0)?),
        Action::Doctor(config) => Ok(doctor::run(&config)?),
        Action::Completions(shell) => {
            let written = print::exactly(|out| manual::completions(shell, out));
            Ok(print::unless_closed(written).map(|()| 0)?)
        }
        Action::Man(None) => {
            let written = print::exactly(manual::page);
            Ok(print::unless_closed(written).map(|()| 0)?)
        }
        Action::Man(Some(directory)) => Ok(manual::write(&directory).map(|()| 0)?),
        Action::Analyze(config) => analyze::run(&config),
        Action::Export(config) => export::run(&config),
        Action::Demo(config) => demo::run(&config),
    }
}
