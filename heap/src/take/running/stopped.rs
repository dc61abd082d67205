//! What happens while the program is stopped: its memory is copied, and it goes on.
//!
//! Everything between the stop and the resumption reads from the image, which ends all at the deadline.

use super::RunningHeap;
use crate::take::collector;
use crate::take::collector::FoundInterpreter;
use crate::take::regions::Regions;
use crate::take::stop::{HeapMoment, NOT_THERE, StoppedThreads};
use crate::take::tables::copy_tables;
use crate::{HeapError, HeapPlace};
use gctrace_probes::Memory as _;
use std::time::{Duration, Instant, SystemTime};

/// How often a program that turns out to be collecting is stopped, each time for about as long as it
/// takes to stop its threads.
const TRIES: u32 = 100;
/// How long the end of a collection is waited for before each stop, and the time between two polls.
const COLLECTION_LIMIT: Duration = Duration::from_secs(2);
const COLLECTION_POLL: Duration = Duration::from_micros(200);
/// How long threads may take to stop.
const STOP_LIMIT: Duration = Duration::from_millis(500);
/// How long the program may be stopped, at once and in all tries; the watchdog's limit is later.
pub(super) const COPY_LIMIT: Duration = Duration::from_millis(1500);

/// What was found while the program was stopped.
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
            let mut bytes = [0; 4];
            let address = state.collector.wrapping_add(collecting.into());
            self.memory.read(address, &mut bytes).is_ok() && bytes != [0; 4]
        })
    }

    /// One stop; what was in the way, if anything. In a thread of its own, whose end detaches what
    /// could not be detached otherwise.
    fn stop_once(
        &mut self,
        moment: &HeapMoment<'_>,
    ) -> Result<Result<StoppedHeap, &'static str>, HeapError> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .spawn_scoped(scope, || self.stop_in_this_thread(moment))
                .map_err(|source| HeapError::Thread { source })?;
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn stop_in_this_thread(
        &mut self,
        moment: &HeapMoment<'_>,
    ) -> Result<Result<StoppedHeap, &'static str>, HeapError> {
        let pid = self.pid;
        let watchdog = |source| HeapError::Watchdog { pid, source };
        let _is_urgent = be_urgent();
        self.watchdog.arm().map_err(watchdog)?;
        let start = Instant::now();
        let threads = StoppedThreads::stop(pid, start + STOP_LIMIT);
        let result = match &threads {
            Ok(_) => self.copy(start, moment),
            Err(_) => Ok(Err("did not stop")),
        };
        let failed = threads.map(drop);
        let stopped = start.elapsed();
        self.watchdog.disarm().map_err(watchdog)?;
        failed?;
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
        let word = |address| self.image.word(address);
        self.copied_collections = collector::full_collections(word, &self.layout, &state);
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

/// Has this thread run before all that have no deadline, as the stop is as short as it gets to run.
/// Whether that is allowed: to root, and with a second CPU for everybody else, who could wait for
/// the whole stop otherwise. The priority ends with the thread.
pub(super) fn be_urgent() -> bool {
    if !std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        return false;
    }
    // SAFETY: all zeros are a valid sched_param.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: of this thread; `priority` is valid.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
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

#[cfg(test)]
mod tests {
    use super::be_urgent;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    #[test]
    fn on_one_cpu_others_are_not_held_up() {
        let pid = Pid::from_raw(0);
        let is_urgent = std::thread::spawn(move || {
            let all = sched_getaffinity(pid).unwrap();
            let first = (0..CpuSet::count()).find(|cpu| all.is_set(*cpu).unwrap()).unwrap();
            let mut one = CpuSet::new();
            one.set(first).unwrap();
            sched_setaffinity(pid, &one).unwrap();
            be_urgent()
        });
        assert!(!is_urgent.join().unwrap());
    }
}
