//! The stop of a program: its memory is copied, and it goes on.
//!
//! Everything between the stop and the resumption reads from the image. At the deadline the image ends all reading.

use super::RunningHeap;
use crate::take::collector;
use crate::take::regions::Regions;
use crate::take::stop::{HeapMoment, NOT_THERE, while_stopped};
use crate::take::tables::copy_tables;
use crate::{HeapError, HeapPlace};
use gctrace_cpython::{FoundInterpreter, Memory as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How often a program that turns out to be collecting is stopped, each time for about as long as it
/// takes to stop its threads.
const TRIES: u32 = 100;
/// How long the end of a collection is waited for before each stop, and the time between two polls.
const COLLECTION_LIMIT: Duration = Duration::from_secs(2);
const COLLECTION_POLL: Duration = Duration::from_micros(200);
/// How long the program may be stopped, at once and in all tries; the watchdog's limit is later.
pub(super) const COPY_LIMIT: Duration = Duration::from_millis(1500);

/// Findings from the stop.
pub(super) struct StoppedHeap {
    pub(super) tracked: Vec<(u64, HeapPlace)>,
    pub(super) state: FoundInterpreter,
    /// Ids of all interpreters.
    pub(super) interpreters: Vec<i64>,
    pub(super) is_finalizing: bool,
    pub(super) at_ns: u64,
    pub(super) taken: SystemTime,
    pub(super) stopped: Duration,
}

impl RunningHeap {
    /// Stops the program until it is at the right moment, and copies.
    pub(super) fn stop_and_copy(
        &mut self,
        moment: &HeapMoment<'_>,
    ) -> Result<Option<StoppedHeap>, HeapError> {
        let (mut why, mut tries, mut stopped) = ("", 0, Duration::ZERO);
        while tries < TRIES && stopped < COPY_LIMIT {
            tries += 1;
            let start = Instant::now();
            while moment.is_disturbed(|| self.is_collecting()) && start.elapsed() < COLLECTION_LIMIT
            {
                std::thread::sleep(COLLECTION_POLL);
            }
            let start = Instant::now();
            let found = self.stop_once(moment)?;
            stopped += start.elapsed();
            match found {
                Ok(stopped) => {
                    if let HeapMoment::InCallback(callback) = moment {
                        callback.leave();
                    }
                    return Ok(Some(stopped));
                }
                Err(NOT_THERE) => return Ok(None),
                Err(obstacle) => why = obstacle,
            }
        }
        Err(HeapError::Busy { pid: self.pid, tries, why })
    }

    /// Whether a collection is running now.
    fn is_collecting(&self) -> bool {
        let collecting = self.layout.collector.collecting;
        self.state.is_some_and(|state| {
            let collecting = (&self.memory).int_field(state.collector, collecting);
            collecting.is_some_and(|collecting| collecting != 0)
        })
    }

    /// Stops the program once; the inner error is an obstacle.
    fn stop_once(
        &mut self,
        moment: &HeapMoment<'_>,
    ) -> Result<Result<StoppedHeap, &'static str>, HeapError> {
        let watchdog = Arc::clone(&self.watchdog);
        let (result, stopped) =
            while_stopped(self.pid, &watchdog, |_, start| self.copy(start, moment))?;
        self.within_limits(self.image.exceeded())?;
        result.map(|result| result.map(|heap| StoppedHeap { stopped, ..heap }))
    }

    /// While the program is stopped, since `start`.
    pub(super) fn copy(
        &mut self,
        start: Instant,
        moment: &HeapMoment<'_>,
    ) -> Result<Result<StoppedHeap, &'static str>, HeapError> {
        let regions = Regions::of(self.pid)?;
        let deadline = start + COPY_LIMIT;
        self.image.reopen(self.pid, regions, Some(deadline));
        let at_ns = monotonic_ns();
        let taken = SystemTime::now();
        if let HeapMoment::InCallback(callback) = moment
            && !callback.is_there()
        {
            return Ok(Err(NOT_THERE));
        }
        if moment.is_disturbed(|| self.is_collecting()) {
            return Ok(Err("was within a collection"));
        }
        let known = self.image.blocks();
        self.image.refresh();
        let (state, interpreters) = self.state()?;
        let image = &mut self.image;
        if moment.is_disturbed(|| collector::is_collecting(image, &self.layout, &state)) {
            return Ok(Err("was within a collection"));
        }
        let tracked = collector::tracked(&mut self.image, &self.layout, &state);
        let Some(tracked) = tracked else {
            return Ok(Err("changed its list of objects"));
        };
        copy_tables(&mut self.image, &self.layout, &tracked, known);
        self.copied_collections =
            collector::full_collections(&mut self.image, &self.layout, &state);
        let is_finalizing = collector::is_finalizing(&mut self.image, &self.layout, self.runtime);
        Ok(Ok(StoppedHeap {
            tracked,
            state,
            interpreters,
            is_finalizing,
            at_ns,
            taken,
            stopped: Duration::ZERO,
        }))
    }
}

/// CLOCK_MONOTONIC.
fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let ns = |time: nix::sys::time::TimeSpec| {
        let seconds = u64::try_from(time.tv_sec()).ok()?.checked_mul(1_000_000_000)?;
        seconds.checked_add(u64::try_from(time.tv_nsec()).ok()?)
    };
    now.ok().and_then(ns).unwrap_or(0)
}
