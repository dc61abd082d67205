//! Traces, their summaries, and tables of `gctrace export --format parquet`, as tables of one session
//! of DataFusion.
//!
//! Owns that every trace is in them exactly once, and that numbers of traces and jobs, which each
//! directory counts from 0, differ between directories.

use crate::gctrace::Gctrace;
use crate::place::Place;
use anyhow::{Context as _, Result};
use datafusion::arrow::array::AsArray as _;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::ViewTable;
use datafusion::logical_expr::{LogicalPlan, Union};
use datafusion::prelude::{ParquetReadOptions, SessionContext, cast, col, lit};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// The tables of `gctrace.tables/1`, one file each in a directory.
const TABLES: [&str; 10] = [
    "ranks",
    "pauses",
    "gpu_ops",
    "calls",
    "collectives",
    "steps",
    "frames",
    "annotations",
    "garbage",
    "layers",
];
/// File by which a directory of tables is recognized: it is written last where files are not written
/// together.
const RANKS: &str = "ranks.parquet";
/// Ends of the names of traces.
const TRACES: [&str; 3] = [".json", ".json.gz", ".json.zst"];
/// End of the name of a summary (`gctrace_event::summary`).
const SUMMARY: &str = ".gcsum";
/// Columns that each directory counts from 0.
const COUNTED: [&str; 2] = ["trace", "job"];

/// What a query reads.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// Directories with tables.
    pub(crate) directories: Vec<Place>,
    /// Traces.
    pub(crate) traces: Vec<Place>,
    /// Summaries of traces.
    pub(crate) summaries: Vec<Place>,
}

impl Inputs {
    /// Looks for them at these places, in directories also below.
    ///
    /// # Errors
    /// A place cannot be read, has none, or is there twice.
    pub(crate) async fn find(places: &[Place]) -> Result<Self> {
        let mut inputs = Self::default();
        for place in places {
            let before = inputs.all().count();
            for file in place.files().await? {
                if file.name() == RANKS {
                    inputs.directories.push(file.parent());
                } else if TRACES.iter().any(|end| file.name().ends_with(end)) {
                    inputs.traces.push(file);
                } else if file.name().ends_with(SUMMARY) {
                    inputs.summaries.push(file);
                }
            }
            anyhow::ensure!(
                inputs.all().count() > before,
                "{place}: neither a trace (.json, .json.gz, .json.zst) nor a summary (.gcsum), nor a directory \
                 with them or with the tables of gctrace export --format parquet"
            );
        }
        let mut seen = BTreeSet::new();
        for place in inputs.all() {
            anyhow::ensure!(
                seen.insert(place.to_string()),
                "{place}: named twice, its figures would be doubled: name it once"
            );
        }
        Ok(inputs)
    }

    fn all(&self) -> impl Iterator<Item = &Place> {
        let files = self.traces.iter().chain(&self.summaries);
        self.directories.iter().chain(files)
    }
}

/// Makes the tables that a query names available in the session. Tables of traces and summaries are
/// written into `scratch`, which must outlive the query.
///
/// # Errors
/// An input cannot be read, or a trace is in several.
pub(crate) async fn register(
    context: &SessionContext,
    inputs: &Inputs,
    sql: &str,
    gctrace: &Gctrace,
    scratch: &Path,
) -> Result<()> {
    let state = context.state();
    let statement = state.sql_to_statement(sql, &state.config().options().sql_parser.dialect)?;
    let named = state.resolve_table_references(&statement)?;
    let named: BTreeSet<&str> = named.iter().map(|table| table.table()).collect();

    let mut directories = inputs.directories.clone();
    let files: Vec<&Place> = inputs.traces.iter().chain(&inputs.summaries).collect();
    if !files.is_empty() {
        directories.push(export(&files, gctrace, scratch).await?);
    }
    for directory in &directories {
        context.register_object_store(directory.root(), directory.store());
    }
    let firsts = firsts(context, &directories).await?;
    for table in TABLES.into_iter().filter(|table| named.contains(table)) {
        let mut parts = Vec::with_capacity(directories.len());
        for (directory, first) in directories.iter().zip(&firsts) {
            let rows = read(context, directory, table).await?;
            parts.push(Arc::new(renumbered(rows, first)?));
        }
        let whole = match parts.as_slice() {
            [one] => LogicalPlan::clone(one),
            _ => LogicalPlan::Union(Union::try_new_by_name(parts)?),
        };
        let view = ViewTable::new(whole, None);
        context.register_table(table, Arc::new(view))?;
    }
    Ok(())
}

/// The tables of all these traces and summaries, as `gctrace export` writes them.
async fn export(files: &[&Place], gctrace: &Gctrace, scratch: &Path) -> Result<Place> {
    let mut arguments: Vec<OsString> =
        ["export", "--format", "parquet", "-o"].map(OsString::from).into();
    let tables = scratch.join("tables");
    arguments.push(tables.clone().into());
    for file in files {
        arguments.push(file.local_copy(scratch).await?.into());
    }
    let messages = gctrace.run(scratch, arguments).await?;
    messages.lines().for_each(crate::message);
    let tables = tables.to_str().context("the temporary directory is not UTF-8")?;
    Place::parse(tables)
}

/// A table of one directory.
async fn read(context: &SessionContext, directory: &Place, table: &str) -> Result<DataFrame> {
    let file = directory.child(&format!("{table}.parquet"))?;
    let url = file.url();
    let rows = context.read_parquet(url.as_str(), ParquetReadOptions::default());
    rows.await.with_context(|| format!("{file}: cannot be read"))
}

/// The number that the first trace and the first job of each directory get.
///
/// # Errors
/// A process is in two traces: every figure of it would be counted twice.
async fn firsts(context: &SessionContext, directories: &[Place]) -> Result<Vec<[i64; 2]>> {
    let mut firsts = Vec::with_capacity(directories.len());
    let mut next = [0, 0];
    let mut seen: BTreeMap<String, (&Place, i64)> = BTreeMap::new();
    for directory in directories {
        firsts.push(next);
        let mut last = [-1, -1];
        for (trace, job, process) in processes(context, directory).await? {
            last = [last[0].max(trace), last[1].max(job.unwrap_or(-1))];
            let Some(process) = process else { continue };
            let place = (directory, trace);
            let known = seen.entry(process.clone()).or_insert(place);
            anyhow::ensure!(
                known.1 == trace && known.0.to_string() == directory.to_string(),
                "{process} is in trace {} of {} and in trace {trace} of {directory}: its figures \
                 would be doubled; name one of them",
                known.1,
                known.0
            );
        }
        next = [next[0] + last[0] + 1, next[1] + last[1] + 1];
    }
    Ok(firsts)
}

/// Trace, job and name of each row of `ranks`. The name is the same in other tables of
/// the trace; `None` without the time of its start, as two processes could then have the same.
async fn processes(
    context: &SessionContext,
    directory: &Place,
) -> Result<Vec<(i64, Option<i64>, Option<String>)>> {
    let number = |name| cast(col(name), DataType::Int64);
    let text = |name| cast(col(name), DataType::Utf8);
    let columns = ["trace", "job", "pid", "start_ns"].map(number).into_iter();
    let columns = columns.chain(["file", "host"].map(text));
    let rows = read(context, directory, "ranks").await?;
    let batches = rows.select(columns.collect::<Vec<_>>())?.collect().await;
    let batches = batches.with_context(|| format!("{directory}: cannot be read"))?;
    let mut processes = Vec::new();
    for batch in &batches {
        let numbers = |at: usize| batch.column(at).as_primitive::<Int64Type>().iter();
        let texts = |at: usize| batch.column(at).as_string::<i32>().iter();
        let names = numbers(2).zip(numbers(3)).zip(texts(4).zip(texts(5)));
        for (name, (trace, job)) in names.zip(numbers(0).zip(numbers(1))) {
            let ((pid, start), (file, host)) = name;
            let file = file.and_then(|file| file.rsplit('/').next()).unwrap_or_default();
            let name = pid.zip(start).map(|(pid, start)| {
                let host = host.map(|host| format!(" on {host}")).unwrap_or_default();
                format!("process {pid} of {file}{host}, recorded from {start} ns on,")
            });
            processes.push((trace.unwrap_or_default(), job, name));
        }
    }
    Ok(processes)
}

/// The rows with numbers of traces and jobs that no other directory has.
fn renumbered(rows: DataFrame, first: &[i64; 2]) -> Result<LogicalPlan> {
    let mut rows = rows;
    for (name, first) in COUNTED.into_iter().zip(first) {
        if *first != 0 && rows.schema().has_column_with_unqualified_name(name) {
            rows = rows.with_column(name, col(name) + lit(*first))?;
        }
    }
    Ok(rows.into_unoptimized_plan())
}
