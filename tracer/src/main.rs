//! The `gctrace` command: parse, log, dispatch, exit code.
#![expect(
    dead_code,
    unused_imports,
    reason = "the modules grow before their caller"
)]

mod args;
mod doctor;
mod guardian;
mod hints;
mod launch;
mod manual;
mod privileges;
mod record;

use crate::args::Action;
use crate::args::Verbosity;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let action = args::parse();
    start_log(&action);
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
        Action::Guardian => Ok(guardian::guard().map(|()| 0)?),
        Action::Doctor(config) => Ok(doctor::run(&config)?),
        Action::Completions(shell) => Ok(manual::completions(shell, &mut std::io::stdout()).map(|()| 0)?),
        Action::Man(None) => Ok(manual::page(&mut std::io::stdout()).map(|()| 0)?),
        Action::Man(Some(directory)) => Ok(manual::pages(&directory).map(|()| 0)?),
        _ => anyhow::bail!("not yet"),
    }
}

/// Messages go to standard error, which the command shares: short, and each with our name.
fn start_log(action: &Action) {
    let level = match action {
        Action::Record(config) => match config.verbosity {
            Verbosity::Quiet => LevelFilter::ERROR,
            Verbosity::Normal => LevelFilter::WARN,
            Verbosity::Verbose => LevelFilter::INFO,
            Verbosity::Debug => LevelFilter::DEBUG,
        },
        _ => LevelFilter::WARN,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
}
