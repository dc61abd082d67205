//! `gctrace export --format parquet`: traces as tables, one file each.
//!
//! Owns the sequence of traces and errors; `gctrace_analysis::tables` has the tables.

use crate::analyze;
use crate::analyze::ReadProgress;
use crate::analyze::TraceProgress;
use crate::args::ExportConfig;
use crate::files::NewTables;
use crate::platform::Invoker;
use crate::print;
use crate::text;
use anyhow::Context as _;
use gctrace_analysis::tables::Table;
use gctrace_analysis::tables::TableError;
use gctrace_analysis::tables::TraceTables;
use gctrace_event::read::EventReader;
use gctrace_event::read::ReadError;
use gctrace_event::read::TraceInput;
use gctrace_event::read::TraceReader;
use std::fs::File;
use std::path::Path;

/// Writes the tables of all traces. Returns the exit code: 0, or 1 if an error kept any trace from
/// being read completely. There are no new files after an error.
///
/// # Errors
/// No directory is named, no trace can be read, or a table cannot be written.
pub(super) fn run(config: &ExportConfig) -> anyhow::Result<u8> {
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
    let names = names.map(|table| format!("{}.parquet", table.name()));
    let files = NewTables::create(directory, names, &invoker, config.force)?;
    let mut tables = TraceTables::new(files.handles()?)?;
    let progress = ReadProgress::new(&config.traces);
    let mut failures = Vec::new();
    for path in &config.traces {
        failures.extend(read(path, &mut tables, &progress)?);
    }
    progress.finish();
    if !tables.has_evidence() {
        return Err(analyze::all_failed(failures));
    }
    tables.finish()?;
    files.persist()?;
    for error in &failures {
        print::message(text::chain(error));
    }
    Ok(u8::from(!failures.is_empty()))
}

/// Reads one trace into the tables. Returns why it could not be read to its end; what was before is
/// in the tables.
///
/// # Errors
/// A table cannot be written.
fn read(
    path: &Path,
    tables: &mut TraceTables<File>,
    progress: &ReadProgress,
) -> Result<Option<anyhow::Error>, TableError> {
    let input = match TraceInput::open(path) {
        Ok(input) => input,
        Err(error) => return Ok(Some(error.into())),
    };
    let name = input.name().to_owned();
    tables.begin_trace(&name);
    let mut reader = TraceReader::new(EventReader::new(input));
    let failure = items(&mut reader, tables, &mut progress.trace())?;
    let ending = reader.finish();
    let failure = match failure {
        Some(error) => Some(error.into()),
        None if tables.has_evidence() => None,
        None => Some(analyze::no_evidence(&name, &ending)),
    };
    tables.end_trace(ending, failure.as_ref().map(ToString::to_string))?;
    Ok(failure)
}

fn items(
    reader: &mut TraceReader,
    tables: &mut TraceTables<File>,
    progress: &mut TraceProgress<'_>,
) -> Result<Option<ReadError>, TableError> {
    /// Items between updates of the progress bar: a few milliseconds.
    const POLL_INTERVAL: u32 = 8192;
    let mut items = 0u32;
    loop {
        match reader.next_item() {
            Ok(Some(item)) => tables.add(item)?,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        }
        items = items.wrapping_add(1);
        if items.is_multiple_of(POLL_INTERVAL) {
            progress.update(reader.events().input().consumed());
        }
    }
}
