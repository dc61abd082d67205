//! A progress bar for traces that take a while.

use crate::print;
use crate::print::clean;
use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;
use std::time::Duration;
use std::time::Instant;

/// Nobody wants a bar for less.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows how much of the current trace is read, on a terminal, once reading has taken a second.
pub(crate) struct ReadProgress {
    begun: Instant,
    wanted: bool,
    traces: usize,
    number: usize,
    name: String,
    size: Option<u64>,
    bar: Option<ProgressBar>,
}

impl ReadProgress {
    /// For this many traces.
    pub(crate) fn new(traces: usize) -> Self {
        Self {
            begun: Instant::now(),
            wanted: print::errors_on_terminal(),
            traces,
            number: 0,
            name: String::new(),
            size: None,
            bar: None,
        }
    }

    /// Another trace; `size` in bytes, where known.
    pub(crate) fn begin(&mut self, name: &str, size: Option<u64>) {
        self.finish();
        self.number += 1;
        self.name = match self.traces {
            1 => name.to_owned(),
            all => format!("{}/{all} {name}", self.number),
        };
        self.size = size;
    }

    /// `consumed` bytes of it are read.
    pub(crate) fn look(&mut self, consumed: u64) {
        if !self.wanted || self.begun.elapsed() < PATIENCE {
            return;
        }
        let (size, name) = (self.size, &self.name);
        let bar = self.bar.get_or_insert_with(|| bar(size, name));
        bar.set_position(consumed);
    }

    /// Takes the bar off the terminal.
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
