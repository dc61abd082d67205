//! Which source is used for what.

use crate::args::CudaMode;
use crate::args::RecordConfig;
use crate::launch::LaunchPlan;
use crate::privileges;
use gctrace_ring::Options;
use std::path::PathBuf;

/// Where collections are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collections {
    /// By probes.
    Probes,
    /// From within.
    Injected,
    /// Both.
    Both,
}

/// What a recording uses.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    /// Where collections are seen.
    pub collections: Collections,
    /// `None`: nothing is injected.
    pub injection: Option<Injection>,
    /// What the user should know, a sentence each.
    pub notes: Vec<String>,
}

/// The library, and what it is asked.
#[derive(Clone, Debug)]
pub(crate) struct Injection {
    /// Its file.
    pub library: PathBuf,
    /// What it is asked.
    pub options: Options,
}

/// Decides.
pub(crate) fn decide(
    config: &RecordConfig,
    launch: Option<&LaunchPlan>,
) -> anyhow::Result<Decision> {
    let collections = match std::env::var("GCTRACE_MODE").as_deref() {
        Ok("inject") => Collections::Injected,
        Ok("both") => Collections::Both,
        _ => Collections::Probes,
    };
    if collections != Collections::Injected {
        privileges::require_for_recording()?;
    }
    let cupti_only = std::env::var_os("GCTRACE_CUPTI").is_some();
    let injection =
        (launch.is_some() && (collections != Collections::Probes || cupti_only)).then(|| {
            Injection {
                library: std::env::var_os("GCTRACE_INJECT_LIBRARY")
                    .unwrap_or_default()
                    .into(),
                options: Options {
                    collections: collections != Collections::Probes,
                    stack_depth: config.stack_depth,
                    allocations: config.alloc_budget.is_some(),
                    cuda: config.cuda != CudaMode::Off,
                    only_waits: config.cuda == CudaMode::Sync,
                    yields: false,
                    follow: config.follow,
                },
            }
        });
    Ok(Decision {
        collections,
        injection,
        notes: Vec::new(),
    })
}
