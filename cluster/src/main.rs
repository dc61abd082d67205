//! `gctrace-cluster`: SQL on traces of a job, and their analysis on many machines.
//!
//! Owns arguments, messages and exit codes: 0, 1 after an error, 2 for wrong usage.

mod gctrace;
mod place;
mod query;
mod tables;

use clap::Parser;
use clap::Subcommand;
use gctrace::Gctrace;
use place::Place;
use query::Format;
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
        /// Traces (.json, .json.gz), directories of them, or of the tables of `gctrace export --format
        /// parquet`: paths, or URLs of s3://, gs://, az://
        #[arg(required = true, value_name = "INPUT")]
        inputs: Vec<String>,
        /// How rows are printed
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(arguments)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            message(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let gctrace = Gctrace::find(arguments.gctrace.as_deref());
    match arguments.command {
        Command::Query {
            sql,
            inputs,
            format,
        } => {
            let answer = query::run(&sql, &places(&inputs)?, &gctrace, format).await?;
            print(&answer)
        }
    }
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

/// One line on standard error: the error and its causes. Dropped if it cannot be written.
fn message(error: &anyhow::Error) {
    let clean = |one: char| if one.is_control() { ' ' } else { one };
    let line: String = format!("{error:#}").chars().map(clean).collect();
    let _ = writeln!(std::io::stderr(), "gctrace-cluster: {line}");
}
