//! The last pauses of a process, as recorded by a recorder on this machine (`gctrace record --keep`).

use crate::files::segments::{FoundRecorder, LOCK, PROGRAM, recorder_of, segments_in};
use crate::invoker::Invoker;
use crate::launch::ancestors;
use crate::units::duration;
use crate::{clock, print};
use gctrace_event::read::{DecodedItem, EventReader, ReadError, TraceInput, TraceReader};
use gctrace_event::{Pause, Record};
use gctrace_probes::proc_status;
use nix::unistd::Uid;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of pauses to print.
const PRINTED: usize = 5;
/// Maximum number of segments to read, the last ones: if a process rarely collects, earlier pauses are not found.
const READ: usize = 3;
/// Most bytes of the text of a segment: more than a processor reads in that time.
const MOST_BYTES: u64 = 1 << 30;
/// Maximum time to read all of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// A recorder's data on a process.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RecordedPauses {
    /// Directory of the recorder.
    directory: String,
    /// The last pauses that it has written, the last one first, at most five. It writes once a second.
    pauses: Vec<LastPause>,
}

/// One of the last pauses.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

/// `None` if no recorder of this process is found, may be looked at, or is trusted: recorders of root, this user and
/// the process's own user are trusted. Their recordings are read with a bound, whatever their contents.
pub(super) fn of(pid: u32) -> Option<RecordedPauses> {
    let until = Instant::now() + PATIENCE;
    let mut users = vec![0, Uid::current().as_raw(), Invoker::detect().uid];
    users.extend(proc_status::status(pid).ok()?.effective_user);
    let mut found = recorders(&users);
    // Its own recorder first: it launched the process. Recorders of other programs take the time.
    let ancestors: Vec<u32> = ancestors(pid).collect();
    found.sort_by_key(|recorder| !ancestors.contains(&recorder.pid));
    found.into_iter().find_map(|recorder| in_directory(pid, &recorder, until))
}

/// The sentence for people.
pub(super) fn words(recorded: &RecordedPauses) -> String {
    let pauses = recorded.pauses.iter().map(|pause| {
        let of = gctrace_units::if_known(
            pause.generation.map(|number| format!(" of generation {number}")),
        );
        let freed =
            gctrace_units::if_known(pause.collected.map(|freed| format!(", {freed} freed")));
        format!("{}{of} {} ago{freed}", duration(pause.duration_ns), duration(pause.ago_ns))
    });
    let pauses: Vec<String> = pauses.collect();
    let pauses = if pauses.is_empty() { "none lately".to_owned() } else { pauses.join("; ") };
    format!("{pauses} (all: gctrace analyze {})", recorded.directory)
}

/// The recorders on this machine of these users that this user may look at.
fn recorders(users: &[u32]) -> Vec<FoundRecorder> {
    let mut recorders = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(Ok(pid)) = entry.file_name().to_str().map(str::parse) else { continue };
        let Ok(status) = proc_status::status(pid) else { continue };
        if status.name != PROGRAM || !status.users.iter().all(|user| users.contains(user)) {
            continue;
        }
        for file in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            // In a container, the path is another one.
            if let Ok(file) = std::fs::read_link(file.path())
                && let Some(recorder) = recorder_with(&file)
                && recorder.pid == pid
                && users.contains(&recorder.owner)
            {
                recorders.push(recorder);
            }
        }
    }
    recorders
}

/// The recorder that has locked this file, if it is a lock.
fn recorder_with(file: &Path) -> Option<FoundRecorder> {
    if file.file_name()? != LOCK {
        return None;
    }
    recorder_of(file.parent()?).ok()?
}

fn in_directory(pid: u32, recorder: &FoundRecorder, until: Instant) -> Option<RecordedPauses> {
    let segments = segments_in(&recorder.directory);
    let mut pauses: VecDeque<Pause> = VecDeque::new();
    let (mut is_recorded, mut is_too_much) = (false, false);
    for (number, segment) in segments.iter().rev().take(READ).rev() {
        let Ok(file) = recorder.open(*number) else { continue };
        let Ok(input) = TraceInput::new(&segment.display().to_string(), file) else { continue };
        let mut reader = TraceReader::new(EventReader::new(input.bounded(MOST_BYTES, until)));
        loop {
            match reader.next_item() {
                Ok(Some(DecodedItem::Record(Record::Process(process)))) => {
                    is_recorded |= process.pid == pid;
                }
                Ok(Some(DecodedItem::Record(Record::Pause(pause)))) if pause.pid == pid => {
                    pauses.push_front(pause);
                    pauses.truncate(PRINTED);
                }
                Ok(Some(_)) => {}
                Err(ReadError::Io { source, .. }) => {
                    is_too_much |= source.kind() == io::ErrorKind::FileTooLarge;
                    break;
                }
                Ok(None) | Err(_) => break,
            }
        }
    }
    if is_too_much {
        print::message(format!(
            "the last pauses are left out, as there is too much to read: gctrace analyze {}",
            recorder.directory.display()
        ));
        return None;
    }
    let now_ns = clock::monotonic_ns();
    let last = |pause: Pause| LastPause {
        ago_ns: gctrace_units::duration_ns(pause.end_ns, now_ns),
        duration_ns: pause.duration_ns(),
        generation: if pause.generation <= 2 { Some(pause.generation) } else { None },
        collected: pause.collected,
    };
    if !is_recorded {
        return None;
    }
    Some(RecordedPauses {
        directory: recorder.directory.display().to_string(),
        pauses: pauses.into_iter().map(last).collect(),
    })
}
