//! `gctrace summarize` on many machines: one call of a function per trace, in a plan of Ballista.
//!
//! Owns the function, the plan and the check of its result. The only leaf of the plan is a table in
//! memory, which Ballista divides among tasks; a leaf of our own would be read whole by each of them
//! (docs/adr/0005).

use crate::gctrace::Gctrace;
use crate::place::Place;
use anyhow::{Context as _, Result};
use ballista::prelude::{SessionConfigExt as _, SessionContextExt as _};
use ballista_core::serde::BallistaLogicalExtensionCodec;
use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, AsArray as _, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{TableReference, exec_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{
    ColumnarValue, Extension, LogicalPlan, ScalarUDF, Volatility, create_udf,
};
use datafusion::prelude::{SessionConfig, SessionContext, col};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Columns of the table of the plan: a trace and the directory of its summary, as text.
const COLUMNS: [&str; 2] = ["trace", "directory"];
/// Tasks of a plan, at most: each costs 50 ms, and a task that is lost is done again whole.
const TASKS: usize = 1_024;

/// Has the traces summarized into `directory`, by the executors of `scheduler`.
///
/// # Errors
/// The scheduler is not reached or gives up, a trace cannot be summarized, or the result does not have
/// every trace exactly once.
pub(crate) async fn summarize(scheduler: &str, traces: &[Place], directory: &Place) -> Result<()> {
    anyhow::ensure!(
        scheduler.starts_with("ballista://"),
        "{scheduler}: not an address of a scheduler: ballista://HOST:PORT"
    );
    let parts = traces.chunks(traces.len().div_ceil(TASKS).max(1));
    let parts: Vec<Vec<RecordBatch>> =
        parts.map(|part| Ok(vec![batch(part, directory)?])).collect::<Result<_>>()?;
    let config = SessionConfig::new_with_ballista()
        .with_target_partitions(parts.len().max(1))
        .with_round_robin_repartition(false)
        .with_ballista_logical_extension_codec(Arc::new(TableCodec::default()));
    let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    let context = SessionContext::remote_with_state(scheduler, state).await?;
    context.register_table("traces", Arc::new(MemTable::try_new(schema(), parts)?))?;
    let call = function(Gctrace::find(None)).call(COLUMNS.map(col).into());
    let rows = context.table("traces").await?;
    let rows = rows.select(vec![col("trace"), call.alias("problem")])?;
    let failed = || format!("{scheduler}: the traces were not summarized");
    let batches = rows.collect().await.with_context(failed)?;
    let mut results = Vec::with_capacity(traces.len());
    for batch in &batches {
        let texts = |at| batch.column(at).as_string_opt::<i32>().context("the result is no text");
        for (trace, problem) in texts(0)?.iter().zip(texts(1)?) {
            results.push((trace.unwrap_or_default(), problem));
        }
    }
    let traces: Vec<String> = traces.iter().map(Place::to_string).collect();
    each_once(&traces, &results)
}

/// # Errors
/// A trace is not in the results, is there more than once, or with a problem; or another trace is.
fn each_once(traces: &[String], results: &[(&str, Option<&str>)]) -> Result<()> {
    let mut counts: BTreeMap<&str, u32> = traces.iter().map(|trace| (&**trace, 0)).collect();
    for (trace, problem) in results {
        if let Some(problem) = problem {
            anyhow::bail!("{problem}; run it again: complete summaries are kept");
        }
        let count = counts.get_mut(trace);
        *count.with_context(|| format!("{trace}: is in the result and was not asked for"))? += 1;
    }
    let wrong: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    if let Some((trace, count)) = wrong.first() {
        anyhow::bail!(
            "{trace}: is in the result {count} times, as {} of {} traces are not once: refused",
            wrong.len(),
            traces.len()
        );
    }
    Ok(())
}

fn schema() -> SchemaRef {
    let fields = COLUMNS.map(|name| Field::new(name, DataType::Utf8, false));
    Arc::new(Schema::new(fields.to_vec()))
}

fn batch(traces: &[Place], directory: &Place) -> Result<RecordBatch> {
    let texts: StringArray = traces.iter().map(|trace| Some(trace.to_string())).collect();
    let directories = StringArray::from(vec![directory.to_string(); traces.len()]);
    let columns: Vec<ArrayRef> = vec![Arc::new(texts), Arc::new(directories)];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// `gctrace_summarize(trace, directory)`: null, or why there is no summary. The only work that an
/// executor does for a plan of ours.
pub(crate) fn function(gctrace: Gctrace) -> ScalarUDF {
    let run = move |arguments: &[ColumnarValue]| {
        let columns = ColumnarValue::values_to_arrays(arguments)?;
        let [traces, directories] = columns.as_slice() else {
            return exec_err!("gctrace_summarize has two arguments");
        };
        let texts = traces.as_string::<i32>().iter().zip(directories.as_string::<i32>());
        let problems = texts.map(|(trace, directory)| {
            let (trace, directory) = (trace.unwrap_or_default(), directory.unwrap_or_default());
            let done = in_own_runtime(|| one(&gctrace, trace, directory));
            done.err().map(|error| format!("{}: {trace}: {error:#}", host()))
        });
        let problems: StringArray = problems.collect();
        Ok(ColumnarValue::Array(Arc::new(problems)))
    };
    // Volatile: neither called while planning nor replaced by an earlier result.
    create_udf(
        "gctrace_summarize",
        vec![DataType::Utf8; COLUMNS.len()],
        DataType::Utf8,
        Volatility::Volatile,
        Arc::new(run),
    )
}

/// Waits for a future in a function that is called by a thread of a runtime.
fn in_own_runtime<F: Future<Output = Result<()>>>(future: impl FnOnce() -> F + Send) -> Result<()> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build()?.block_on(future())
        })?;
        thread.join().unwrap_or_else(|_| anyhow::bail!("a defect of gctrace-cluster"))
    })
}

/// Makes the summary of one trace, unless it is there.
async fn one(gctrace: &Gctrace, trace: &str, directory: &str) -> Result<()> {
    let (trace, directory) = (Place::parse(trace)?, Place::parse(directory)?);
    let scratch = tempfile::Builder::new().prefix("gctrace-").tempdir()?;
    let copy = trace.local_copy(scratch.path()).await?;
    let summarize = |output: std::path::PathBuf| {
        let arguments = ["summarize".into(), copy, "--jobs=1".into(), "-o".into(), output];
        gctrace.run(scratch.path(), arguments)
    };
    if let Some(output) = directory.local() {
        summarize(output).await?;
        return Ok(());
    }
    // gctrace decides whether the summary that is there is one of this trace.
    let summary = directory.child(&summary_name(&trace))?;
    let output = scratch.path().join("summary");
    std::fs::create_dir(&output)?;
    let path = output.join(summary.name());
    let before = summary.read().await?;
    if let Some(bytes) = &before {
        std::fs::write(&path, bytes)?;
    }
    summarize(output).await?;
    let bytes = std::fs::read(&path).with_context(|| format!("{}: is missing", path.display()))?;
    let bytes = Bytes::from(bytes);
    if before.as_ref() != Some(&bytes) {
        summary.write(bytes).await?;
    }
    Ok(())
}

/// Name of the summary that `gctrace summarize` makes of a trace.
pub(crate) fn summary_name(trace: &Place) -> String {
    let path = trace.to_string().replace('%', "%25").replace('/', "%2F");
    format!("{path}.gcsum")
}

/// Name of this machine, for messages that are read on another.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "executor".to_owned(), |name| name.trim().to_owned())
}

/// Sends tables in memory with a plan, a batch per partition; Ballista's own codec refuses them.
#[derive(Debug, Default)]
pub(crate) struct TableCodec(BallistaLogicalExtensionCodec);

impl LogicalExtensionCodec for TableCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[LogicalPlan],
        context: &TaskContext,
    ) -> Result<Extension, DataFusionError> {
        self.0.try_decode(bytes, inputs, context)
    }

    fn try_encode(&self, node: &Extension, bytes: &mut Vec<u8>) -> Result<(), DataFusionError> {
        self.0.try_encode(node, bytes)
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _: &TableReference,
        schema: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        let batches = StreamReader::try_new(bytes, None)?;
        let parts = batches.map(|batch| Ok(vec![batch?]));
        let parts = parts.collect::<Result<Vec<_>, DataFusionError>>()?;
        Ok(Arc::new(MemTable::try_new(schema, parts)?))
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        table: Arc<dyn TableProvider>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), DataFusionError> {
        let Some(table) = (table.as_ref() as &dyn std::any::Any).downcast_ref::<MemTable>() else {
            return exec_err!("{name}: not a table in memory");
        };
        let mut writer = StreamWriter::try_new(bytes, &table.schema())?;
        for part in &table.batches {
            let Ok(batches) = part.try_read() else {
                return exec_err!("{name}: is being written");
            };
            batches.iter().try_for_each(|batch| writer.write(batch))?;
        }
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_each_trace_once() {
        let traces = ["a", "b", "c"].map(str::to_owned);
        let check = |results: &[&str]| {
            let results: Vec<_> = results.iter().map(|trace| (*trace, None)).collect();
            each_once(&traces, &results).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["c", "a", "b"]), Ok(()));
        for (results, problem) in [
            (&["a", "b"][..], "c: is in the result 0 times, as 1 of 3"),
            (&["a", "b", "c", "b"], "b: is in the result 2 times, as 1 of 3"),
            (&[["a", "b", "c"]; 8].concat(), "a: is in the result 8 times, as 3 of 3"),
            (&["a", "b", "c", "d"], "d: is in the result and was not asked for"),
            (&[], "a: is in the result 0 times, as 3 of 3"),
        ] {
            let error = check(results).unwrap_err();
            assert!(error.starts_with(problem), "{results:?}: {error}");
        }
        let failed = each_once(&traces, &[("a", None), ("b", Some("host: b: full"))]);
        assert!(failed.unwrap_err().to_string().starts_with("host: b: full"));
    }

    #[test]
    fn a_table_is_sent_with_its_partitions() {
        let places = ["/a", "s3://b/c", "/d"].map(|text| Place::parse(text).unwrap());
        let parts = places.chunks(2).map(|part| vec![batch(part, &places[1]).unwrap()]);
        let parts: Vec<_> = parts.collect();
        let table: Arc<dyn TableProvider> =
            Arc::new(MemTable::try_new(schema(), parts.clone()).unwrap());
        let (codec, name) = (TableCodec::default(), TableReference::bare("traces"));
        let mut bytes = Vec::new();
        codec.try_encode_table_provider(&name, table, &mut bytes).unwrap();
        let context = TaskContext::default();
        let decoded = codec.try_decode_table_provider(&bytes, &name, schema(), &context).unwrap();
        let decoded = (decoded.as_ref() as &dyn std::any::Any).downcast_ref::<MemTable>().unwrap();
        let found = decoded.batches.iter().map(|part| part.try_read().unwrap().clone());
        assert_eq!(found.collect::<Vec<_>>(), parts);
        let cut = bytes.len() / 2;
        for damaged in [&bytes[..cut], b"", b"no table"] {
            let _ = codec.try_decode_table_provider(damaged, &name, schema(), &context);
        }
    }
}
