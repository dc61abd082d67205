//! Traces and tables of `gctrace export --format parquet` as tables of one session of DataFusion.
//!
//! Owns that every trace is in them exactly once, and that numbers of traces and jobs, which each
//! directory counts from 0, differ between directories.

use crate::gctrace::Gctrace;
use crate::place::Place;
use anyhow::Context as _;
use anyhow::Result;
use datafusion::arrow::array::AsArray as _;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::ViewTable;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::Union;
use datafusion::prelude::ParquetReadOptions;
use datafusion::prelude::SessionContext;
use datafusion::prelude::cast;
use datafusion::prelude::col;
use datafusion::prelude::lit;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// The tables of `gctrace.tables/1`, one file each in a directory.
const TABLES: [&str; 9] = [
    "ranks",
    "pauses",
    "gpu_ops",
    "calls",
    "collectives",
    "steps",
    "frames",
    "annotations",
    "garbage",
];
/// File by which a directory of tables is recognized: it is written last where files are not written
/// together.
const RANKS: &str = "ranks.parquet";
/// Columns that each directory counts from 0.
const COUNTED: [&str; 2] = ["trace", "job"];

/// What a query reads.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// Directories with tables.
    pub(crate) directories: Vec<Place>,
    /// Traces, by their place as text.
    pub(crate) traces: Vec<Place>,
}

impl Inputs {
    /// Looks for traces and tables at these places, in directories also below.
    ///
    /// # Errors
    /// A place cannot be read, has neither, or is there twice.
    pub(crate) async fn find(places: &[Place]) -> Result<Self> {
        let mut inputs = Self::default();
        for place in places {
            let before = inputs.directories.len() + inputs.traces.len();
            for file in place.files().await? {
                if file.name() == RANKS {
                    inputs.directories.push(file.parent());
                } else if is_trace(file.name()) {
                    inputs.traces.push(file);
                }
            }
            anyhow::ensure!(
                inputs.directories.len() + inputs.traces.len() > before,
                "{place}: neither a trace (.json, .json.gz) nor a directory with them or with the \
                 tables of gctrace export --format parquet"
            );
        }
        let mut seen = BTreeSet::new();
        for place in inputs.directories.iter().chain(&inputs.traces) {
            let is_new = seen.insert(place.to_string());
            anyhow::ensure!(is_new, "{place}: named twice; its figures would be doubled");
        }
        Ok(inputs)
    }
}

/// Whether a file is taken for a trace.
pub(crate) fn is_trace(name: &str) -> bool {
    name.ends_with(".json") || name.ends_with(".json.gz")
}

/// Makes the tables that a query names available in the session. Tables of traces are written into
/// `scratch`, which must outlive the query.
///
/// # Errors
/// A trace or a table cannot be read, or a trace is in several directories.
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
    if !inputs.traces.is_empty() {
        directories.push(export(&inputs.traces, gctrace, scratch).await?);
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

/// The tables of all these traces, as `gctrace export` writes them.
async fn export(traces: &[Place], gctrace: &Gctrace, scratch: &Path) -> Result<Place> {
    let mut arguments: Vec<OsString> = ["export", "--format", "parquet", "-o"]
        .map(OsString::from)
        .into();
    let tables = scratch.join("tables");
    arguments.push(tables.clone().into());
    for trace in traces {
        arguments.push(trace.local_copy(scratch).await?.into());
    }
    gctrace.run(scratch, arguments).await?;
    let tables = tables
        .to_str()
        .context("the temporary directory is not UTF-8")?;
    Place::parse(tables)
}

/// A table of one directory.
async fn read(context: &SessionContext, directory: &Place, table: &str) -> Result<DataFrame> {
    let file = directory.child(&format!("{table}.parquet"))?;
    let url = file.url();
    let rows = context.read_parquet(url.as_str(), ParquetReadOptions::default());
    rows.await
        .with_context(|| format!("{file}: cannot be read"))
}

/// The number that the first trace and the first job of each directory get. Read from `ranks`.
///
/// # Errors
/// A process is in the tables of two directories: every figure of it would be counted twice.
async fn firsts(context: &SessionContext, directories: &[Place]) -> Result<Vec<[i64; 2]>> {
    if directories.len() < 2 {
        return Ok(vec![[0, 0]; directories.len()]);
    }
    let mut firsts = Vec::with_capacity(directories.len());
    let mut next = [0, 0];
    let mut seen: BTreeMap<(String, String, i64, i64), &Place> = BTreeMap::new();
    for directory in directories {
        firsts.push(next);
        let rows = read(context, directory, "ranks").await?;
        let text = |name| cast(col(name), DataType::Utf8);
        let columns = vec![
            col("trace"),
            col("job"),
            text("file"),
            text("host"),
            col("pid"),
            col("start_ns"),
        ];
        let batches = rows.select(columns)?.collect().await;
        let batches = batches.with_context(|| format!("{directory}: cannot be read"))?;
        let mut last = [-1, -1];
        for batch in &batches {
            let numbers = |at: usize| batch.column(at).as_primitive::<Int64Type>();
            let texts = |at: usize| batch.column(at).as_string::<i32>();
            for (at, last) in last.iter_mut().enumerate() {
                *last = numbers(at).iter().flatten().fold(*last, i64::max);
            }
            let keys = numbers(4)
                .iter()
                .zip(numbers(5))
                .zip(texts(2).iter().zip(texts(3)));
            for ((pid, start), (file, host)) in keys {
                // Without a start two processes cannot be told apart.
                let (Some(pid), Some(start)) = (pid, start) else {
                    continue;
                };
                let file = file
                    .unwrap_or_default()
                    .rsplit('/')
                    .next()
                    .unwrap_or_default();
                let key = (
                    file.to_owned(),
                    host.unwrap_or_default().to_owned(),
                    pid,
                    start,
                );
                let what = format!("process {pid} of {file}");
                if let Some(other) = seen
                    .insert(key, directory)
                    .filter(|other| other.to_string() != directory.to_string())
                {
                    anyhow::bail!(
                        "{what} is in the tables of {other} and of {directory}: its figures would be doubled; name one of them"
                    );
                }
            }
        }
        next = [next[0] + last[0] + 1, next[1] + last[1] + 1];
    }
    Ok(firsts)
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
