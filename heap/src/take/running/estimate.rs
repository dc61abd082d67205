//! How long a program will be stopped, at most: the work of the stop is rehearsed while the program runs.

use super::RunningHeap;
use super::stopped::COPY_LIMIT;
use crate::HeapError;
use crate::take::collector;
use crate::take::limits::{CpuBudget, Exceeded};
use crate::take::regions::Regions;
use crate::take::stop::be_urgent;
use crate::take::tables::copy_tables;
use crate::take::watchdog::LIMIT_MS;
use std::time::{Duration, Instant};

/// How much more CPU time the work may take than in the rehearsal.
const MARGIN: f64 = 1.5;
/// How much longer the work may take if other programs run: they share the CPUs differently each time.
const SHARE_MARGIN: f64 = 3.0;
/// Time of stopping itself.
const STOP_COST: Duration = Duration::from_millis(5);
/// How long a thread that becomes runnable waits for each that is runnable already: the time slice
/// (`base_slice_ns`, kernel/sched/fair.c, 6.6 and later: 2.8 ms with 2 to 3 CPUs, 3.5 with 4 to 7).
const SLICE: Duration = Duration::from_millis(4);

impl RunningHeap {
    /// How long the program will be stopped, at most (predicted): from a rehearsal while it runs, and
    /// from how many threads of this machine want to run. That includes the time until its threads run
    /// again. No longer than the watchdog allows.
    ///
    /// # Errors
    /// The process is gone, or it would be stopped for longer than it may be.
    pub fn longest_stop(&mut self) -> Result<Duration, HeapError> {
        let rehearsal = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .spawn_scoped(scope, || self.rehearse())
                .map_err(|source| HeapError::Thread { source })?;
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        let watchdog = Duration::from_millis(u64::from(LIMIT_MS.unsigned_abs()));
        Ok(rehearsal.longest(waiting_threads()).min(watchdog))
    }

    /// Does the work of the stop while the program runs, with this thread's usual priority.
    fn rehearse(&mut self) -> Result<Rehearsal, HeapError> {
        let begun = Stopwatch::start();
        let mut spared = Took::default();
        if let Some(state) = self.state {
            // Time on the CPU counts, and may be short.
            let patience = begun.wall + COPY_LIMIT * 8;
            self.image.reopen(self.pid, Regions::of(self.pid)?, Some(patience));
            self.image.refresh();
            let known = self.image.blocks();
            let tracked = collector::tracked(&mut self.image, &self.layout, &state);
            let tracked = tracked.unwrap_or_else(|| {
                // The program changes its lists: both ways, and with a look whether each object is new,
                // it takes more than twice as long as while the program is stopped.
                let begun = Stopwatch::start();
                let all = collector::tracked_roughly(&mut self.image, &self.layout, &state);
                let Took { cpu, wall } = begun.took();
                spared = Took { cpu: cpu / 2, wall: wall / 2 };
                all
            });
            copy_tables(&mut self.image, &self.layout, &tracked, known);
        }
        let took = begun.took();
        let rehearsal = Rehearsal {
            cpu: took.cpu.saturating_sub(spared.cpu),
            wall: took.wall.saturating_sub(spared.wall),
            is_urgent: be_urgent(),
        };
        let exceeded = self.image.exceeded();
        let is_late = rehearsal.without_margins() > COPY_LIMIT;
        self.within_limits(exceeded.or(is_late.then_some(Exceeded::Time)))?;
        Ok(rehearsal)
    }
}

/// Time of the rehearsal.
struct Rehearsal {
    cpu: Duration,
    wall: Duration,
    /// Whether the thread that stops the program runs before all others.
    is_urgent: bool,
}

impl Rehearsal {
    fn without_margins(&self) -> Duration {
        if self.is_urgent { self.cpu } else { self.wall }
    }

    /// `waiting`: threads that want to run and cannot, for each CPU.
    fn longest(&self, waiting: f64) -> Duration {
        let cpu = self.cpu.mul_f64(MARGIN);
        let copying = if self.is_urgent {
            cpu
        } else {
            cpu.mul_f64(1.0 + waiting).max(self.wall.mul_f64(SHARE_MARGIN))
        };
        STOP_COST + copying + SLICE.mul_f64(2.0 * waiting)
    }
}

/// Threads that are runnable, for each CPU, in addition to one: now, or on average over the last
/// minute if that is more (proc_loadavg(5)).
fn waiting_threads() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut fields = text.split_ascii_whitespace();
    let average: f64 = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let now = fields.nth(2).and_then(|field| field.split('/').next()?.parse().ok());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (average.max(now.unwrap_or(0.0)) / cpus as f64 - 1.0).max(0.0)
}

/// Time that passes, and CPU time of this thread.
struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

#[derive(Default)]
struct Took {
    cpu: Duration,
    wall: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        Self { wall: Instant::now(), cpu: CpuBudget::now() }
    }

    fn took(&self) -> Took {
        Took { cpu: CpuBudget::now().saturating_sub(self.cpu), wall: self.wall.elapsed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_threads_make_a_stop_longer() {
        let ms = Duration::from_millis;
        let longest = |wall, is_urgent, waiting| {
            Rehearsal { cpu: ms(100), wall: ms(wall), is_urgent }.longest(waiting)
        };
        assert_eq!(longest(100, true, 0.0), ms(155));
        assert_eq!(longest(700, true, 5.0), ms(195));
        assert_eq!(longest(100, false, 0.0), ms(305));
        assert_eq!(longest(200, false, 5.0), ms(945));
        assert_eq!(longest(700, false, 5.0), ms(2145));
        assert!(waiting_threads() >= 0.0);
    }
}
