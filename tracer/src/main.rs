//! The `gctrace` command: parse, log, dispatch, exit code.

mod analyze;
mod args;
mod demo;
mod doctor;
mod export;
mod guardian;
mod hints;
mod launch;
mod log;
mod manual;
mod privileges;
mod record;
mod render;
mod top;

use crate::args::Action;
use std::process::ExitCode;

fn main() -> ExitCode {
    let action = args::parse();
    log::start(&action);
    match run(action) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("gctrace: {}", hints::chain(&error));
            if let Some(hint) = hints::hint(&error) {
                eprintln!("{hint}");
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
        Action::TerminalGuardian => Ok(guardian::guard_terminal().map(|()| 0)?),
        Action::Doctor(config) => Ok(doctor::run(&config)?),
        Action::Completions(shell) => {
            Ok(manual::completions(shell, &mut std::io::stdout()).map(|()| 0)?)
        }
        Action::Man(None) => Ok(manual::page(&mut std::io::stdout()).map(|()| 0)?),
        Action::Man(Some(directory)) => Ok(manual::pages(&directory).map(|()| 0)?),
        Action::Analyze(config) => analyze::run(&config),
        Action::Export(config) => export::run(&config),
        Action::Demo(config) => demo::run(&config),
    }
}
