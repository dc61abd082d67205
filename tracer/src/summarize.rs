//! `gctrace summarize`: one summary per trace, so that a report on thousands of traces needs only summaries.
//!
//! Owns the search for missing summaries, and that a rerun makes only these. `gctrace_event::summary` has the file,
//! `files/summary.rs` its writing, `analyze.rs` reads summaries.

use crate::analyze::{ReadProgress, TraceItems};
use crate::args::{Shard, SummarizeArgs};
use crate::files::is_stdout;
use crate::files::segments::segments_in;
use crate::invoker::Invoker;
use crate::{analyze, files, print, text, units};
use anyhow::Context as _;
use gctrace_analysis::parallel;
use gctrace_event::read::{DecodedItem, EventReader, ReadError, TraceInput, TraceReader};
use gctrace_event::summary::{SummaryError, SummaryReader, SummarySource, SummaryWriter};
use gctrace_event::{Record, summary};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// The result for one trace.
enum Summarized {
    /// A complete summary of it was there.
    There,
    /// A new one; why the trace could not be read to its end, if so.
    New(Option<String>),
}

/// Summarizes the traces of a shard, except traces with a summary. Returns the exit code: 0 if all summaries of the
/// shard are there, 1 otherwise. The summary of a damaged trace states the damage; a trace that `gctrace analyze`
/// refuses has none.
///
/// # Errors
/// A trace is named twice, the directory cannot be created, or no summary can be made.
pub(crate) fn run(config: &SummarizeArgs) -> anyhow::Result<u8> {
    analyze::check_distinct(&config.traces)?;
    let named = names(&config.traces)?;
    let invoker = Invoker::detect();
    files::create_directory(&config.output, &invoker)?;
    let shard = config.shard.unwrap_or(Shard::ALL);
    let numbered = named.iter().enumerate();
    let of_shard = numbered.filter(|(at, _)| at % shard.count == shard.index);
    let traces: Vec<&(String, &Path)> = of_shard.map(|(_, trace)| trace).collect();
    let paths: Vec<&Path> = traces.iter().map(|(_, path)| *path).collect();
    let progress = ReadProgress::new(&paths);
    let processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = config.jobs.unwrap_or_else(processors);
    let results = parallel::map(&traces, jobs, |(name, trace)| {
        let path = config.output.join(name);
        summarize(trace, &path, &invoker, &progress)
    });
    progress.finish();
    let mut failures = Vec::new();
    let (mut there, mut new) = (0, 0);
    for result in results {
        match result {
            Ok(Summarized::There) => there += 1,
            Ok(Summarized::New(damage)) => {
                new += 1;
                damage.iter().for_each(print::message);
            }
            Err(error) => failures.push(error),
        }
    }
    if there + new == 0 && !failures.is_empty() {
        return Err(analyze::all_failed(failures));
    }
    for error in &failures {
        print::message(text::chain(error));
    }
    print::message(format!(
        "{}: {new} new, {there} complete before, {} failed",
        config.output.display(),
        failures.len()
    ));
    Ok(u8::from(!failures.is_empty()))
}

/// The summaries' names, of all traces in the order that all shards have, by name.
fn names(traces: &[PathBuf]) -> anyhow::Result<Vec<(String, &Path)>> {
    let mut named: HashMap<String, &Path> = HashMap::new();
    for trace in traces {
        anyhow::ensure!(
            !is_stdout(trace),
            "a trace on standard input cannot be summarized again: name a file"
        );
        if let Some(other) = named.insert(name(trace), trace) {
            anyhow::bail!(
                "{} and {} would have one summary: rename one of them",
                other.display(),
                trace.display()
            );
        }
    }
    let mut named: Vec<_> = named.into_iter().collect();
    named.sort();
    Ok(named)
}

/// The name of a trace's summary: its path, `a/b.json` as `a%2Fb.json.gcsum`.
fn name(trace: &Path) -> String {
    let path = trace.to_string_lossy();
    let path = path.strip_prefix("./").unwrap_or(&path);
    let path = path.replace('%', "%25").replace('/', "%2F");
    format!("{path}.{}", summary::EXTENSION)
}

fn summarize(
    trace: &Path,
    path: &Path,
    invoker: &Invoker,
    progress: &ReadProgress,
) -> anyhow::Result<Summarized> {
    let file = trace.display().to_string();
    let is_recorder = !segments_in(trace).is_empty();
    if trace.is_dir() && !is_recorder {
        return Err(ReadError::Directory { file }.into());
    }
    // A trace, or the segments of one.
    let parts = || match segments_in(trace) {
        segments if segments.is_empty() => vec![trace.to_owned()],
        segments => segments.into_iter().map(|(_, path)| path).collect(),
    };
    let as_it_is = || {
        let part = |path: PathBuf| {
            let metadata = std::fs::metadata(&path)?;
            std::io::Result::Ok((path, metadata.len(), metadata.modified().ok()))
        };
        parts().into_iter().map(part).collect::<std::io::Result<Vec<_>>>()
    };
    let failed = || format!("{file}: cannot be read");
    let before = as_it_is().with_context(failed)?;
    // It is read twice.
    let open = |path: &Path| files::open_regular(path).with_context(failed);
    let mut bytes: Box<dyn Read> = Box::new(std::io::empty());
    for (path, ..) in &before {
        bytes = Box::new(bytes.chain(open(path)?));
    }
    let source = SummarySource::of(&file, bytes).with_context(failed)?;
    let is_summary =
        matches!(files::read_head(trace, 64), Some(head) if summary::is_summary(&head));
    anyhow::ensure!(!is_summary, "{file}: is a summary already");
    if let Some(found) = existing(path, &source)? {
        match found {
            None => {
                files::remove_summary_leftovers(path, invoker);
                return Ok(Summarized::There);
            }
            Some(why) => print::message(format!("{why}: it is summarized again")),
        }
    }
    let mut writer = SummaryWriter::default();
    let mut has_evidence = false;
    let take = |item: DecodedItem<'_>| {
        has_evidence |= is_evidence(&item);
        writer.add(item);
        Ok::<(), Infallible>(())
    };
    let items = if is_recorder {
        TraceItems::open(trace)?
    } else {
        let input = TraceInput::new(&file, open(trace)?)?;
        TraceItems::Trace(Box::new(TraceReader::new(EventReader::new(input))))
    };
    let Ok((ending, failure)) = items.each(&mut progress.trace(), take);
    let damage = match failure.map(|error| error.downcast::<ReadError>()) {
        Some(Ok(error @ (ReadError::Open { .. } | ReadError::Io { .. }))) => {
            return Err(error.into());
        }
        Some(Ok(error)) => Some(error.to_string()),
        Some(Err(error)) => Some(error.to_string()),
        None => None,
    };
    if !has_evidence && damage.is_none() {
        return Err(analyze::no_evidence(&file, &ending));
    }
    let bytes = writer.finish(ending, source, damage.clone());
    anyhow::ensure!(
        as_it_is().with_context(failed)? == before,
        "{file}: changed while it was read: summarize it when its recording has ended"
    );
    files::write_summary(path, invoker, &bytes)?;
    Ok(Summarized::New(damage))
}

/// Whether there is a summary: `Some(None)` if it is complete and of this trace, otherwise why not.
fn existing(path: &Path, source: &SummarySource) -> anyhow::Result<Option<Option<String>>> {
    let Ok(file) = files::open_regular(path) else {
        return Ok(None);
    };
    let trace = &source.file;
    let reader = match SummaryReader::new(&path.display().to_string(), file) {
        Ok(reader) => reader,
        Err(error @ SummaryError::Io { .. }) => return Err(error.into()),
        Err(SummaryError::Damaged { file, problem }) => {
            return Ok(Some(Some(format!("{file}: is no complete summary ({problem})"))));
        }
        Err(SummaryError::Version { file, gctrace, .. }) => {
            return Ok(Some(Some(format!("{file}: is of gctrace {gctrace}"))));
        }
    };
    let known = &reader.header().source;
    let size = |bytes| units::bytes(bytes);
    Ok(Some(if known == source {
        None
    } else if known.sha256 == source.sha256 {
        Some(format!("{trace}: was {} when it was summarized", known.file))
    } else {
        Some(format!(
            "{trace}: has changed since it was summarized (was {}, is {}, with another SHA-256)",
            size(known.bytes),
            size(source.bytes)
        ))
    }))
}

/// Whether a trace with this item is read by `gctrace analyze`, as `Analysis::has_evidence` has it.
fn is_evidence(item: &DecodedItem<'_>) -> bool {
    match item {
        DecodedItem::Header(_) => true,
        DecodedItem::Record(record) => {
            matches!(record, Record::Pause(_) | Record::GpuOp(_))
        }
        _ => false,
    }
}
