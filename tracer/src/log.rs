//! What gctrace says about itself: on standard error, which the command shares, a line each, under its name.
//!
//! While a full-screen view is on, such lines would tear it: they are kept ([`divert`]), shown by the view, and
//! printed when it has gone.

use crate::args::Verbosity;
use crate::print;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use tracing::Event;
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::FormatEvent;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::registry::LookupSpan;

/// Lines that are kept while a view is on, the newest.
const KEPT: usize = 50;

/// Starts to say as much as was asked for.
pub(crate) fn start(verbosity: Verbosity) {
    tracing_subscriber::fmt()
        .with_max_level(level(verbosity))
        .with_writer(|| MessageSink)
        .log_internal_errors(false)
        .event_format(MessageFormat)
        .init();
}

fn level(verbosity: Verbosity) -> LevelFilter {
    match verbosity {
        Verbosity::Quiet => LevelFilter::ERROR,
        Verbosity::Normal => LevelFilter::WARN,
        Verbosity::Verbose => LevelFilter::INFO,
        Verbosity::Debug => LevelFilter::DEBUG,
    }
}

/// Lines on their way past a view.
#[derive(Debug, Default)]
struct BufferedLines {
    /// Not printed yet.
    lines: VecDeque<String>,
    /// Those of them that the view has not fetched yet.
    fresh: usize,
    /// Older ones that found no room.
    dropped: u64,
}

static KEPT_LINES: Mutex<Option<BufferedLines>> = Mutex::new(None);

fn kept() -> MutexGuard<'static, Option<BufferedLines>> {
    KEPT_LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as it lives, lines are kept. Dropped, it prints them.
#[derive(Debug)]
pub(crate) struct LogBuffering(());

/// Begins to keep lines.
pub(crate) fn divert() -> LogBuffering {
    *kept() = Some(BufferedLines::default());
    LogBuffering(())
}

/// The lines since the last call, without gctrace's name; none where none are kept.
pub(crate) fn fresh() -> Vec<String> {
    let mut kept = kept();
    let Some(kept) = kept.as_mut() else {
        return Vec::new();
    };
    let fresh = std::mem::take(&mut kept.fresh).min(kept.lines.len());
    let from = kept.lines.len() - fresh;
    kept.lines.iter().skip(from).cloned().collect()
}

impl Drop for LogBuffering {
    fn drop(&mut self) {
        let Some(kept) = kept().take() else {
            return;
        };
        if kept.dropped > 0 {
            print::message(format!("{} earlier lines were shown only", kept.dropped));
        }
        for line in kept.lines {
            print::message(line);
        }
    }
}

impl BufferedLines {
    fn keep(&mut self, line: String) {
        if self.lines.len() >= KEPT {
            self.lines.pop_front();
            self.dropped = self.dropped.saturating_add(1);
        }
        self.lines.push_back(line);
        self.fresh = self.fresh.saturating_add(1).min(KEPT);
    }
}

/// Where messages go: each comes whole. Never fails, for tracing-subscriber would print the failure, and panic
/// where it cannot.
struct MessageSink;

impl io::Write for MessageSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = kept();
        match lines.as_mut() {
            Some(kept) => kept.keep(text.into_owned()),
            None => {
                drop(lines);
                print::message(text);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The message alone.
struct MessageFormat;

impl<S, N> FormatEvent<S, N> for MessageFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        context.field_format().format_fields(writer.by_ref(), event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_lines_are_bounded_and_told_once() {
        let mut kept = BufferedLines::default();
        for number in 0..KEPT + 3 {
            kept.keep(format!("line {number}"));
        }
        assert_eq!(
            (kept.lines.len(), kept.dropped, kept.fresh),
            (KEPT, 3, KEPT)
        );
        assert_eq!(kept.lines.back().map(String::as_str), Some("line 52"));
    }
}
