//! The recorded collections as curves over allocations.
//!
//! The unit of allocations is the *window*: what passes between two automatic collections, one
//! container more than threshold 0; between two that the program asked for, where none is automatic. The size of the heap is measured by the time that a full
//! collection spends on it, as object counts are not always recorded.

use super::explicit::ExplicitCalls;
use super::{CostAssumption, RecordedRun, RemedyEstimate, float};
use crate::spans::PauseSpan;
use gctrace_event::GcReason;

/// Time per object that a full collection traverses, in times of that in the middle generation, if
/// object counts are unknown: a heap does not fit the caches (docs/measurements/remedies.md).
const TRAVERSING_FULL: [f64; 3] = [1.0, 2.0, 4.0];
/// The same if they are known: it varies between collections.
const TRAVERSING_KNOWN: [f64; 3] = [0.8, 1.0, 1.25];
/// Time per object to free garbage that left the caches, in times of that per object of the younger
/// generations.
const FREEING_COLD: [f64; 3] = [1.5, 4.0, 8.0];
/// A heap with less than this part left was frozen: programs seldom free so much at once.
const FROZEN: f64 = 0.3;
/// From this part of the containers of some collections of the middle generation on, those that are
/// alive at a time may exceed a raised threshold: the generation has 8,400 by default, ten times the
/// threshold is 7,000.
const REACHES_RAISED: f64 = 0.4;
/// The least part that is still counted: something is always kept.
const LEAST_COUNTED: f64 = 0.002;
/// Fewer freed objects do not show the most that freeing one takes.
const FEWEST_FREED: u64 = 100;

/// Collections of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CollectionSum {
    pub(super) count: f64,
    pub(super) time_ns: f64,
    pub(super) longest_ns: f64,
    /// Objects freed.
    pub(super) freed: f64,
}

impl CollectionSum {
    fn add(&mut self, pause: &PauseSpan, time_ns: f64) {
        self.count += 1.0;
        self.time_ns += time_ns;
        self.longest_ns = self.longest_ns.max(time_ns);
        self.freed += freed(pause);
    }
}

/// Pauses that take longer than this part of their time on the CPU waited for most of it.
const MOST_PER_CPU: f64 = 2.0;

/// Times of the pauses as they would be if all were off the CPU for the same share: which of them
/// other programs interrupted is chance.
#[derive(Clone, Copy, Debug)]
struct EvenTimes {
    /// Time per time on the CPU.
    per_cpu: f64,
}

impl EvenTimes {
    fn of(run: &RecordedRun<'_>) -> Self {
        let (start_ns, end_ns) = run.training_ns;
        let (mut time_ns, mut on_cpu_ns) = (0.0, 0.0);
        for pause in run.pauses {
            let in_training = (start_ns..end_ns).contains(&pause.start_ns);
            if let Some(cpu_ns) = pause.cpu_ns.filter(|_| in_training) {
                time_ns += float(pause.duration_ns());
                on_cpu_ns += f64::from(cpu_ns.get());
            }
        }
        Self { per_cpu: quotient(time_ns, on_cpu_ns) }
    }

    /// Whether the pauses waited for most of their time.
    fn waited(self) -> bool {
        self.per_cpu > MOST_PER_CPU
    }

    /// In ns; its duration if its CPU time is unknown.
    fn time_ns(self, pause: &PauseSpan) -> f64 {
        match pause.cpu_ns {
            Some(cpu_ns) if self.per_cpu > 0.0 => f64::from(cpu_ns.get()) * self.per_cpu,
            _ => float(pause.duration_ns()),
        }
    }
}

/// A full collection, and what the interval before it promoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullCollection {
    /// When, in windows.
    pub(super) window: f64,
    pub(super) automatic: bool,
    pub(super) in_training: bool,
    time_ns: f64,
    /// Whether the time is without chance: its time on the CPU is known.
    even: bool,
    /// Objects that it went through; `None` if unknown.
    traversed: Option<f64>,
    freed: f64,
    /// Collections of the middle generation since the full one before, and their time.
    middle: f64,
    middle_time_ns: f64,
    /// Objects that all collections since the full one before freed, with this one.
    freed_since: f64,
    /// The part of the containers allocated since the full one before that a raised threshold
    /// counts. CPython takes off its counter what reference counts free (`gc.c`,
    /// `PyObject_GC_Del`): if what is alive at a time never reaches the threshold, only what stays
    /// or is garbage is counted in the end.
    pub(super) counted: RemedyEstimate,
    /// Time on the objects that it left, in ns.
    pub(super) live_ns: f64,
    /// Per window since the full collection before: what joined the oldest generation, in ns of its
    /// traversal; by how much the live heap grew, in the same; garbage that it freed, in objects.
    pub(super) promoted_ns: f64,
    pub(super) growth_ns: f64,
    pub(super) garbage: f64,
}

/// What the simulated collector runs over.
#[derive(Clone, Debug)]
pub(super) struct RecordedCurves {
    /// Start and end of training, in windows.
    pub(super) windows: (f64, f64),
    /// Automatic collections in training, by generation.
    pub(super) automatic: [CollectionSum; 3],
    /// Full collections in training that the program asked for.
    pub(super) explicit: CollectionSum,
    /// Whether the process started with a heap, its parent's.
    pub(super) inherited: bool,
    /// Of the whole run, in order.
    pub(super) fulls: Vec<FullCollection>,
    /// Collections of the middle generation between the last full one and training.
    pub(super) middle_before: f64,
    /// Containers per window, and per collection of the middle generation.
    pub(super) containers: (f64, f64),
    /// Time per object of the middle generation, in ns.
    pub(super) middle_ns: f64,
    /// Time per object that a full collection traverses, in ns.
    pub(super) traversing_ns: RemedyEstimate,
    /// Time per object to free garbage that waited, in ns.
    pub(super) freeing_ns: RemedyEstimate,
    /// Memory that a freed object gives back with what it owns, in bytes; `None` if not measured.
    pub(super) freed_bytes_each: Option<f64>,
    /// Resident memory of the process, in bytes; `None` if unknown.
    pub(super) resident_bytes: Option<f64>,
    /// Whether the pauses in training waited for most of their time: for a CPU, which fewer
    /// collections save, or in finalizers of the program, which they do not.
    pub(super) waited: bool,
}

impl RecordedCurves {
    /// `None` if a generation is unknown.
    pub(super) fn of(run: &RecordedRun<'_>) -> Option<Self> {
        let [young, middle, old] = run.thresholds.map(|threshold| f64::from(threshold.max(0)));
        let containers = (young + 1.0, (young + 1.0) * windows_per_middle(middle));
        let times = EvenTimes::of(run);
        let mut curves = Self {
            windows: (0.0, 0.0),
            automatic: [CollectionSum::default(); 3],
            explicit: CollectionSum::default(),
            inherited: run.forked,
            fulls: Vec::new(),
            middle_before: 0.0,
            containers,
            middle_ns: 0.0,
            traversing_ns: RemedyEstimate::default(),
            freeing_ns: RemedyEstimate::default(),
            freed_bytes_each: run.freed_bytes_each(),
            resident_bytes: run.resident_bytes.map(float),
            waited: times.waited(),
        };
        let mut middle_sum = CollectionSum::default();
        let paces = run
            .pauses
            .iter()
            .any(|pause| matches!(pause.reason, GcReason::Automatic | GcReason::Unknown));
        let mut reasons = ExplicitCalls::under(run.thresholds);
        let (mut window, mut since_full, mut middle_time_ns, mut freed_since) =
            (0.0, 0.0, 0.0, 0.0);
        for pause in run.pauses {
            if pause.reason == GcReason::Shutdown || pause.start_ns >= run.training_ns.1 {
                continue;
            }
            let in_training = pause.start_ns >= run.training_ns.0;
            let automatic = !reasons.is_explicit(pause.generation, pause.reason);
            let sum = if automatic {
                curves.automatic.get_mut(usize::from(pause.generation))?
            } else {
                &mut curves.explicit
            };
            let time_ns = times.time_ns(pause);
            if in_training {
                sum.add(pause, time_ns);
            }
            freed_since += freed(pause);
            match pause.generation {
                2 => {
                    let objects = pause.objects.map(|left| f64::from(left.get()) + freed(pause));
                    curves.fulls.push(FullCollection {
                        window,
                        automatic,
                        in_training,
                        time_ns,
                        even: pause.cpu_ns.is_some(),
                        traversed: objects,
                        freed: freed(pause),
                        middle: since_full,
                        middle_time_ns,
                        freed_since,
                        counted: RemedyEstimate::default(),
                        live_ns: 0.0,
                        promoted_ns: 0.0,
                        growth_ns: 0.0,
                        garbage: 0.0,
                    });
                    (since_full, middle_time_ns, freed_since) = (0.0, 0.0, 0.0);
                }
                1 => {
                    middle_time_ns += time_ns;
                    middle_sum.add(pause, time_ns);
                    since_full += 1.0;
                }
                _ => {}
            }
            if automatic || !paces {
                window += 1.0;
            }
            if !in_training {
                curves.windows.0 = window;
                curves.middle_before = since_full;
            }
        }
        curves.windows.1 = window;
        curves.even_out();
        curves.price_objects(middle_sum);
        curves.promote(old);
        curves.count();
        Some(curves)
    }

    /// Full collections whose time on the CPU is unknown take at most the time per object of the
    /// last one before them that has it, or else of the first one after.
    fn even_out(&mut self) {
        let per_object = |full: &FullCollection| {
            let objects = full.traversed.filter(|_| full.even)?;
            (objects > 0.0).then(|| full.time_ns / objects)
        };
        let known: Vec<Option<f64>> = self.fulls.iter().map(per_object).collect();
        for (at, full) in self.fulls.iter_mut().enumerate() {
            let (before, after) = known.split_at(at);
            let nearest = before.iter().rev().chain(after).find_map(|known| *known);
            if let (false, Some(ns), Some(objects)) = (full.even, nearest, full.traversed) {
                full.time_ns = full.time_ns.min(ns * objects);
            }
        }
    }

    /// Time per object.
    fn price_objects(&mut self, middle: CollectionSum) {
        let [young, _, _] = self.automatic;
        let young_objects = (young.count * self.containers.0).max(young.freed);
        let young_ns = quotient(young.time_ns, young_objects);
        self.middle_ns = quotient(middle.time_ns, middle.count * self.containers.1);
        let known = self.fulls.iter().filter_map(|full| Some((full.traversed?, full.time_ns)));
        let sum = known.fold((0.0, 0.0), |sum, full| (sum.0 + full.0, sum.1 + full.1));
        self.traversing_ns = match sum {
            (objects, time_ns) if objects > 0.0 => {
                RemedyEstimate::around(time_ns / objects, TRAVERSING_KNOWN)
            }
            _ => RemedyEstimate::around(self.middle_ns, TRAVERSING_FULL),
        };
        let each = self.fulls.iter();
        let most = each
            .filter(|full| full.freed > float(FEWEST_FREED))
            .map(|full| full.time_ns / full.freed);
        let most_ns = most.fold(f64::INFINITY, f64::min);
        self.freeing_ns = RemedyEstimate::around(young_ns.max(self.middle_ns), FREEING_COLD)
            .map(|ns| ns.min(most_ns));
    }

    /// What each interval between full collections promoted. Where more collections of the middle
    /// generation passed than threshold 2 asks for, a quarter of the heap was awaited.
    fn promote(&mut self, threshold: f64) {
        let mut before: Option<FullCollection> = None;
        for full in &mut self.fulls {
            let freeing_ns = self.freeing_ns.likely * full.freed;
            full.live_ns = (full.time_ns - freeing_ns).max(full.time_ns * 0.1);
            let (window, live_ns) =
                before.map_or((0.0, 0.0), |before| (before.window, before.live_ns));
            let windows = (full.window - window).max(1.0);
            let growth_ns = (full.live_ns - live_ns).max(0.0);
            let quarter_ns = live_ns / 4.0;
            let promoted_ns = if full.automatic && full.middle > threshold + 1.0 {
                quarter_ns * (1.0 + 0.5 / full.middle)
            } else {
                let least_ns = if full.automatic { quarter_ns } else { 0.0 };
                (growth_ns + self.traversing_ns.likely * full.freed).max(least_ns)
            };
            full.promoted_ns = promoted_ns / windows;
            full.growth_ns = growth_ns / windows;
            full.garbage = full.freed / windows;
            before = Some(*full);
        }
    }

    /// What each interval between full collections adds to the counter of a raised threshold.
    fn count(&mut self) {
        let (window_containers, middle_containers) = self.containers;
        let [young, _, _] = self.automatic;
        let young_ns = quotient(young.time_ns, young.count * window_containers);
        let traversing_ns = self.traversing_ns.likely;
        let (mut window, mut left) = (0.0, 0.0);
        for full in &mut self.fulls {
            let containers = (full.window - window).max(1.0) * window_containers;
            let now = full.traversed.unwrap_or(quotient(full.live_ns, traversing_ns)) - full.freed;
            let stays = quotient((now - left).max(0.0) + full.freed_since, containers).min(1.0);
            let alive = quotient(full.middle_time_ns, young_ns * full.middle * middle_containers);
            let garbage = quotient(full.freed_since, containers);
            let alive = if full.middle > 0.0 { alive + garbage } else { 1.0 };
            let most = alive.max(stays);
            let likely = if alive < REACHES_RAISED { stays } else { most };
            full.counted = RemedyEstimate { cheap: stays, likely, costly: most }
                .map(|part| part.clamp(LEAST_COUNTED, 1.0));
            (window, left) = (full.window, now);
        }
    }

    /// Windows of training whose containers a raised threshold counts.
    pub(super) fn counted_windows(&self, assumption: CostAssumption) -> f64 {
        let (start, end) = self.windows;
        let mut from = start;
        let mut sum = 0.0;
        let inside = self.fulls.iter().filter(|full| full.window > start && full.window <= end);
        for full in inside {
            sum += (full.window - from) * full.counted.at(assumption);
            from = full.window;
        }
        let last = self.interval(end).map_or(1.0, |full| full.counted.at(assumption));
        sum + (end - from) * last
    }

    /// The full collection that ends the interval at a window; after the last one, that one.
    pub(super) fn interval(&self, window: f64) -> Option<&FullCollection> {
        self.fulls.get(self.next(window)).or(self.fulls.last())
    }

    /// The last full collection before a window.
    pub(super) fn last_before(&self, window: f64) -> Option<&FullCollection> {
        self.fulls.get(self.next(window).checked_sub(1)?)
    }

    fn next(&self, window: f64) -> usize {
        self.fulls.partition_point(|full| full.window < window)
    }

    /// Time to traverse the objects alive at a window, in ns.
    pub(super) fn live_ns(&self, window: f64) -> f64 {
        match (self.last_before(window), self.fulls.get(self.next(window))) {
            (None, None) => 0.0,
            // The first full collection goes through what was inherited, and little else.
            (None, Some(next)) if self.inherited => next.live_ns,
            (None, Some(next)) => next.live_ns * quotient(window, next.window.max(1.0)),
            (Some(last), None) => last.live_ns + last.growth_ns * (window - last.window),
            (Some(last), Some(next)) => {
                let part = quotient(window - last.window, next.window - last.window);
                last.live_ns + (next.live_ns - last.live_ns) * part
            }
        }
    }

    /// By how many objects the heap grew per window from the first full collection to the last; `None` if
    /// there are not two with known numbers.
    pub(super) fn grows(&self) -> Option<f64> {
        let mut known =
            self.fulls.iter().filter_map(|full| Some((full.window, full.traversed? - full.freed)));
        let (last, first) = (known.next_back()?, known.next()?);
        (last.0 > first.0).then(|| (last.1 - first.1).max(0.0) / (last.0 - first.0))
    }

    /// Whether a full collection went through far fewer objects than the one before it had left:
    /// the others were frozen.
    pub(super) fn frozen(&self) -> bool {
        let pairs = self.fulls.windows(2);
        let mut drops = pairs.map(|pair| match pair {
            [before, after] => after.time_ns < before.live_ns * FROZEN,
            _ => false,
        });
        drops.any(|drop| drop)
    }

    /// The part of the middle generation's objects that its collections freed, in training.
    pub(super) fn died_young(&self) -> f64 {
        let [_, middle, _] = self.automatic;
        quotient(middle.freed, middle.count * self.containers.1).min(1.0)
    }

    /// Objects that all automatic collections of training freed.
    pub(super) fn garbage(&self) -> f64 {
        self.automatic.iter().map(|sum| sum.freed).sum()
    }

    /// Time of all automatic collections of training, in ns.
    pub(super) fn automatic_ns(&self) -> f64 {
        self.automatic.iter().map(|sum| sum.time_ns).sum()
    }

    /// The longest automatic collection of these generations in training, in ns.
    pub(super) fn longest_ns(&self, generations: std::ops::RangeInclusive<usize>) -> f64 {
        let sums = self.automatic.get(generations).into_iter().flatten();
        sums.map(|sum| sum.longest_ns).fold(0.0, f64::max)
    }

    /// Memory of garbage that waits, in bytes; `None` if it was not measured.
    pub(super) fn waiting_bytes(&self, objects: f64) -> Option<f64> {
        Some(objects * self.freed_bytes_each?)
    }

    /// Garbage that waits as a share of what is alive: of the objects, or of the memory if that is more;
    /// 0 if both are unknown.
    pub(super) fn waiting_ratio(&self, objects: f64) -> f64 {
        let live = quotient(self.live_ns(self.windows.1), self.traversing_ns.likely);
        let of_memory = self.waiting_bytes(objects).zip(self.resident_bytes);
        let of_memory = of_memory.map_or(0.0, |(bytes, resident)| quotient(bytes, resident));
        quotient(objects, live).max(of_memory)
    }

    /// Time to free garbage that waited, in ns.
    pub(super) fn to_free_ns(&self, objects: f64, assumption: CostAssumption) -> f64 {
        objects * self.freeing_ns.at(assumption)
    }
}

/// Windows from one collection of the middle generation to the next: that many of generation 0 as
/// exceed threshold 1, and itself.
pub(super) fn windows_per_middle(threshold: f64) -> f64 {
    threshold + 2.0
}

/// 0 where there is nothing to divide by.
pub(super) fn quotient(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Objects that a collection freed.
pub(super) fn freed(pause: &PauseSpan) -> f64 {
    pause.collected.map_or(0.0, |freed| f64::from(freed.get()))
}
