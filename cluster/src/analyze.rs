//! `gctrace-cluster analyze`: traces are summarized on many machines, the report is made on this one.
//!
//! Owns that the report is on exactly the traces that were named.

use crate::gctrace::Gctrace;
use crate::map;
use crate::place::Place;
use crate::secret::SecretArgs;
use crate::tables::Inputs;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead as _, Read as _};
use std::path::Path;

/// Summaries that are fetched at the same time.
const FETCHES: usize = 16;
/// Longest header of a summary, in bytes (`gctrace_event::summary`).
const HEADER_BYTES: u64 = 4 << 20;

/// Has the traces summarized into `summaries` and prints the report of `gctrace analyze`, whose exit
/// code it returns.
///
/// # Errors
/// There is no secret, or not exactly one summary of each trace.
pub(crate) async fn run(
    scheduler: &str,
    secret: &SecretArgs,
    inputs: &[Place],
    summaries: &Place,
    gctrace: &Gctrace,
    options: &[OsString],
) -> Result<u8> {
    let Inputs {
        traces,
        directories,
        // Summaries of an earlier run, in a directory below the traces'.
        summaries: _,
    } = Inputs::find(inputs).await?;
    if let Some(directory) = directories.first() {
        anyhow::bail!("{directory}: has tables; a report is made of traces");
    }
    let names: BTreeSet<String> = traces.iter().map(Place::to_string).collect();
    for input in inputs.iter().map(Place::to_string) {
        let below = format!("{}/", input.trim_end_matches('/'));
        let mut first = names.range(below.clone()..);
        anyhow::ensure!(
            names.contains(&input) || first.next().is_some_and(|name| name.starts_with(&below)),
            "{input}: has summaries and no traces: name the traces, or run gctrace analyze on the summaries"
        );
    }
    let secret = secret.read()?;
    let count = traces.len();
    crate::message(format!("{count} traces are summarized by {scheduler}, into {summaries}"));
    map::summarize(scheduler, &secret, &traces, summaries).await?;

    // In a directory of their own: another may have summaries of other traces, too.
    let scratch = tempfile::Builder::new().prefix("gctrace-").tempdir()?;
    let fetches = traces.iter().map(|trace| fetch(trace, summaries, scratch.path()));
    let fetches = futures::stream::iter(fetches).buffer_unordered(FETCHES);
    fetches.try_collect::<Vec<()>>().await?;
    let mut arguments = vec![OsString::from("analyze"), scratch.path().into()];
    arguments.extend_from_slice(options);
    gctrace.show(arguments).await
}

/// Puts the summary of a trace into `directory`.
///
/// # Errors
/// There is none here, though an executor has written it, or it is of another trace.
async fn fetch(trace: &Place, summaries: &Place, directory: &Path) -> Result<()> {
    let name = map::summary_name(trace);
    let summary = summaries.child(&name)?;
    let missing = || {
        format!(
            "{summary}: is not there, although an executor has made it: name a directory that all \
             machines share, or a bucket"
        )
    };
    let path = directory.join(&name);
    if let Some(shared) = summary.local() {
        anyhow::ensure!(shared.is_file(), missing());
        std::os::unix::fs::symlink(shared, &path)?;
    } else {
        let bytes = summary.read().await?.with_context(missing)?;
        std::fs::write(&path, bytes)?;
    }
    let source = source(&path).with_context(|| format!("{summary}: is no summary"))?;
    anyhow::ensure!(source == trace.to_string(), "{summary}: is of {source}, not of {trace}");
    Ok(())
}

/// The trace that a summary is of, from its first line (`gctrace.summary/12`).
fn source(summary: &Path) -> Result<String> {
    let file = std::fs::File::open(summary)?;
    let mut line = Vec::new();
    std::io::BufReader::new(file.take(HEADER_BYTES)).read_until(b'\n', &mut line)?;
    let header: serde_json::Value = serde_json::from_slice(&line)?;
    let source = header.pointer("/source/file").and_then(|file| file.as_str());
    Ok(source.context("its header names no trace")?.to_owned())
}
