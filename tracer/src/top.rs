//! `gctrace top`: what the collector does right now.
//!
//! Owns who does what: this thread records, others show. The figures are `gctrace_analysis::live`, how they are
//! drawn is `top/view/`, printed `top/lines.rs`, served `top/metrics/`.

mod metrics;
mod shared;
