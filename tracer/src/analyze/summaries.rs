//! Summaries in place of their traces.
//!
//! Owns what is reported of a set of them: ranks without a trace, and traces that are in it twice.

use super::ReadProgress;
use super::ReadTrace;
use super::end;
use gctrace_analysis::Analysis;
use gctrace_event::summary::SummaryReader;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Ranks that are named in a message; of more, the number is enough.
const NAMED: usize = 32;

/// Reads a summary as its trace would be read.
///
/// # Errors
/// It cannot be read, is damaged, or of another gctrace.
pub(super) fn read(path: &Path, progress: &ReadProgress) -> anyhow::Result<ReadTrace> {
    let name = path.display().to_string();
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut reader = SummaryReader::new(&name, file)?;
    let header = reader.header().clone();
    let mut analysis = Analysis::default();
    analysis.begin_trace(&header.source.file);
    while let Some(item) = reader.next_item()? {
        analysis.add(item);
    }
    progress.trace().update(size);
    let damage = header.damage.clone().map(anyhow::Error::msg);
    let read = end(analysis, &header.source.file, reader.finish(), damage);
    Ok(ReadTrace {
        summary: Some(header),
        ..read
    })
}

/// Leaves out traces that have two summaries, under two names, but for the first.
pub(super) fn leave_out_repeated(parts: &mut [ReadTrace]) {
    let mut known: HashMap<String, String> = HashMap::new();
    for part in parts {
        let Some(source) = part.summary.as_ref().map(|header| &header.source) else {
            continue;
        };
        if let Some(other) = known.get(&source.sha256) {
            *part = ReadTrace::left_out(anyhow::anyhow!(
                "{}: has the bytes of {other}, which is summarized too, and is left out",
                source.file
            ));
        } else {
            known.insert(source.sha256.clone(), source.file.clone());
        }
    }
}

/// The ranks of a job that has summaries and no trace of these; `None` if there are none.
pub(super) fn missing_ranks(parts: &[ReadTrace]) -> Option<anyhow::Error> {
    let sizes = parts.iter().map(|part| part.summary.as_ref());
    let sizes: Vec<Option<u32>> = sizes.flatten().map(|own| own.world_size).collect();
    if sizes.is_empty() {
        return None;
    }
    let found = parts.iter().flat_map(|part| part.analysis.ranks());
    let found: BTreeSet<u32> = found.collect();
    let stated = sizes.into_iter().flatten().max();
    // Without the number of ranks, those behind the last are not known to be missing.
    let ranks = stated.max(found.last().map(|last| last.saturating_add(1)))?;
    let missing = u64::from(ranks) - found.len() as u64;
    let named = (0..ranks).filter(|rank| !found.contains(rank)).take(NAMED);
    let named: Vec<String> = named.map(|rank| rank.to_string()).collect();
    let more = match missing.saturating_sub(NAMED as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let of = match stated {
        Some(stated) if stated == ranks => format!("of {ranks}"),
        _ => format!("of {ranks} or more"),
    };
    let rank = if missing == 1 { "rank" } else { "ranks" };
    (missing > 0).then(|| {
        anyhow::anyhow!(
            "{rank} {}{more} ({of}): no trace and no summary; the report is on the others",
            named.join(", ")
        )
    })
}
