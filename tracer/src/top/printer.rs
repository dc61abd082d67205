//! The thread that prints snapshots to standard output, once per interval.
//!
//! Owns the deadlines, and the end if the reader is gone. `lines.rs` formats the snapshots. A thread
//! of its own, so that a reader that blocks does not block the recording.

use crate::args::OutputFormat;
use crate::clock::{monotonic_ns, nanoseconds};
use crate::record::CommandSupervisor;
use crate::top::lines::{JsonOutput, LineOutput};
use crate::top::live_handle::{LiveHandle, LivePhase, UserCommand};
use crate::{print, wait};
use gctrace_analysis::live::{SETTLE_NS, Snapshot, SnapshotRequest};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Polling interval for the end of the printer.
const POLL_INTERVAL_MS: u8 = 20;

/// Intervals are multiples of this (`gctrace_analysis::live::SnapshotRequest`).
const GRAIN_NS: u64 = 100_000_000;

/// The thread that prints a snapshot per interval.
pub(super) struct Printer {
    thread: JoinHandle<()>,
}

impl Printer {
    /// Starts printing every `interval`, `iterations` times if given.
    pub(super) fn start(
        shared: Arc<LiveHandle>,
        form: OutputFormat,
        interval: Duration,
        iterations: Option<u64>,
    ) -> io::Result<Self> {
        let printing = PrintJob {
            shared,
            writer: match form {
                OutputFormat::Text => PrintWriter::Lines(LineOutput::new(print::on_terminal())),
                OutputFormat::Json => PrintWriter::Json(JsonOutput::default()),
            },
            clock: Deadlines::new(monotonic_ns(), nanoseconds(interval)),
            left: iterations,
        };
        let thread =
            std::thread::Builder::new().name("printer".to_owned()).spawn(move || printing.run())?;
        Ok(Self { thread })
    }

    /// Whether the thread is still running.
    pub(super) fn is_on(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits until the final state is printed after the end of the recording, or a signal arrives.
    pub(super) fn finish(self, command: &mut CommandSupervisor) -> anyhow::Result<()> {
        self.thread.thread().unpark();
        while self.is_on() {
            let waited = wait::readable([command.as_fd()], POLL_INTERVAL_MS);
            if waited.is_ok_and(|ready| ready) && command.was_told_to_end()? {
                break;
            }
        }
        Ok(())
    }
}

struct PrintJob {
    shared: Arc<LiveHandle>,
    writer: PrintWriter,
    clock: Deadlines,
    left: Option<u64>,
}

enum PrintWriter {
    Lines(LineOutput),
    Json(JsonOutput),
}

impl PrintJob {
    fn run(mut self) {
        if let Err(error) = self.print_all()
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            tracing::error!("cannot print to standard output: {error}");
        }
        self.shared.submit(UserCommand::Quit);
    }

    /// Prints until the recording ends or all iterations are done.
    fn print_all(&mut self) -> io::Result<()> {
        while self.left != Some(0) {
            let has_ended = self.wait();
            let now_ns = monotonic_ns();
            // Once the recording is over, everything has been read.
            let (until_ns, interval_ns) =
                if has_ended { self.clock.last(now_ns) } else { self.clock.passed(now_ns) };
            let snapshot = self.shared.live().snapshot(&SnapshotRequest {
                now_ns: until_ns,
                interval_ns,
                detail: self.writer.detail(),
            });
            let text = self.writer.text(&at(snapshot, now_ns))?;
            print::exactly(|out| out.write_all(&text))?;
            if has_ended {
                break;
            }
            self.left = self.left.map(|left| left - 1);
        }
        Ok(())
    }

    /// Sleeps until the next deadline. Returns whether the recording ended before it.
    fn wait(&self) -> bool {
        loop {
            if let LivePhase::Ended(_) = self.shared.phase() {
                return true;
            }
            match self.clock.next_ns().checked_sub(monotonic_ns()) {
                None | Some(0) => return false,
                Some(rest_ns) => std::thread::park_timeout(Duration::from_nanos(rest_ns)),
            }
        }
    }
}

/// Sets the time of a snapshot to `now_ns`, if it was requested for another time.
fn at(mut snapshot: Snapshot, now_ns: u64) -> Snapshot {
    let taken_ns = std::mem::replace(&mut snapshot.at_ns, now_ns);
    snapshot.at_unix_ns = snapshot.at_unix_ns + now_ns - taken_ns;
    snapshot
}

impl PrintWriter {
    fn detail(&self) -> Option<u32> {
        match self {
            Self::Lines(lines) => lines.busiest(),
            Self::Json(_) => None,
        }
    }

    fn text(&mut self, snapshot: &Snapshot) -> io::Result<Vec<u8>> {
        match self {
            Self::Lines(lines) => Ok(lines.text(snapshot).into_bytes()),
            Self::Json(json) => json.text(snapshot),
        }
    }
}

/// Deadlines of snapshots: intervals have no gaps or overlaps, however late each is printed.
#[derive(Debug)]
struct Deadlines {
    interval_ns: u64,
    /// End of the last printed interval.
    last_ns: u64,
}

impl Deadlines {
    /// The first interval starts at `start_ns`; [`SETTLE_NS`] after its end all of it has been read.
    fn new(start_ns: u64, interval_ns: u64) -> Self {
        Self { interval_ns, last_ns: start_ns + SETTLE_NS }
    }

    fn next_ns(&self) -> u64 {
        self.last_ns + self.interval_ns
    }

    /// The last deadline that has passed, and the time since the previous one: several intervals if
    /// printing was delayed.
    fn passed(&mut self, now_ns: u64) -> (u64, u64) {
        debug_assert!(now_ns >= self.next_ns(), "invariant: the deadline has passed");
        let since_ns = (now_ns - self.last_ns) / self.interval_ns * self.interval_ns;
        self.last_ns += since_ns;
        (self.last_ns, since_ns)
    }

    /// End and length of the final interval. No settling time is needed.
    fn last(&self, now_ns: u64) -> (u64, u64) {
        let start_ns = (self.last_ns - SETTLE_NS) / GRAIN_NS * GRAIN_NS;
        let end_ns = now_ns.next_multiple_of(GRAIN_NS);
        (end_ns + SETTLE_NS, end_ns - start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_follow_each_other() {
        let mut clock = Deadlines::new(1000, 500);
        let start = 1000 + SETTLE_NS;
        assert_eq!(clock.next_ns(), start + 500);
        assert_eq!(clock.passed(start + 501), (start + 500, 500));
        assert_eq!(clock.next_ns(), start + 1000);
        // Delayed by two intervals.
        assert_eq!(clock.passed(start + 2100), (start + 2000, 1500));
    }

    #[test]
    fn the_rest_is_up_to_the_end() {
        let mut clock = Deadlines::new(40 * GRAIN_NS + 7, 5 * GRAIN_NS);
        let _ = clock.passed(clock.next_ns());
        let end_ns = 48 * GRAIN_NS;
        let rest = (end_ns + SETTLE_NS, 3 * GRAIN_NS);
        assert_eq!(clock.last(end_ns - 1), rest);
        assert_eq!(clock.last(end_ns), rest);
    }
}
