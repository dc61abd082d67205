//! One recorded process with windows: the addresses of its allocator and its markers, the
//! observations so far, and the cycle of undisturbed readings and a window.

use super::estimate::WindowObservations;
use super::local_rate::WindowSample;
use super::schedule::{LONGEST, WindowSchedule};
use super::steps::MarkerReading;
use super::task_clock::TaskClock;
use crate::clock;
use gctrace_cpython::{CollectorLayout, FrameLayout, current_thread};
use gctrace_ebpf::{AllocationCounts, AllocationProbe, AllocationPrograms, WindowTarget};
use gctrace_event::Allocations as Summary;
use gctrace_probes::progress::{Marker, MarkerKey, MarkerKind, ProgressLayout};
use gctrace_probes::{ProcessMemory, progress};
use gctrace_units::{beyond, duration_ns};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Distances within a burst of readings.
const BURST_GAPS: [Duration; 3] = [
    // Reading the clock interrupts the program.
    Duration::from_micros(30),
    // Much longer than a reading, since the program shares the core meanwhile (measured: a third slower).
    Duration::from_micros(400),
    Duration::from_micros(1500),
];
/// Between two readings in a window: constant, so that a step is seen with the same delay at its
/// start and its end.
const WINDOW_GAP: Duration = Duration::from_micros(120);
/// Longer windows are tried after this many windows without an estimate.
const WINDOWS_TO_LENGTHEN: u64 = 8;
/// A burst counts only if the process ran on a CPU for this share of it.
const RAN: f64 = 0.97;
/// How often the frames are walked in search of markers: until this many walks reached the outermost frame, with the
/// loop of a training run.
const FULL_SCANS: u32 = 4;
const MAX_SCANS: u32 = 40;
/// The moving markers are known after this many bursts.
const BURSTS_TO_MOVE: u32 = 2;
/// If no marker moves after this many tries, a window opens all the same: for sizes and lines.
const PATIENCE: u32 = 5;
/// Maximum number of markers read until then, and from then on.
const MAX_CANDIDATES: usize = 256;
const MAX_MARKERS: usize = 10;
/// Undisturbed readings kept for one window.
const MAX_READINGS: usize = 400;
/// Maximum number of allocations during one reading in a window.
const MAX_HITS_IN_READING: u64 = 200;
/// One of this many allocations takes a stack.
const STACK_EVERY: u32 = 61;
/// Assumed nanoseconds per hit before it is measured, emulated or single-stepped
/// (docs/evidence.md), and its limits on any machine.
const HIT_NS: f64 = 900.0;
const STEPPED_HIT_NS: f64 = 16_000.0;
const MIN_HIT_NS: f64 = 100.0;
const MAX_HIT_NS: f64 = 30_000.0;

/// The constant part: the interpreter.
pub(crate) struct SampledInterpreter {
    pub file: PathBuf,
    pub layout_index: u32,
    pub probes: Vec<AllocationProbe>,
    /// The kernel emulates all probed instructions.
    pub emulated: bool,
    pub layout: CollectorLayout,
    pub frames: FrameLayout,
}

impl SampledInterpreter {
    /// Assumed nanoseconds per hit before it is measured.
    fn assumed_hit_ns(&self) -> f64 {
        if self.emulated { HIT_NS } else { STEPPED_HIT_NS }
    }
}

/// A process with sampled allocations: its markers, its schedule and its observations.
pub(crate) struct SampledProcess {
    pub pid: u32,
    pub runtime: u64,
    pub interpreter: Arc<SampledInterpreter>,
    progress: ProgressLayout,
    memory: ProcessMemory,
    clock: TaskClock,
    schedule: WindowSchedule,
    budget: f64,
    observations: WindowObservations,
    markers: Vec<Marker>,
    /// Markers that advanced in an earlier window.
    known: Vec<Marker>,
    free: Vec<MarkerReading>,
    seen: AllocationCounts,
    windows: u64,
    /// Bursts of readings of these markers.
    bursts: u32,
    /// Searches for markers since the last window.
    fruitless: u32,
    since_ns: u64,
    hit_ns: f64,
    in_windows: (f64, f64),
}

impl SampledProcess {
    pub(crate) fn new(
        pid: u32,
        runtime: u64,
        interpreter: Arc<SampledInterpreter>,
        progress: ProgressLayout,
        memory: ProcessMemory,
        budget: f64,
    ) -> Self {
        let hit_ns = interpreter.assumed_hit_ns();
        Self {
            pid,
            runtime,
            interpreter,
            progress,
            memory,
            clock: TaskClock::new(pid),
            schedule: WindowSchedule::new(budget),
            budget,
            observations: WindowObservations::default(),
            markers: Vec::new(),
            known: Vec::new(),
            free: Vec::new(),
            seen: AllocationCounts::default(),
            windows: 0,
            bursts: 0,
            fruitless: 0,
            since_ns: clock::monotonic_ns(),
            hit_ns,
            in_windows: (0.0, 0.0),
        }
    }

    /// Reads the markers of the undisturbed program; finds them first if there are none.
    pub(crate) fn observe(&mut self) {
        if self.markers.is_empty() {
            self.fruitless += 1;
            self.find_markers();
        }
        if self.free.len() >= MAX_READINGS || self.markers.is_empty() {
            return;
        }
        let (cpu_begin, begin) = (self.clock.now_ns(), Instant::now());
        let mut readings = Vec::new();
        for gap in BURST_GAPS {
            // Sleeps rather than spins: this CPU may share a core with the program's.
            std::thread::sleep(gap);
            let before = begin.elapsed();
            let values = progress::sample(self.pid, &self.markers, &self.progress);
            readings.push((middle(before, begin.elapsed()), values));
        }
        let wall = begin.elapsed().as_nanos() as f64;
        let cpu = duration_ns(cpu_begin, self.clock.now_ns()) as f64;
        if cpu < RAN * wall {
            // It was preempted: only the last reading is known to be timed right.
            readings.drain(..readings.len() - 1);
            readings.iter_mut().for_each(|(at, _)| *at = wall);
        }
        self.bursts += 1;
        self.free.extend(
            readings.into_iter().map(|(at, values)| MarkerReading {
                at: cpu_begin as f64 + at / wall * cpu,
                values,
            }),
        );
        if self.bursts == BURSTS_TO_MOVE {
            self.keep_moving();
        }
    }

    /// Drops markers that do not move: each word that is read takes its cache line from the
    /// program.
    fn keep_moving(&mut self) {
        let moving = |index: usize| {
            let mut values = self.free.iter().filter_map(|reading| reading.value(index));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        // A marker that moved before and does not now is informative too.
        let known = |index: usize| {
            let Some(marker) = self.markers.get(index) else { return false };
            self.known.iter().any(|known| known.key == marker.key)
        };
        let mut markers = kept(&self.markers, |index| moving(index) || known(index));
        // Markers that measured progress before come first; iterators are never set back while they exist, variables
        // may be.
        markers.sort_by_key(|marker| {
            let window_count = self.observations.windows_of(marker.key);
            let variable = marker.key.kind == MarkerKind::Integer;
            (std::cmp::Reverse(window_count), variable)
        });
        markers.truncate(MAX_MARKERS);
        self.markers = markers;
        // The readings that disturbed the program most are not used.
        self.free.clear();
    }

    fn find_markers(&mut self) {
        self.clock.add_threads();
        self.bursts = 0;
        self.free.clear();
        let SampledInterpreter { layout, frames, .. } = &*self.interpreter;
        let memory = &mut &self.memory;
        let found = current_thread(memory, self.runtime, layout, frames);
        self.known.retain(|marker| marker.is_there(memory, &frames.stack));
        let mut markers = self.known.clone();
        if let Some(thread) = found {
            let (mut looks, mut whole) = (0, 0);
            // Frames come and go while they are read: those seen often stay.
            while looks < MAX_SCANS && whole < FULL_SCANS {
                let found = progress::find(self.pid, memory, thread, &frames.stack, &self.progress);
                looks += 1;
                whole += u32::from(found.is_whole);
                for marker in found.markers {
                    if !markers.iter().any(|known| known.key == marker.key) {
                        markers.push(marker);
                    }
                }
            }
        }
        // Local variables are better markers than module variables: most of those are constants.
        markers.sort_by_key(|marker| marker.key.slot >= progress::GLOBALS);
        markers.truncate(MAX_CANDIDATES);
        self.markers = markers;
    }

    pub(crate) fn may_open(&mut self) -> bool {
        let cpu = self.clock.now_ns();
        let ready = self.bursts > BURSTS_TO_MOVE || self.fruitless >= PATIENCE;
        ready && self.schedule.may_open(cpu)
    }

    /// Opens a window, reads hits and markers while it is open, and closes it.
    pub(crate) fn window(
        &mut self,
        allocations: &mut AllocationPrograms,
    ) -> Result<(), gctrace_ebpf::Error> {
        let before = allocations.counts()?;
        let target =
            WindowTarget { pid: self.pid, runtime: self.runtime, stack_every: STACK_EVERY };
        if self.windows == WINDOWS_TO_LENGTHEN * u64::from(self.schedule.length_factor())
            && self.observations.estimate().is_none()
        {
            self.schedule.lengthen();
        }
        let most = self.schedule.hits();
        let interpreter = Arc::clone(&self.interpreter);
        let _hurry = WindowCloser::start();
        let window = allocations.open(
            target,
            interpreter.layout_index,
            &interpreter.file,
            &interpreter.probes,
        )?;
        // Probes work before `open` returns: it takes 10 to 40 ms, and all those hits cost the
        // program time, but no reading belongs to them.
        let (opened, start_ns) = (allocations.counts()?, self.clock.now_ns());
        let readings =
            self.readings_in_window(allocations, opened.hits + opened.foreign_hits, most);
        let cpu_ns = duration_ns(start_ns, self.clock.now_ns());
        let read = allocations.counts()?.hits - opened.hits;
        drop(window);
        let after = allocations.counts()?;
        let readings = readings?;
        self.learn_cost(cpu_ns, &readings);
        let window = WindowSample {
            readings: &readings,
            hits: read,
            cpu_ns: cpu_ns as f64,
            hit_ns: self.observations.hit_ns(),
            assumed_hit_ns: self.interpreter.assumed_hit_ns(),
        };
        self.close(&before, &after, &window);
        Ok(())
    }

    fn readings_in_window(
        &self,
        allocations: &AllocationPrograms,
        before: u64,
        most: u64,
    ) -> Result<Vec<MarkerReading>, gctrace_ebpf::Error> {
        let (opened, mut readings) = (Instant::now(), Vec::new());
        loop {
            let first = allocations.counts()?;
            let values = progress::sample(self.pid, &self.markers, &self.progress);
            let second = allocations.counts()?;
            // A reading with many allocations meanwhile is not precise.
            if second.hits - first.hits <= MAX_HITS_IN_READING {
                let at = (first.hits + second.hits) as f64 / 2.0;
                readings.push(MarkerReading { at, values });
            }
            let hits = beyond(second.hits + second.foreign_hits, before);
            if hits >= most || opened.elapsed() >= LONGEST {
                return Ok(readings);
            }
            std::thread::sleep(WINDOW_GAP);
        }
    }

    /// Estimates the cost of a hit: the time in windows per allocation minus its time outside of
    /// them. While that is unknown, at most the whole of it.
    fn learn_cost(&mut self, cpu_ns: u64, readings: &[MarkerReading]) {
        if let [first, .., last] = readings {
            self.in_windows.0 += cpu_ns as f64;
            self.in_windows.1 += last.at - first.at;
        }
        let (cpu_ns, hits) = self.in_windows;
        if hits < 1000.0 {
            return;
        }
        let inside = cpu_ns / hits;
        let by_marker = || {
            let estimate = self.observations.of_all_windows()?;
            Some(inside - 1e9 / estimate.per_second)
        };
        let cost = self.observations.hit_ns().or_else(by_marker);
        let cost = cost.unwrap_or(inside.min(self.interpreter.assumed_hit_ns()));
        self.hit_ns = cost.clamp(MIN_HIT_NS, MAX_HIT_NS);
    }

    /// Adds the readings of `window` to the observations, and all hits between the counts to the costs.
    fn close(
        &mut self,
        before: &AllocationCounts,
        after: &AllocationCounts,
        window: &WindowSample<'_>,
    ) {
        let keys: Vec<MarkerKey> = self.markers.iter().map(|marker| marker.key).collect();
        let hits = after.hits - before.hits;
        self.observations.add(&keys, &self.free, window);
        self.windows += 1;
        let foreign = after.foreign_hits - before.foreign_hits;
        self.seen.hits += hits;
        self.seen.bytes += beyond(after.bytes, before.bytes);
        let grown = after.classes.iter().zip(&before.classes);
        if self.seen.classes.is_empty() {
            self.seen.classes = after.classes.iter().map(|(size, _)| (*size, 0)).collect();
        }
        for (total, (after, before)) in self.seen.classes.iter_mut().zip(grown) {
            total.1 += after.1 - before.1;
        }
        let cost = (hits + foreign) as f64 * self.hit_ns;
        let cpu = self.clock.now_ns();
        self.schedule.closed(cost as u64, cpu);
        self.remember_markers();
        self.free.clear();
        self.fruitless = 0;
    }

    /// Markers that measured progress are kept while their frames exist.
    fn remember_markers(&mut self) {
        for marker in std::mem::take(&mut self.markers) {
            self.known.retain(|known| known.key != marker.key);
            self.known.push(marker);
        }
        let window_count = |marker: &Marker| self.observations.windows_of(marker.key);
        self.known.retain(|marker| window_count(marker) > 0);
        self.known.sort_by_key(|marker| std::cmp::Reverse(window_count(marker)));
        self.known.truncate(2 * MAX_MARKERS);
    }

    /// The estimate so far; `None` before the first window.
    pub(crate) fn summary(&mut self) -> Option<Summary> {
        if self.windows == 0 {
            return None;
        }
        let estimate = self.observations.estimate();
        self.observations.explain();
        Some(Summary {
            exact: false,
            pid: self.pid,
            since_ns: self.since_ns,
            at_ns: clock::monotonic_ns(),
            windows: self.windows,
            hits: self.seen.hits,
            bytes: self.seen.bytes,
            classes: self.seen.classes.iter().filter(|(_, count)| *count > 0).copied().collect(),
            per_cpu_second: estimate.map(|estimate| estimate.per_second as u64),
            error_ppm: estimate.map(|estimate| (estimate.relative_error * 1e6) as u64),
            basis: match estimate {
                Some(estimate) => estimate.basis(),
                None => {
                    "no variable, loop or count of the program measures its progress well enough"
                        .to_owned()
                }
            },
            cpu_ns: self.clock.now_ns(),
            cost_ns: self.schedule.spent_ns(),
            budget_ppm: (self.budget * 1e6) as u64,
            stacks: Vec::new(),
        })
    }
}

fn kept<T: Copy>(all: &[T], keep: impl Fn(usize) -> bool) -> Vec<T> {
    let chosen = all.iter().enumerate().filter(|(index, _)| keep(*index));
    chosen.map(|(_, one)| *one).collect()
}

/// Raises the priority, so that windows close in time on busy CPUs: an open window costs the
/// program much.
struct WindowCloser;

impl WindowCloser {
    const NICENESS: i32 = -15;

    fn start() -> Self {
        Self::set(Self::NICENESS);
        Self
    }

    fn set(niceness: i32) {
        // SAFETY: plain numbers; 0 is the calling thread, and no other changes.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) } != 0 {
            tracing::debug!("windows may close late: {}", std::io::Error::last_os_error());
        }
    }
}

impl Drop for WindowCloser {
    fn drop(&mut self) {
        Self::set(0);
    }
}

fn middle(before: Duration, after: Duration) -> f64 {
    (before + after).as_nanos() as f64 / 2.0
}
