//! The last pauses of a process, as a recorder has them (`gctrace record --keep`) that runs on this machine.

use crate::analyze::open_segment;
use crate::clock;
use crate::files::segments::{LOCK, segments_in};
use crate::units::duration;
use gctrace_event::read::DecodedItem;
use gctrace_event::{Pause, Record};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Pauses that are printed.
const PRINTED: usize = 5;
/// Segments that are read, the last ones: of a process that rarely collects, earlier pauses are not found.
const READ: usize = 3;

/// What a recorder has of a process.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RecordedPauses {
    /// Directory of the recorder.
    directory: String,
    /// The last pauses that it has written, the last one first, at most five. It writes once a second.
    pauses: Vec<LastPause>,
}

/// One of the last pauses.
#[derive(Debug, Serialize, JsonSchema)]
struct LastPause {
    /// Time since it ended, in ns.
    ago_ns: u64,
    /// Its length, in ns.
    duration_ns: u64,
    /// Generation collected; `null` if unknown.
    generation: Option<u8>,
    /// Objects freed; `null` if unknown.
    collected: Option<u64>,
}

/// `None` if no recorder of this process is found, or may be looked at.
pub(super) fn of(pid: u32) -> Option<RecordedPauses> {
    recorders().into_iter().find_map(|directory| in_directory(pid, &directory))
}

/// The sentence for people.
pub(super) fn words(recorded: &RecordedPauses) -> String {
    let pauses = recorded.pauses.iter().map(|pause| {
        let of =
            pause.generation.map(|number| format!(" of generation {number}")).unwrap_or_default();
        let freed = pause.collected.map(|freed| format!(", {freed} freed")).unwrap_or_default();
        format!("{}{of} {} ago{freed}", duration(pause.duration_ns), duration(pause.ago_ns))
    });
    let pauses: Vec<String> = pauses.collect();
    let pauses = if pauses.is_empty() { "none lately".to_owned() } else { pauses.join("; ") };
    format!("{pauses} (all: gctrace analyze {})", recorded.directory)
}

/// Directories of the recorders of this machine that this user may look at: they have their lock open.
fn recorders() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_gctrace = processes.map(|entry| entry.path()).filter(|process| {
        std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() == "gctrace")
    });
    let files = of_gctrace.flat_map(|process| std::fs::read_dir(process.join("fd")));
    let links = files.flatten().flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    let locks = links.filter(|file| file.file_name().is_some_and(|name| name == LOCK));
    locks.filter_map(|lock| lock.parent().map(Path::to_owned)).collect()
}

fn in_directory(pid: u32, directory: &Path) -> Option<RecordedPauses> {
    let segments = segments_in(directory);
    let mut pauses: VecDeque<Pause> = VecDeque::new();
    let mut is_recorded = false;
    for (_, segment) in segments.iter().skip(segments.len().saturating_sub(READ)) {
        let Ok(mut reader) = open_segment(segment) else { continue };
        while let Ok(Some(item)) = reader.next_item() {
            match item {
                DecodedItem::Record(Record::Process(process)) => is_recorded |= process.pid == pid,
                DecodedItem::Record(Record::Pause(pause)) if pause.pid == pid => {
                    pauses.push_front(pause);
                    pauses.truncate(PRINTED);
                }
                _ => {}
            }
        }
    }
    let now_ns = clock::monotonic_ns();
    let last = |pause: Pause| LastPause {
        ago_ns: now_ns.saturating_sub(pause.end_ns),
        duration_ns: pause.duration_ns(),
        generation: (pause.generation <= 2).then_some(pause.generation),
        collected: pause.collected,
    };
    is_recorded.then(|| RecordedPauses {
        directory: directory.display().to_string(),
        pauses: pauses.into_iter().map(last).collect(),
    })
}
