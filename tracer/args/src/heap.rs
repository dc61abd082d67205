//! The command line of `gctrace heap`.

use super::choices::OutputFormat;
use super::output::FormatArgs;
use super::take_heap::TakeHeapArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo gctrace heap -p 4242 -o train.gcheap     take the heap of a running program
  gctrace heap --at-full 3 -- python train.py   take it after the third full collection
  gctrace heap show train.gcheap                what is there: objects and bytes by type
  gctrace heap why Trainer train.gcheap         why objects of this type are alive
  gctrace heap why 0x7f3a5c012340 train.gcheap  why this one is, by its id()
  gctrace heap dominators train.gcheap          what retains most, leak suspects first
  gctrace heap diff a.gcheap b.gcheap c.gcheap  born after A, still alive in C
  gctrace export train.gcheap --cycle Node | dot -Tsvg -o ring.svg   a picture of a cycle";

pub(super) const USAGE: &str = "gctrace heap -p PID [-o FILE]\n       \
                                gctrace heap --at-full N [-o FILE] -- COMMAND...\n       \
                                gctrace heap show FILE\n       \
                                gctrace heap why TYPE|ADDRESS FILE\n       \
                                gctrace heap dominators FILE\n       \
                                gctrace heap diff A B [C]";

/// Options of `gctrace heap`: takes a heap, unless a question is asked.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HeapArgs {
    #[command(subcommand)]
    pub question: Option<HeapQuestion>,
    #[command(flatten)]
    pub take: TakeHeapArgs,
}

/// Questions about heaps.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum HeapQuestion {
    /// Objects and bytes by type and by generation, and garbage
    Show(OneHeapArgs),
    /// Why objects are alive: the shortest path from a module, a frame or another root
    Why {
        /// Type, as `gctrace heap show` names it or only its last part, or an address, as `id()`
        /// returns it
        #[arg(value_name = "TYPE|ADDRESS")]
        target: HeapTarget,
        #[command(flatten)]
        of: OneHeapArgs,
    },
    /// Objects that retain most, with the memory that would be freed with them
    Dominators(OneHeapArgs),
    /// Objects born after the first heap and alive in the last one
    Diff {
        /// Two or three heaps of one process, oldest first
        #[arg(required = true, num_args = 2..=3, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        answer: AnswerArgs,
    },
}

/// A heap that a question is about.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct OneHeapArgs {
    /// Heap written by `gctrace heap`
    file: PathBuf,
    #[command(flatten)]
    answer: AnswerArgs,
}

#[derive(Args, Clone, Debug, PartialEq)]
pub struct AnswerArgs {
    /// Rows of each table [default: 20], or number of paths [default: 5]
    #[arg(short = 'n', long, hide = true, value_name = "N")]
    rows: Option<usize>,
    #[command(flatten)]
    form: FormatArgs<OutputFormat>,
}

impl HeapQuestion {
    /// The heaps: one, or for [`HeapQuestion::Diff`] two or three, oldest first.
    pub fn files(&self) -> &[PathBuf] {
        match self {
            Self::Show(of) | Self::Dominators(of) | Self::Why { of, .. } => {
                std::slice::from_ref(&of.file)
            }
            Self::Diff { files, .. } => files,
        }
    }

    /// Rows of each table, or number of paths.
    pub fn rows(&self) -> usize {
        // A path takes as many lines as half a table.
        let usual = if matches!(self, Self::Why { .. }) { 5 } else { 20 };
        self.answer().rows.unwrap_or(usual)
    }

    /// Format of the answer.
    pub fn format(&self) -> OutputFormat {
        self.answer().form.of(None)
    }

    fn answer(&self) -> &AnswerArgs {
        match self {
            Self::Show(of) | Self::Dominators(of) | Self::Why { of, .. } => &of.answer,
            Self::Diff { answer, .. } => answer,
        }
    }
}

/// Objects that a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeapTarget {
    /// The one at this address.
    Address(u64),
    /// Objects of this type.
    Type(String),
}

impl FromStr for HeapTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return match text.trim() {
                "" => Err("name a type or an address".to_owned()),
                name => Ok(Self::Type(name.to_owned())),
            };
        }
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let explain = |_| "an address is a number as id() or hex(id()) returns it".to_owned();
        parsed.map(Self::Address).map_err(explain)
    }
}
