//! The command line of `gctrace heap`.

use super::choices::OutputFormat;
use super::take_heap::TakeHeapArgs;
use super::{Invocation, take_heap};
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

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct HeapArgs {
    #[command(subcommand)]
    question: Option<HeapQuestions>,
    #[command(flatten)]
    take: TakeHeapArgs,
}

#[derive(Debug, Subcommand)]
enum HeapQuestions {
    /// Objects and bytes by type, by generation, and what is garbage
    Show {
        /// Heap written by `gctrace heap`
        file: PathBuf,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Why objects are alive: the shortest path from a module, a frame or another root
    Why {
        /// Type, as `gctrace heap show` names it or only its last part, or an address, as `id()`
        /// returns it
        #[arg(value_name = "TYPE|ADDRESS")]
        target: HeapTarget,
        /// Heap written by `gctrace heap`
        file: PathBuf,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Objects that retain most: what would be freed with them
    Dominators {
        /// Heap written by `gctrace heap`
        file: PathBuf,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// What was born after the first heap and is alive in the last one
    Diff {
        /// Two or three heaps of one process, oldest first
        #[arg(required = true, num_args = 2..=3, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        answer: AnswerArgs,
    },
}

#[derive(Args, Clone, Debug)]
struct AnswerArgs {
    /// Rows of each table [default: 20], or number of paths [default: 5]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    /// Format of the answer; JSON has the schema gctrace.heap/1
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// Options of `gctrace heap`, validated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeapConfig {
    /// What to answer.
    pub question: HeapQuestion,
    /// The heaps: one, or for [`HeapQuestion::Diff`] two or three, oldest first.
    pub files: Vec<PathBuf>,
    /// Rows of each table, and number of paths.
    pub rows: usize,
    /// Format of the answer.
    pub format: OutputFormat,
}

/// What is asked about heaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HeapQuestion {
    /// What is there.
    Show,
    /// Why objects are alive.
    Why(HeapTarget),
    /// What retains most.
    Dominators,
    /// What was born between heaps.
    Diff,
}

/// Objects that a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeapTarget {
    /// The one at this address.
    Address(u64),
    /// Those of this type.
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

pub(super) fn config(args: HeapArgs) -> Result<Invocation, clap::Error> {
    let Some(question) = args.question else {
        let take = take_heap::config(args.take)?;
        return Ok(Invocation::TakeHeap(take));
    };
    Ok(Invocation::Heap(answer_config(question)))
}

fn answer_config(question: HeapQuestions) -> HeapConfig {
    let (question, files, answer) = match question {
        HeapQuestions::Show { file, answer } => (HeapQuestion::Show, vec![file], answer),
        HeapQuestions::Why { target, file, answer } => {
            (HeapQuestion::Why(target), vec![file], answer)
        }
        HeapQuestions::Dominators { file, answer } => {
            (HeapQuestion::Dominators, vec![file], answer)
        }
        HeapQuestions::Diff { files, answer } => (HeapQuestion::Diff, files, answer),
    };
    // A path takes as many lines as half a table.
    let rows = match question {
        HeapQuestion::Why(_) => 5,
        HeapQuestion::Show | HeapQuestion::Dominators | HeapQuestion::Diff => 20,
    };
    HeapConfig {
        question,
        files,
        rows: answer.rows.unwrap_or(rows),
        format: if answer.json { OutputFormat::Json } else { answer.format },
    }
}
