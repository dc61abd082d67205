//! `gctrace top`: what the collector does right now.
//!
//! Owns who does what: this thread records, others show. The figures are `gctrace_analysis::live`, how they are
//! drawn is `top/view/`, printed `top/lines.rs`, served `top/metrics/`.

mod shared;
mod view;

pub(crate) use shared::Shared;
pub(crate) use view::LEAVE;
pub(crate) use view::raw;

use crate::args::TopConfig;

/// Watches as configured; the exit code of gctrace.
pub(crate) fn run(config: &TopConfig) -> anyhow::Result<u8> {
    crate::record::run(&config.recording)
}
