//! What the ranks of each communicator waited for each other: the table in the section on ranks.

use super::ranks;
use super::section::paragraph;
use super::table::TextTable;
use crate::units::{count, duration};
use gctrace_analysis::report::{
    CollectiveWaits, CommunicatorKind, CommunicatorReport, PauseSource, RankedJob,
};

/// Maximum number of kinds shown; the others are in the JSON.
const KINDS_SHOWN: usize = 3;
/// Maximum number of communicators shown of each kind.
const LONGEST_SHOWN: usize = 2;

const LEGEND: &str = "waited: peer wait in their collectives, summed over the ranks; for pauses: how \
    much less without the pauses of all ranks, of whatever communicator; most for: the same of one \
    rank. All inferred, for pauses by replay.";

/// Empty for a job with one communicator: it waited what its ranks did.
pub(super) fn communicators(job: &RankedJob) -> Vec<String> {
    let all: u64 = job.communicators.iter().map(|kind| kind.communicators).sum();
    if all < 2 {
        return Vec::new();
    }
    let sources = job.pauses.iter().flat_map(|pauses| &pauses.sources);
    let sources: Vec<&PauseSource> = sources.collect();
    let mut table = TextTable::new(&["waited", "for pauses", "most for", "communicators"], &[2, 3]);
    for kind in job.communicators.iter().take(KINDS_SHOWN) {
        table.row(row(&kind.waits, &sources, label(kind)));
        if kind.communicators > 1 {
            for own in kind.longest.iter().take(LONGEST_SHOWN) {
                table.row(row(&own.waits, &sources, format!("  {}", named(own))));
            }
        }
    }
    let mut lines = vec![String::new()];
    lines.extend(table.lines());
    let more = job.communicators.len().saturating_sub(KINDS_SHOWN);
    let more = match more {
        0 => String::new(),
        more => format!("{more} more kinds of communicators are in the JSON. "),
    };
    lines.extend(paragraph(&format!("{more}{LEGEND}")));
    lines
}

fn row(waits: &CollectiveWaits, sources: &[&PauseSource], label: String) -> Vec<String> {
    let by_source = sources.iter().zip(&waits.for_sources_ns);
    let by_source = by_source.filter(|(_, for_ns)| **for_ns > 0);
    // One rank rather than all that are not listed one by one, even if these cost more.
    let most = by_source.max_by_key(|(source, for_ns)| (source.ranks.len() == 1, **for_ns));
    vec![
        duration(waits.wait_ns),
        waits.for_pauses_ns.map_or_else(|| "-".to_owned(), ranks::signed),
        most.map_or_else(
            || "-".to_owned(),
            |(source, for_ns)| format!("{}: {}", ranks::who(source), ranks::signed(*for_ns)),
        ),
        label,
    ]
}

/// `16 of 8 ranks each, neighbors`.
fn label(kind: &CommunicatorKind) -> String {
    if let ([only], 1) = (kind.longest.as_slice(), kind.communicators) {
        return named(only);
    }
    let communicators = count(kind.communicators);
    let Some(size) = kind.size else {
        return format!("{communicators} of other kinds");
    };
    let apart = match kind.stride {
        Some(1) => ", neighbors".to_owned(),
        Some(stride) => format!(", {stride} apart"),
        None => String::new(),
    };
    format!("{communicators} of {} ranks each{apart}", count(size))
}

/// `"tp_0", 8 ranks, 0 to 7`.
fn named(own: &CommunicatorReport) -> String {
    let name = own.name.as_ref();
    let name = name.map_or_else(String::new, |name| format!("\"{name}\", "));
    let (ranks, first, last) = (count(own.ranks), own.first_rank, own.last_rank);
    format!("{name}{ranks} ranks, {first} to {last}")
}
