//! The command line of `gctrace heap -p PID` and `gctrace heap --at-full N -- COMMAND`.

use super::{usage_error, values};
use clap::Args;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, PartialEq)]
pub struct TakeHeapArgs {
    /// Command to start, with its arguments: Python, or a program that starts it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Take the heap of a running process; stops it for about 0.1 s per 150 MB
    #[arg(short, long, value_name = "PID", value_parser = values::pid, conflicts_with_all = ["at_full", "command"])]
    pub pid: Option<u32>,
    /// Start a command; take its heap at the end of its N-th full collection
    #[arg(long, value_name = "N", requires = "command")]
    at_full: Option<NonZeroU32>,
    /// File for the heap; `-` is standard output. With a command, an existing heap is renamed to FILE.old, and beside
    /// any other file the next free name is taken
    #[arg(short, long, value_name = "FILE", default_value = "heap.gcheap")]
    pub output: PathBuf,
    /// Overwrite FILE if it exists
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Id of the interpreter, for programs with several
    #[arg(long, hide = true, value_name = "ID", default_value = "0")]
    pub interpreter: i64,
    /// Under sudo: run the command as root instead of the invoking user
    #[arg(long, requires = "command")]
    pub as_root: bool,
}

/// The program to take a heap from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeapProgram {
    /// A running process.
    Process(u32),
    /// The command, at the end of this full collection, counted from 1.
    Command(NonZeroU32),
}

impl TakeHeapArgs {
    /// The program to take a heap from.
    ///
    /// # Errors
    /// There is neither a process nor a command with its full collection.
    pub fn program(&self) -> Result<HeapProgram, clap::Error> {
        let missing = match (self.pid, self.at_full) {
            (Some(pid), _) => return Ok(HeapProgram::Process(pid)),
            (None, Some(at_full)) if !self.command.is_empty() => {
                return Ok(HeapProgram::Command(at_full));
            }
            _ if !self.command.is_empty() => {
                "when to take the heap: give the number of a full collection \
                 (gctrace heap --at-full 3 -- python train.py)"
            }
            _ => {
                "no heap: give a running process with -p PID, a command with --at-full N, \
                 or ask about a heap that was taken (gctrace heap show heap.gcheap)"
            }
        };
        Err(usage_error(ErrorKind::MissingRequiredArgument, missing))
    }
}
