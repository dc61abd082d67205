//! Log messages of gctrace: one line each on standard error, prefixed, as the command shares it.
//!
//! While the full-screen view is shown, messages are buffered ([`divert`]), displayed by the view,
//! and printed after it has ended.

use crate::args::Verbosity;
use crate::print;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, io};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Maximum number of buffered lines; older ones are dropped.
const MAX_LINES: usize = 50;

/// Installs the subscriber, at the level of `verbosity`.
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

/// Lines buffered while a view is shown.
#[derive(Debug, Default)]
struct BufferedLines {
    /// The newest lines, not printed yet.
    lines: VecDeque<String>,
    /// Number of lines that the view has not fetched yet.
    fresh: usize,
    /// Number of older lines that were dropped.
    dropped: u64,
}

static BUFFERED: Mutex<Option<BufferedLines>> = Mutex::new(None);

fn buffered() -> MutexGuard<'static, Option<BufferedLines>> {
    BUFFERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Buffers lines while it exists, and prints them on drop.
#[derive(Debug)]
pub(crate) struct LogBuffering(());

/// Buffers log lines from now on; dropping the result ends that and prints them.
pub(crate) fn divert() -> LogBuffering {
    *buffered() = Some(BufferedLines::default());
    LogBuffering(())
}

/// The lines since the last call, without the prefix; empty if lines are not buffered.
pub(crate) fn fresh() -> Vec<String> {
    let mut guard = buffered();
    let Some(buffer) = guard.as_mut() else {
        return Vec::new();
    };
    let fresh = std::mem::take(&mut buffer.fresh).min(buffer.lines.len());
    let from = buffer.lines.len() - fresh;
    buffer.lines.iter().skip(from).cloned().collect()
}

impl Drop for LogBuffering {
    fn drop(&mut self) {
        let Some(buffer) = buffered().take() else {
            return;
        };
        if buffer.dropped > 0 {
            print::message(format!("{} earlier messages omitted", buffer.dropped));
        }
        for line in buffer.lines {
            print::message(line);
        }
    }
}

impl BufferedLines {
    fn push(&mut self, line: String) {
        if self.lines.len() >= MAX_LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
        self.fresh = (self.fresh + 1).min(MAX_LINES);
    }
}

/// Receives messages, each in one write. Never fails, as tracing-subscriber would print the failure
/// and panic if it cannot.
struct MessageSink;

impl io::Write for MessageSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = buffered();
        match lines.as_mut() {
            Some(buffer) => buffer.push(text.into_owned()),
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

/// Formats only the message.
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
    fn buffered_lines_are_bounded() {
        let mut buffer = BufferedLines::default();
        for number in 0..MAX_LINES + 3 {
            buffer.push(format!("line {number}"));
        }
        assert_eq!((buffer.lines.len(), buffer.dropped, buffer.fresh), (MAX_LINES, 3, MAX_LINES));
        assert_eq!(buffer.lines.back().map(String::as_str), Some("line 52"));
    }
}
