//! The items of a trace, or of its summary, the same ones in the same order; or of the segments of one.
//!
//! Owns the kind of a file, and the directories of summaries.

use super::segments::SegmentReader;
use super::{TraceProgress, summaries};
use crate::files::{open_regular, read_head, with_extension};
use anyhow::Context as _;
use gctrace_event::read::{DecodedItem, EventReader, TraceCompletion, TraceInput, TraceReader};
use gctrace_event::summary;
use gctrace_event::summary::{SummaryHeader, SummaryReader};
use std::fs::File;
use std::path::{Path, PathBuf};

/// More than the first bytes of a summary.
const SUMMARY_HEAD: u64 = 64;
/// Items between updates of the progress bar: a few milliseconds.
const POLL_INTERVAL: u32 = 8192;

/// An open trace, or the summary in its place.
pub(crate) enum TraceItems {
    /// A trace.
    Trace(Box<TraceReader>),
    /// Its summary, of this size in bytes.
    Summary(Box<SummaryReader<File>>, u64),
    /// The segments of a directory.
    Segments(Box<SegmentReader>),
}

impl TraceItems {
    /// Opens either.
    ///
    /// # Errors
    /// It cannot be opened. A summary: it is damaged, of another gctrace, of a trace that has changed
    /// since, or only named like one and no file.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        if let Some(segments) = SegmentReader::open(path) {
            return Ok(Self::Segments(Box::new(segments?)));
        }
        if !matches!(read_head(path, SUMMARY_HEAD), Some(head) if summary::is_summary(&head)) {
            // Only a trace may be a FIFO. A directory's entries were not named by the user.
            if matches!(path.extension(), Some(end) if end == summary::EXTENSION) {
                let named = || format!("{}: is no summary", path.display());
                open_regular(path).with_context(named)?;
            }
            let input = TraceInput::open(path)?;
            let reader = TraceReader::new(EventReader::new(input));
            return Ok(Self::Trace(Box::new(reader)));
        }
        let file = open_regular(path)?;
        let size = file.metadata()?.len();
        let reader = SummaryReader::new(&path.display().to_string(), file)?;
        summaries::check_current(path, &reader.header().source)?;
        Ok(Self::Summary(Box::new(reader), size))
    }

    /// Name of the trace in reports.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Trace(reader) => reader.events().input().name(),
            Self::Summary(reader, _) => &reader.header().source.file,
            Self::Segments(reader) => reader.name(),
        }
    }

    /// The first line of a summary.
    pub(crate) fn summary(&self) -> Option<&SummaryHeader> {
        match self {
            Self::Trace(_) | Self::Segments(_) => None,
            Self::Summary(reader, _) => Some(reader.header()),
        }
    }

    /// Passes all items to `take`. Returns how the trace ended and why it could not be read to its
    /// end; the items before that were passed on.
    ///
    /// # Errors
    /// The first of `take`.
    pub(crate) fn each<E>(
        mut self,
        progress: &mut TraceProgress<'_>,
        mut take: impl FnMut(DecodedItem<'_>) -> Result<(), E>,
    ) -> Result<(TraceCompletion, Option<anyhow::Error>), E> {
        let mut items = 0u32;
        let failure = loop {
            match self.next_item() {
                Ok(Some(item)) => take(item)?,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            items = items.wrapping_add(1);
            if items.is_multiple_of(POLL_INTERVAL) {
                progress.update(self.consumed());
            }
        };
        progress.update(self.consumed());
        Ok(match self {
            Self::Trace(reader) => (reader.finish(), failure),
            Self::Summary(reader, _) => {
                let damage = reader.header().damage.clone().map(anyhow::Error::msg);
                (reader.finish(), failure.or(damage))
            }
            Self::Segments(reader) => {
                let (completion, damage) = reader.finish();
                (completion, failure.or(damage))
            }
        })
    }

    fn next_item(&mut self) -> anyhow::Result<Option<DecodedItem<'_>>> {
        Ok(match self {
            Self::Trace(reader) => reader.next_item()?,
            Self::Summary(reader, _) => reader.next_item()?,
            Self::Segments(reader) => reader.next_item(),
        })
    }

    /// Bytes of the file that were read.
    fn consumed(&self) -> u64 {
        match self {
            Self::Trace(reader) => reader.events().input().consumed(),
            // It is read to its end before its first item.
            Self::Summary(_, size) => *size,
            Self::Segments(reader) => reader.consumed(),
        }
    }
}

/// The same, with the summaries in each directory in its place.
pub(crate) fn with_summaries(traces: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for trace in traces {
        match with_extension(trace, summary::EXTENSION) {
            // No directory, or a directory without summaries: an error when it is read.
            none if none.is_empty() => files.push(trace.clone()),
            summaries => files.extend(summaries),
        }
    }
    files
}
