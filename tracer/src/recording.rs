//! `gctrace record`: records, then prints the verdict on the trace and summarizes it.

use crate::args::{RecordConfig, SummarizeArgs, Verbosity};
use crate::text::{chain, shell_line};
use crate::{analyze, print, record, summarize};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Records as configured and returns gctrace's exit code.
///
/// # Errors
/// As of [`record::run`].
pub(crate) fn run(config: &RecordConfig) -> anyhow::Result<u8> {
    run_to_trace(config).map(|(code, _)| code)
}

/// Records as configured. Returns gctrace's exit code, and the trace, if there is one.
///
/// # Errors
/// As of [`record::run`].
pub(crate) fn run_to_trace(config: &RecordConfig) -> anyhow::Result<(u8, Option<PathBuf>)> {
    record::run(config, |trace| {
        if config.verbosity > Verbosity::Quiet {
            analyze::verdict(trace).iter().for_each(print::message);
            print::message(format!("Next: gctrace analyze {}", shell_line(&[trace])));
        }
        if let Some(directory) = &config.summary {
            summarized(trace, directory);
        }
    })
}

/// The exit code is the command's: without a summary there still is the trace.
fn summarized(trace: &Path, directory: &Path) {
    let summarized = summarize::run(&SummarizeArgs {
        traces: vec![trace.to_owned()],
        output: directory.to_owned(),
        shard: None,
        jobs: Some(NonZeroUsize::MIN),
    });
    if let Err(error) = summarized {
        print::message(chain(&error));
    }
}
