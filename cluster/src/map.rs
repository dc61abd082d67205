//! `gctrace summarize` on many machines: one call of a function per trace, in a plan of Ballista.
//!
//! Owns the function and the check of its result; [`plan`] has the plan.

use crate::gctrace::Gctrace;
use crate::place::Place;
use crate::plan;
use crate::plan::{Part, TableCodec};
use crate::secret::Secret;
use anyhow::{Context as _, Result};
use ballista::prelude::{SessionConfigExt as _, SessionContextExt as _};
use bytes::Bytes;
use datafusion::arrow::array::{AsArray as _, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Has the traces summarized into `directory`, by the executors of `scheduler`.
///
/// # Errors
/// The scheduler is not reached, has another secret or gives up, a trace cannot be summarized, or the
/// result does not have
/// every trace exactly once.
pub(crate) async fn summarize(
    scheduler: &str,
    secret: &Secret,
    traces: &[Place],
    directory: &Place,
) -> Result<()> {
    let address = scheduler.strip_prefix("ballista://").with_context(|| {
        format!("{scheduler}: not an address of a scheduler: ballista://HOST:PORT")
    })?;
    // If there is none, Ballista's message says so.
    let _ = secret.reaches(address).await?;
    let row = |trace: &Place| [trace.to_string(), directory.to_string()];
    let parts = traces.chunks(traces.len().div_ceil(plan::TASKS).max(1));
    let parts: Vec<Part> = parts.map(|part| part.iter().map(row).collect()).collect();
    let config = plan::settings(parts.len())
        .with_ballista_use_tls(true)
        .with_ballista_override_create_grpc_client_endpoint(secret.endpoints())
        .with_ballista_logical_extension_codec(Arc::new(TableCodec));
    let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    let context = SessionContext::remote_with_state(scheduler, state).await?;
    let plan = plan::of(&parts, &function(Gctrace::find(None)))?;
    let rows = context.execute_logical_plan(plan).await?;
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

/// `gctrace_summarize(trace, directory)`: null, or why there is no summary. The only work that an
/// executor does for a plan of ours.
pub(crate) fn function(gctrace: Gctrace) -> ScalarUDF {
    let run = move |arguments: &[ColumnarValue]| {
        let columns = ColumnarValue::values_to_arrays(arguments)?;
        let [traces, directories] = columns.as_slice() else {
            return exec_err!("{} has two arguments", plan::FUNCTION);
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
        plan::FUNCTION,
        vec![DataType::Utf8; plan::COLUMNS.len()],
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
    let (trace, directory) = (written(trace)?, written(directory)?);
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

/// A place, from the text that [`summarize`] makes of one.
fn written(text: &str) -> Result<Place> {
    let place = Place::parse(text)?;
    anyhow::ensure!(place.to_string() == text, "{text}: not as a client writes {place}");
    Ok(place)
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
}
