//! A progress bar for traces that take a while.

use crate::print;
use crate::print::clean;
use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;
use std::time::Duration;
use std::time::Instant;

/// Delay before the bar appears.
const DELAY: Duration = Duration::from_secs(1);

/// Shows the progress of the current trace on a terminal, after [`DELAY`].
pub(crate) struct ReadProgress {
    start: Instant,
    enabled: bool,
    traces: usize,
    number: usize,
    name: String,
    size: Option<u64>,
    bar: Option<ProgressBar>,
}

impl ReadProgress {
    /// Progress over this number of traces.
    pub(crate) fn new(traces: usize) -> Self {
        Self {
            start: Instant::now(),
            enabled: print::errors_on_terminal(),
            traces,
            number: 0,
            name: String::new(),
            size: None,
            bar: None,
        }
    }

    /// Starts the next trace; `size` in bytes, if known.
    pub(crate) fn begin(&mut self, name: &str, size: Option<u64>) {
        self.finish();
        self.number += 1;
        self.name = match self.traces {
            1 => name.to_owned(),
            all => format!("{}/{all} {name}", self.number),
        };
        self.size = size;
    }

    /// Updates the bar: `consumed` bytes of the trace have been read.
    pub(crate) fn update(&mut self, consumed: u64) {
        if !self.enabled || self.start.elapsed() < DELAY {
            return;
        }
        let (size, name) = (self.size, &self.name);
        let bar = self.bar.get_or_insert_with(|| bar(size, name));
        bar.set_position(consumed);
    }

    /// Removes the bar from the terminal, if it is shown.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
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
