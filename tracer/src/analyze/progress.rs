//! A progress bar for traces that take a while.

use crate::print;
use crate::print::clean;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Delay before the bar appears.
const DELAY: Duration = Duration::from_secs(1);

/// Shows the progress over all traces on a terminal, after [`DELAY`].
pub(crate) struct ReadProgress {
    start: Instant,
    enabled: bool,
    /// Name of the trace being read.
    name: String,
    /// Size of all traces in bytes, if known.
    size: Option<u64>,
    /// Bytes read of all traces.
    consumed: AtomicU64,
    bar: OnceLock<ProgressBar>,
}

/// The part of one trace in the progress.
pub(crate) struct TraceProgress<'a> {
    all: &'a ReadProgress,
    consumed: u64,
}

impl ReadProgress {
    /// Progress over these traces.
    pub(crate) fn new(traces: &[impl AsRef<Path>]) -> Self {
        Self {
            start: Instant::now(),
            enabled: print::errors_on_terminal(),
            name: match traces {
                [only] => only.as_ref().display().to_string(),
                several => format!("{} traces", several.len()),
            },
            size: traces.iter().map(|path| size(path.as_ref())).sum(),
            consumed: AtomicU64::new(0),
            bar: OnceLock::new(),
        }
    }

    /// The progress of one more trace; several may be read at the same time.
    pub(crate) fn trace(&self) -> TraceProgress<'_> {
        TraceProgress { all: self, consumed: 0 }
    }

    /// Removes the bar from the terminal, if it is shown.
    pub(crate) fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

impl TraceProgress<'_> {
    /// Updates the bar: `consumed` bytes of the trace have been read.
    pub(crate) fn update(&mut self, consumed: u64) {
        let all = self.all;
        let more = gctrace_units::beyond(consumed, std::mem::replace(&mut self.consumed, consumed));
        let consumed = all.consumed.fetch_add(more, Ordering::Relaxed) + more;
        if all.enabled && all.start.elapsed() >= DELAY {
            let bar = all.bar.get_or_init(|| bar(all.size, &all.name));
            bar.set_position(consumed);
        }
    }
}

/// Size of a trace in bytes; `None` unless it is a file, also if it does not exist.
fn size(path: &Path) -> Option<u64> {
    match path.metadata() {
        Ok(found) if found.is_file() => Some(found.len()),
        Err(_) if path != Path::new("-") => Some(0),
        _ => None,
    }
}

fn bar(size: Option<u64>, name: &str) -> ProgressBar {
    let template = match size {
        Some(_) => "{msg} {wide_bar} {bytes}/{total_bytes}",
        None => "{msg} {spinner} {bytes} {bytes_per_sec}",
    };
    let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_message(clean::line(name).into_owned())
}
