//! `gctrace export --format parquet`: traces, or their summaries, as tables, one file each.
//!
//! Owns the sequence of traces and errors; `gctrace_analysis::tables` has the tables.

use crate::analyze::{DistinctTraces, ReadProgress, TraceItems};
use crate::args::ExportArgs;
use crate::files::NewTables;
use crate::invoker::Invoker;
use crate::{analyze, print, text};
use anyhow::Context as _;
use gctrace_analysis::tables::{Table, TableError, TraceTables};
use std::fs::File;

/// Writes the tables of all traces. Returns the exit code: 0, or 1 if an error kept any trace from
/// being read completely. There are no new files after an error.
///
/// # Errors
/// No directory is named, no trace can be read, or a table cannot be written.
pub(super) fn run(config: &ExportArgs) -> anyhow::Result<u8> {
    let directory = config.output.as_deref();
    let directory = directory.context(
        "tables are several files: name a directory for them, gctrace export --format parquet \
         TRACE... -o DIRECTORY",
    )?;
    anyhow::ensure!(
        config.generation.is_none(),
        "tables have all collections: instead of --generation, query them WHERE generation = ..."
    );
    analyze::check_distinct(&config.traces)?;
    let invoker = Invoker::detect();
    let names = Table::ALL.iter();
    let names = names.map(|table| format!("{}.parquet", table.as_ref()));
    let files = NewTables::create(directory, names, &invoker, config.force)?;
    let mut tables = TraceTables::new(files.handles()?)?;
    let traces = analyze::with_summaries(&config.traces);
    let progress = ReadProgress::new(&traces);
    let mut distinct = DistinctTraces::default();
    let (mut stated, mut failures) = (Vec::new(), Vec::new());
    for path in &traces {
        let items = TraceItems::open(path).and_then(|items| {
            distinct.add(path, items.summary())?;
            Ok(items)
        });
        match items {
            Ok(items) => {
                stated.extend(items.summary().map(|header| header.world_size));
                failures.extend(read(items, &mut tables, &progress)?);
            }
            Err(error) => failures.push(error),
        }
    }
    progress.finish();
    let missing = analyze::missing_ranks(&stated, &tables.ranks().collect());
    if !tables.has_evidence() {
        return Err(analyze::all_failed(failures));
    }
    tables.finish()?;
    files.persist()?;
    // Failures of some ranks are no error: a query may be on them.
    for error in failures.iter().chain(&missing) {
        print::message(text::chain(error));
    }
    Ok(u8::from(!failures.is_empty()))
}

/// Reads one trace into the tables. Returns why it could not be read to its end; the part before is in the tables.
///
/// # Errors
/// A table cannot be written.
fn read(
    items: TraceItems,
    tables: &mut TraceTables<File>,
    progress: &ReadProgress,
) -> Result<Option<anyhow::Error>, TableError> {
    let name = items.name().to_owned();
    tables.begin_trace(&name);
    let (ending, failure) = items.each(&mut progress.trace(), |item| tables.add(item))?;
    let failure = match failure {
        None if !tables.has_evidence() => Some(analyze::no_evidence(&name, &ending)),
        failure => failure,
    };
    tables.end_trace(ending, failure.as_ref().map(ToString::to_string))?;
    Ok(failure)
}
