//! Reading traces for a page.

use super::read_all_into;
use crate::render::PAUSES_DRAWN;
use gctrace_analysis::Analysis;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Pauses that are kept of each trace one by one, however many there are.
const LEAST_KEPT: usize = 100;

/// Like [`read_all`](super::read_all), with pauses one by one.
///
/// # Errors
/// As there.
pub(crate) fn read_for_page(
    traces: &[PathBuf],
    jobs: Option<NonZeroUsize>,
) -> anyhow::Result<(Analysis, u8)> {
    let kept = (PAUSES_DRAWN / traces.len().max(1)).max(LEAST_KEPT);
    read_all_into(traces, jobs, &|| Analysis::keeping_pauses(kept))
}

/// Whether a file with this name is a page.
pub(crate) fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "html")
}
