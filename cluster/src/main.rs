//! `gctrace-cluster`: SQL on traces of a job, and their analysis on many machines.
//!
//! Owns arguments, messages and exit codes: 0, 1 after an error, 2 for wrong usage.

mod analyze;
mod gctrace;
mod map;
mod place;
mod plan;
mod processes;
mod query;
mod rpc;
mod secret;
mod tables;

use clap::{Parser, Subcommand};
use gctrace::Gctrace;
use place::Place;
use processes::{ExecutorArgs, SchedulerArgs};
use query::Format;
use secret::SecretArgs;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// SQL on traces of gctrace and of the PyTorch profiler, and their analysis on many machines
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// The gctrace program that reads traces [default: the one beside gctrace-cluster, or of PATH]
    #[arg(long, global = true, value_name = "PATH")]
    gctrace: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer a query in SQL, in this process
    ///
    /// Tables: ranks, pauses, gpu_ops, calls, collectives, steps, frames, annotations, garbage
    /// (docs/tasks/sql.md).
    Query {
        /// The query
        sql: String,
        /// Traces (.json, .json.gz, .json.zst), summaries (.gcsum), directories of them, or of the
        /// tables of `gctrace export --format parquet`: paths, or URLs of s3://, gs://, az://
        #[arg(required = true, value_name = "INPUT")]
        inputs: Vec<String>,
        /// How rows are printed
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
    /// Report on the traces of a job that many machines read
    ///
    /// The executors of a scheduler summarize them (`gctrace summarize`); the report on the summaries
    /// is made here, as `gctrace analyze` does. Complete summaries are kept: after a failure run the
    /// same command again.
    Analyze {
        /// Address of the scheduler: ballista://HOST:PORT
        #[arg(long, value_name = "URL")]
        on: String,
        /// Traces (.json, .json.gz, .json.zst), or directories of them: paths that all machines have, or
        /// URLs of s3://, gs://, az://
        #[arg(required = true, value_name = "INPUT")]
        inputs: Vec<String>,
        /// Directory for the summaries, which all machines share, or URL
        #[arg(short = 'o', long, value_name = "DIR")]
        summaries: String,
        #[command(flatten)]
        secret: SecretArgs,
        /// Options of `gctrace analyze`, behind `--`
        #[arg(last = true, value_name = "OPTION")]
        options: Vec<OsString>,
    },
    /// Distribute work among executors, until it is ended
    Scheduler(SchedulerArgs),
    /// Read traces for a scheduler, until it is ended
    Executor(ExecutorArgs),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Messages of Ballista; RUST_LOG=info has more.
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error")).init();
    let done = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(arguments)));
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            message(format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit code.
async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let gctrace = Gctrace::find(arguments.gctrace.as_deref());
    match arguments.command {
        Command::Query { sql, inputs, format } => {
            let answer = query::run(&sql, &places(&inputs)?, &gctrace, format).await?;
            print(&answer)?;
        }
        Command::Analyze { on, inputs, summaries, secret, options } => {
            let (inputs, summaries) = (places(&inputs)?, Place::parse(&summaries)?);
            return analyze::run(&on, &secret, &inputs, &summaries, &gctrace, &options).await;
        }
        Command::Scheduler(arguments) => processes::scheduler(&arguments).await?,
        Command::Executor(arguments) => processes::executor(&arguments, gctrace).await?,
    }
    Ok(0)
}

fn places(texts: &[String]) -> anyhow::Result<Vec<Place>> {
    texts.iter().map(|text| Place::parse(text)).collect()
}

/// Prints to standard output. A reader that has enough is no error.
fn print(text: &[u8]) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// One line on standard error. Dropped if it cannot be written.
fn message(text: impl std::fmt::Display) {
    let clean = |one: char| if one.is_control() { ' ' } else { one };
    let line: String = text.to_string().chars().map(clean).collect();
    // In one write: several processes may share a terminal.
    let _ = std::io::stderr().write_all(format!("gctrace-cluster: {line}\n").as_bytes());
}
