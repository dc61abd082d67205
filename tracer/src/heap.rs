//! `gctrace heap show`, `why`, `dominators`, `diff`: answers about heaps in files.
//!
//! Owns reading heaps, finding the objects of a question, and the explanation and remedy of each kind of leak suspect.
//! `gctrace-heap` answers, `heap/text.rs` has the text, `heap/picture.rs` the pictures; `heap/take.rs` makes the files.

pub(crate) mod dot;
mod picture;
#[cfg(target_os = "linux")]
pub(crate) mod take;
mod text;

pub(crate) use picture::Picture;

use crate::args::{HeapQuestion, HeapTarget, OutputFormat};
use crate::document::Style;
use crate::files::is_stdout;
use crate::{files, print};
use anyhow::Context as _;
use gctrace_heap::report::{HeapAnswer, HeapReport, SuspectHolder};
use gctrace_heap::{Dominators, Heap, HeapGraph, MAGIC, NodeIndex, diff};
use std::fs::File;
use std::io;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Names of types that are suggested for an unknown one.
const SUGGESTIONS: usize = 5;

/// Prints an answer. Returns the exit code: 0.
///
/// # Errors
/// A heap cannot be read, heaps are not of one process, nothing of the name is in it, or the output
/// cannot be written.
pub(crate) fn run(question: &HeapQuestion) -> anyhow::Result<u8> {
    let heaps = question.files().iter().map(|file| read(file));
    let heaps: Vec<Heap> = heaps.collect::<anyhow::Result<_>>()?;
    let report = answer(question, &heaps)?;
    match question.format() {
        OutputFormat::Text => print::styled_answer(&text::answer(&report, Style::of_output()))?,
        OutputFormat::Json => print::exact_answer(&print::json(&report)?)?,
    }
    Ok(0)
}

fn answer(question: &HeapQuestion, heaps: &[Heap]) -> anyhow::Result<HeapReport> {
    let heap = heaps.first().context("no heap given")?;
    let (files, rows) = (question.files(), question.rows());
    let answer = match question {
        HeapQuestion::Show(_) => HeapAnswer::Show(heap.show(rows)),
        HeapQuestion::Why { target, .. } => {
            let nodes = find(heap, target)?;
            HeapAnswer::Why(heap.why(&name(target), &nodes, rows))
        }
        HeapQuestion::Dominators(_) => {
            HeapAnswer::Dominators(heap.retained(&Dominators::new(heap), rows))
        }
        HeapQuestion::Diff { .. } => {
            check_order(files, heaps)?;
            HeapAnswer::Diff(diff(heaps, rows).context("a comparison needs two heaps")?)
        }
    };
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Ok(HeapReport::new(files.iter().map(String::as_str).zip(heaps), answer))
}

/// Heaps that can be compared: of one process, oldest first.
fn check_order(files: &[PathBuf], heaps: &[Heap]) -> anyhow::Result<()> {
    let headers: Vec<_> = heaps.iter().map(|heap| &heap.graph().header).collect();
    for (files, pair) in files.windows(2).zip(headers.windows(2)) {
        let ([older, newer], [before, after]) = (files, pair) else { continue };
        let (older, newer) = (older.display(), newer.display());
        anyhow::ensure!(
            before.pid == after.pid && before.version == after.version,
            "{older} and {newer} are of different processes ({} and {}), whose addresses have \
             nothing in common",
            before.pid,
            after.pid
        );
        anyhow::ensure!(
            before.at_ns <= after.at_ns,
            "{older} was taken after {newer}: name the oldest heap first"
        );
    }
    Ok(())
}

/// Reads a heap; `-` is standard input.
///
/// # Errors
/// The file cannot be opened, or is no heap.
pub(crate) fn read(path: &Path) -> anyhow::Result<Heap> {
    let name = || path.display().to_string();
    let mut file: Box<dyn Read> = if is_stdout(path) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?)
    };
    let graph = HeapGraph::read(&mut file).with_context(name)?;
    Heap::new(graph).with_context(name)
}

/// Whether a file is a heap.
pub(crate) fn is_heap(path: &Path) -> bool {
    let Some(head) = files::read_head(path, MAGIC.len() as u64) else { return false };
    head == MAGIC
}

/// The objects that a question is about, at least one.
///
/// # Errors
/// There are none.
pub(crate) fn find(heap: &Heap, target: &HeapTarget) -> anyhow::Result<Vec<NodeIndex>> {
    let name = match target {
        HeapTarget::Address(address) => {
            let node = heap.at_address(*address);
            let missing = || {
                format!(
                    "no object of the heap is at {address:#x}: it has those that the collector \
                     tracks, and some that they refer to"
                )
            };
            return Ok(vec![node.with_context(missing)?]);
        }
        HeapTarget::Type(name) => name,
    };
    let nodes = heap.of_type(name);
    if nodes.is_empty() {
        let like = similar(heap, name);
        let like = if like.is_empty() {
            "all types: gctrace heap show -n 1000 FILE".to_owned()
        } else {
            format!("there are {}", like.join(", "))
        };
        anyhow::bail!("no object of type {name} is in the heap; {like}");
    }
    Ok(nodes)
}

/// Types with a name that contains a part of this one, most bytes first.
fn similar(heap: &Heap, name: &str) -> Vec<String> {
    let part = name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let types = heap.show(usize::MAX).types.into_iter();
    let names = types.map(|row| row.type_name);
    names.filter(|name| name.to_lowercase().contains(&part)).take(SUGGESTIONS).collect()
}

/// The objects of a question, in its words.
pub(crate) fn name(target: &HeapTarget) -> String {
    match target {
        HeapTarget::Address(address) => format!("{address:#x}"),
        HeapTarget::Type(name) => name.clone(),
    }
}

/// One or two sentences, ready to print.
fn advice(holder: SuspectHolder) -> &'static str {
    match holder {
        SuspectHolder::DefaultArgument => {
            "A default argument is made once and lives as long as the function: every call adds to \
             the same object. Default to None and create it in the function."
        }
        SuspectHolder::LruCache => {
            "The cache of functools.lru_cache keeps arguments and results; on a method, self too. \
             Give it a maxsize, cache per instance (functools.cached_property), or call \
             cache_clear()."
        }
        SuspectHolder::Hooks => {
            "Hooks and callbacks keep what they refer to until they are removed: keep the handle \
             and call remove(), or register a weakref.WeakMethod."
        }
        SuspectHolder::Handler => {
            "A logger keeps every handler that was added to it. Add it once for the program, or call \
             removeHandler() when it is done."
        }
        SuspectHolder::Loggers => {
            "The module logging keeps a logger for each name for ever. Use one logger, and \
             logging.LoggerAdapter or extra= for what differs."
        }
        SuspectHolder::Finalizer => {
            "weakref.finalize() keeps its function and arguments until the object goes: pass no bound method of \
             the object, and nothing that refers to it."
        }
        SuspectHolder::WeakKeys => {
            "The values of a weakref.WeakKeyDictionary are held: one that refers to its key keeps both for \
             ever. Keep a weak reference to the key in the value."
        }
        SuspectHolder::Traceback => {
            "A traceback keeps the frames it went through, and all their variables. Keep the text \
             (traceback.format_exc()), or set exception.__traceback__ = None."
        }
        SuspectHolder::Closure => {
            "A function keeps the variables that it closes over. Pass what it needs as an argument, \
             or delete the variable when it is done."
        }
        SuspectHolder::ClassAttribute => {
            "An attribute of a class lives as long as the class, and is shared by its instances. \
             Create it in __init__ if it belongs to one of them."
        }
        SuspectHolder::ModuleAttribute => {
            "A variable of a module lives as long as the program. Bound it (collections.deque with \
             maxlen), clear it, or use weakref.WeakValueDictionary."
        }
        SuspectHolder::Frame => {
            "A variable of a function that runs: it goes when the function returns, or with del."
        }
        SuspectHolder::EventLoop => {
            "The event loop holds each task until it ends: cancel those that are not needed, or let one task \
             watch for all."
        }
        SuspectHolder::Outside => OUTSIDE,
        SuspectHolder::Other => "No usual place of leaks: see gctrace heap why.",
    }
}

/// Holders of objects outside the heap.
pub(super) const OUTSIDE: &str = "Something outside the heap holds each, such as a variable of C code. A bound method is usually \
                       held by atexit.register(), signal.signal() or a callback of a C type (sqlite3, a GUI): \
                       unregister it, or register a function that refers weakly to its object.";
