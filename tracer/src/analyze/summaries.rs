//! Summaries in place of their traces.
//!
//! Owns the errors of a set of them: traces that are in it twice, have changed, or are missing.

use crate::files::open_regular;
use crate::files::segments::segments_in;
use crate::text;
use gctrace_event::summary::{SummaryHeader, SummarySource};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Ranks that are named in a message; of more, the number is enough.
const NAMED: usize = 32;
/// Number of directories above a summary to search for its trace: the trace is named as on the command line, and
/// summaries are usually in a directory beside the traces, or one further below.
const ABOVE: usize = 3;

/// Traces and summaries that were read, to find a trace that is named twice.
#[derive(Default)]
pub(crate) struct DistinctTraces {
    /// By size of the trace in bytes: it is hashed only if a summary is of a trace of that size.
    known: HashMap<u64, SameSize>,
}

#[derive(Default)]
struct SameSize {
    /// Whether one of them is a summary.
    summarized: bool,
    /// By the SHA-256 of the trace, in hexadecimal.
    hashed: HashMap<String, PathBuf>,
    others: Vec<PathBuf>,
}

impl DistinctTraces {
    /// Adds a trace, or a summary with its header. Pipes are not compared, nor copies of a trace.
    ///
    /// # Errors
    /// It is a summary of a trace before, or a trace or another summary of a summary before.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        summary: Option<&SummaryHeader>,
    ) -> anyhow::Result<()> {
        let source = summary.map(|header| &header.source);
        let bytes = match source {
            Some(source) => source.bytes,
            None => match path.metadata() {
                Ok(found) if found.is_file() => found.len(),
                _ => return Ok(()),
            },
        };
        let known = self.known.entry(bytes).or_default();
        known.summarized |= summary.is_some();
        if !known.summarized {
            known.others.push(path.to_owned());
            return Ok(());
        }
        for other in std::mem::take(&mut known.others) {
            if let Some(hash) = sha256(&other) {
                known.hashed.entry(hash).or_insert(other);
            }
        }
        let hash = if let Some(of) = source { Some(of.sha256.clone()) } else { sha256(path) };
        let Some(hash) = hash else { return Ok(()) };
        if let Some(other) = known.hashed.get(&hash) {
            anyhow::bail!(
                "{}: is the same trace as {}: name one of them",
                path.display(),
                other.display()
            );
        }
        known.hashed.insert(hash, path.to_owned());
        Ok(())
    }
}

/// `None` if the file cannot be read.
fn sha256(path: &Path) -> Option<String> {
    let file = open_regular(path).ok()?;
    let source = SummarySource::of("", file).ok()?;
    Some(source.sha256)
}

/// # Errors
/// The trace of a summary is still there, with another size.
pub(super) fn check_current(summary: &Path, source: &SummarySource) -> anyhow::Result<()> {
    let Ok(absolute) = std::path::absolute(summary) else { return Ok(()) };
    let mut above = absolute.ancestors().skip(1).take(ABOVE);
    let found = above.find_map(|directory| {
        let found = directory.join(&source.file).metadata().ok()?;
        let of_segment = |(_, path): (u64, PathBuf)| path.metadata().map_or(0, |part| part.len());
        let bytes = match segments_in(&directory.join(&source.file)) {
            segments if !segments.is_empty() => segments.into_iter().map(of_segment).sum(),
            _ if found.is_file() => found.len(),
            _ => return None,
        };
        Some((directory, bytes))
    });
    let Some((directory, bytes)) = found else { return Ok(()) };
    if bytes == source.bytes {
        return Ok(());
    }
    let output = absolute.parent().unwrap_or(directory);
    let output = output.strip_prefix(directory).unwrap_or(output);
    let output = if output == Path::new("") { Path::new(".") } else { output };
    let words = ["gctrace", "summarize", &source.file, "-o"].map(Path::new);
    anyhow::bail!(
        "{}: has changed since {} was made of it (was {} bytes, is {bytes}): {} && {}",
        source.file,
        summary.display(),
        source.bytes,
        text::shell_line(&[Path::new("cd"), directory]),
        text::shell_line(&[&words[..], &[output]].concat())
    )
}

/// The ranks that are missing in a job; `None` if there are none. `stated`: the number of ranks that
/// each summary states, and each trace that does; `found`: the ranks of all traces.
pub(crate) fn missing_ranks(
    stated: &[Option<u32>],
    found: &BTreeSet<u32>,
) -> Option<anyhow::Error> {
    if stated.is_empty() {
        return None;
    }
    let stated = stated.iter().flatten().copied().max();
    // Without the number of ranks, those behind the last are not known to be missing.
    let ranks = stated.max(found.last().map(|last| last.saturating_add(1)))?;
    let missing = u64::from(ranks) - found.len() as u64;
    let named = (0..ranks).filter(|rank| !found.contains(rank)).take(NAMED);
    let named: Vec<String> = named.map(|rank| rank.to_string()).collect();
    let more = match gctrace_units::beyond(missing, NAMED as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let of = match stated {
        Some(stated) if stated == ranks => format!("of {ranks}"),
        _ => format!("of {ranks} or more"),
    };
    let rank = if missing == 1 { "rank" } else { "ranks" };
    if missing == 0 {
        return None;
    }
    Some(anyhow::anyhow!(
        "{rank} {}{more} ({of}): no trace and no summary; all figures are of the others",
        named.join(", ")
    ))
}
