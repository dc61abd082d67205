//! Full collections of a command counted from outside, by polling: where the library cannot be loaded.

use super::{HeapWatch, UPDATE_SHARE, options};
use crate::args::TakeHeapArgs;
use crate::clock::own_monotonic_ns;
use crate::units;
use gctrace_heap::{HeapError, HeapGraph, RunningHeap};
use nix::poll::PollTimeout;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Time between two polls of a command in ms: until its Python has started, and then.
const SEARCH_MS: u16 = 10;
const WATCH_MS: u16 = 1;
/// How long a process may run before the reason why its heap cannot be taken is reported.
const PATIENCE: Duration = Duration::from_secs(5);

/// A command with counted full collections.
pub(super) struct PollingWatch<'config> {
    config: &'config TakeHeapArgs,
    at_full: u64,
    heap: Option<RunningHeap>,
    started: Instant,
    /// Full collections at the last poll, `None` before its Python was seen; and the poll's time,
    /// CLOCK_MONOTONIC in ns.
    seen: Option<u64>,
    polled_ns: u64,
    /// When the heap was last read through, and how long that took.
    updated: (Instant, Duration),
}

impl<'config> PollingWatch<'config> {
    pub(super) fn new(config: &'config TakeHeapArgs, at_full: NonZeroU32) -> Self {
        let now = Instant::now();
        Self {
            config,
            at_full: at_full.get().into(),
            heap: None,
            started: now,
            seen: None,
            polled_ns: own_monotonic_ns(),
            updated: (now, Duration::ZERO),
        }
    }

    /// Looks for an interpreter; a process has one some time after its start.
    fn search(&mut self, pid: u32) -> Result<(), HeapError> {
        match RunningHeap::open(pid, options(self.config)) {
            Ok(heap) => {
                self.heap = Some(heap);
                Ok(())
            }
            Err(error @ (HeapError::FreeThreaded { .. } | HeapError::Traced { .. })) => Err(error),
            Err(error @ HeapError::Forbidden { .. }) if self.started.elapsed() > PATIENCE => {
                Err(error)
            }
            Err(_) => Ok(()),
        }
    }
}

impl HeapWatch for PollingWatch<'_> {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn timeout(&self) -> PollTimeout {
        match self.heap {
            Some(_) => WATCH_MS.into(),
            None => SEARCH_MS.into(),
        }
    }

    fn poll(&mut self, pid: Option<u32>) -> anyhow::Result<Option<(HeapGraph, Vec<String>)>> {
        let Some(pid) = pid else { return Ok(None) };
        let Some(heap) = &mut self.heap else {
            self.search(pid)?;
            return Ok(None);
        };
        let Some(count) = heap.full_collections() else {
            // It executes another program, or ends.
            self.heap = None;
            return Ok(None);
        };
        if count >= self.at_full {
            let graph = heap.take()?;
            let late =
                units::duration(gctrace_units::duration_ns(self.polled_ns, graph.header.at_ns));
            let note = format!("taken after full collection {count}, at most {late} after its end");
            return Ok(Some((graph, vec![note])));
        }
        self.polled_ns = own_monotonic_ns();
        let (updated, took) = self.updated;
        let is_newer = matches!(self.seen, Some(seen) if count > seen);
        if is_newer || updated.elapsed() > took * UPDATE_SHARE {
            let start = Instant::now();
            heap.update()?;
            self.updated = (Instant::now(), start.elapsed());
        }
        self.seen = Some(count);
        Ok(None)
    }

    fn report_end(&self) {
        let at_full = self.at_full;
        let what = match self.seen {
            Some(seen) => format!(
                "at least {} of the command's own process had been seen",
                units::counted(seen, "full collection")
            ),
            None => {
                "no Python was seen in the command's own process, where a short program can end \
                     in between"
                    .to_owned()
            }
        };
        tracing::error!(
            "no heap was taken (--at-full {at_full}): {what} by polling; its children are not watched"
        );
    }
}
