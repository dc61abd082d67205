//! The command line of `gctrace heap -p PID` and `gctrace heap --at-full N -- COMMAND`.

use super::{usage_error, values};
use clap::Args;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(super) struct TakeHeapArgs {
    /// Command to start, with its arguments: Python, or a program that starts it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Take the heap of a running process; stops it for about 0.1 s per 150 MB
    #[arg(short, long, value_name = "PID", value_parser = values::pid, conflicts_with_all = ["at_full", "command"])]
    pid: Option<u32>,
    /// Start a command; take its heap at the end of its N-th full collection
    #[arg(long, value_name = "N", requires = "command")]
    at_full: Option<NonZeroU32>,
    /// File for the heap; `-` is standard output. With a command, an existing heap is renamed to FILE.old, and beside
    /// any other file the next free name is taken
    #[arg(short, long, value_name = "FILE", default_value = "heap.gcheap")]
    output: PathBuf,
    /// Overwrite FILE if it exists
    #[arg(short = 'f', long)]
    force: bool,
    /// Id of the interpreter, for programs with several
    #[arg(long, value_name = "ID", default_value = "0")]
    interpreter: i64,
    /// Under sudo: run the command as root instead of the invoking user
    #[arg(long, requires = "command")]
    as_root: bool,
}

/// Which heap to take, and where to write it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TakeHeapConfig {
    /// The program.
    pub target: HeapProgram,
    /// Id of the interpreter; 0 is the main one.
    pub interpreter: i64,
    /// File to write; `-` is standard output.
    pub output: PathBuf,
    /// Replace an existing file.
    pub force: bool,
}

/// The program whose heap is taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HeapProgram {
    /// A running process.
    Process(u32),
    /// A command to start.
    Command {
        /// Program and arguments, never empty.
        command: Vec<OsString>,
        /// Full collection at whose end the heap is taken, counted from 1.
        at_full: NonZeroU32,
        /// Run the command as root, with root's environment.
        as_root: bool,
    },
}

pub(super) fn config(args: TakeHeapArgs) -> Result<TakeHeapConfig, clap::Error> {
    let missing = |what: &str| usage_error(ErrorKind::MissingRequiredArgument, what);
    let target = match (args.pid, args.at_full) {
        (Some(pid), _) => HeapProgram::Process(pid),
        (None, Some(at_full)) if !args.command.is_empty() => {
            HeapProgram::Command { command: args.command, at_full, as_root: args.as_root }
        }
        (None, _) if !args.command.is_empty() => {
            return Err(missing(
                "when to take the heap: give the number of a full collection \
                 (gctrace heap --at-full 3 -- python train.py)",
            ));
        }
        _ => {
            return Err(missing(
                "no heap: give a running process with -p PID, a command with --at-full N, \
                 or ask about a heap that was taken (gctrace heap show heap.gcheap)",
            ));
        }
    };
    Ok(TakeHeapConfig {
        target,
        interpreter: args.interpreter,
        output: args.output,
        force: args.force,
    })
}
