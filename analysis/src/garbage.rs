//! What the collector frees: garbage of one process by kind of object and by cycle.
//!
//! Assigns garbage to its pause, scales examined collections to all, and owns the bounds: the report on traces keeps
//! more kinds than the live view.

mod classes;
mod figures;
mod per_step;
pub(crate) mod report;
pub(crate) mod shape;
mod table;
pub(crate) mod telling;
mod together;
pub mod words;

use self::classes::ClassNames;
use self::per_step::CountSeries;
use self::table::{RowSums, SumTable};
pub(crate) use self::together::together;
use crate::bounded::Keep;
use crate::garbage::report::GarbageReport;
use crate::garbage::shape::GarbageEdge;
use crate::pauses::{GENERATIONS, generation_index};
use crate::time::{add_known, add_to, after, sum};
use gctrace_event::{CycleCount, CycleSignature, Garbage, GcReason, KindName, ObjectKind, Pause};
use std::collections::VecDeque;

/// Garbage that waits for its pause: the record comes first, by as much as a pause takes.
const WAITING: usize = 64;
/// Pauses kept for garbage that comes after them.
const RECENT: usize = 8;
/// Types counted one by one.
const TYPES: usize = 20;
/// Index of garbage with an unknown pause.
const UNKNOWN: usize = GENERATIONS - 1;

/// Sums over the garbage of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct GarbageSums {
    kinds: SumTable<KindName, KindSums>,
    cycles: SumTable<Vec<GarbageEdge>, CycleSums>,
    pub(crate) types: TypeCounts,
    classes: ClassNames,
    strata: [Stratum; GENERATIONS],
    /// Its counts and sums.
    totals: GarbageReport,
    /// Objects in garbage with examined cycles; `None` if none was.
    cycle_garbage: Option<u64>,
    /// The objects of each examined collection.
    garbage: CountSeries,
    waiting: VecDeque<Garbage>,
    recent: VecDeque<RecentPause>,
}

/// Objects by type, whatever code they belong to. No count ever decreases: they are metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeCounts {
    /// The types seen first.
    pub(crate) counts: Vec<(String, u64)>,
    /// Any other type.
    pub(crate) other: u64,
}

impl TypeCounts {
    fn add(&mut self, type_name: &str, objects: u64) {
        let room = self.counts.len() < TYPES;
        match self.counts.iter_mut().find(|count| count.0 == type_name) {
            Some((_, count)) => add_to(count, objects),
            None if room => self.counts.push((type_name.to_owned(), objects)),
            None => add_to(&mut self.other, objects),
        }
    }
}

/// Collections of one generation.
#[derive(Clone, Copy, Debug, Default)]
struct Stratum {
    /// Objects that they freed.
    collected: u64,
    /// Objects that the examined ones freed.
    examined: u64,
}

#[derive(Clone, Copy, Debug)]
struct RecentPause {
    tid: u32,
    start_ns: u64,
    end_ns: u64,
    generation: usize,
    collected: Option<u64>,
    shutdown: bool,
}

impl RecentPause {
    fn contains(&self, garbage: &Garbage) -> bool {
        self.tid == garbage.tid && (self.start_ns..=self.end_ns).contains(&garbage.at_ns)
    }

    /// The same for garbage that came first: then the pause is without the time that examining
    /// took.
    fn contained(&self, garbage: &Garbage) -> bool {
        let end_ns =
            if let Some(ns) = garbage.cost_ns { after(self.end_ns, ns) } else { self.end_ns };
        Self { end_ns, ..*self }.contains(garbage)
    }
}

/// A count by the generation of the collection, and over time.
#[derive(Clone, Debug, Default)]
struct Counted {
    by_generation: [u64; GENERATIONS],
    series: CountSeries,
}

impl Counted {
    fn add(&mut self, count: u64, at_ns: u64, pause: Option<&RecentPause>) {
        let generation = if let Some(pause) = pause { pause.generation } else { UNKNOWN };
        if let Some(by_generation) = self.by_generation.get_mut(generation) {
            add_to(by_generation, count);
        }
        self.series.add(at_ns, count);
    }

    fn total(&self) -> u64 {
        sum(self.by_generation)
    }
}

#[derive(Clone, Debug, Default)]
struct KindSums {
    objects: Counted,
    bytes: Option<u64>,
    /// Sampled objects of the type that were born at the line.
    births: u64,
}

impl RowSums for KindSums {
    fn weight(&self) -> u64 {
        self.objects.total().saturating_add(self.births)
    }
}

#[derive(Clone, Debug, Default)]
struct CycleSums {
    count: Counted,
    objects: u64,
    held_objects: u64,
    bytes: Option<u64>,
}

impl RowSums for CycleSums {
    fn weight(&self) -> u64 {
        self.objects.saturating_add(self.held_objects)
    }
}

impl GarbageSums {
    pub(crate) fn new(keep: Keep) -> Self {
        let (kinds, cycles) = match keep {
            Keep::All => (1_024, 256),
            Keep::Window => (128, 32),
        };
        let (kinds, cycles) = (SumTable::new(kinds), SumTable::new(cycles));
        Self { kinds, cycles, ..Self::default() }
    }

    /// Adds the meaning of a kind's number.
    pub(crate) fn describe(&mut self, kind: &ObjectKind) {
        let key = self.classes.generalized(kind.name.clone());
        // Dropped kinds are the rest of the garbage; the report derives it.
        self.kinds.name(kind.id, key);
    }

    /// Adds the meaning of a cycle's number; its kinds are known already.
    pub(crate) fn describe_cycle(&mut self, signature: &CycleSignature) {
        let unknown = KindName::default();
        let edges = signature.edges.iter().map(|edge| {
            let kind = self.kinds.key(edge.kind).unwrap_or(&unknown);
            GarbageEdge { kind: kind.clone(), name: edge.name.clone() }
        });
        let edges = edges.collect();
        self.cycles.name(signature.id, edges);
    }

    /// Adds the garbage of one collection, before or after its pause.
    pub(crate) fn add(&mut self, garbage: Garbage) {
        let recent = self.recent.iter().rposition(|pause| pause.contains(&garbage));
        // A pause has one such record: a second is another's.
        if let Some(pause) = recent.and_then(|index| self.recent.remove(index)) {
            return self.count(&garbage, Some(&pause));
        }
        self.waiting.push_back(garbage);
        if self.waiting.len() > WAITING
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.count(&oldest, None);
        }
    }

    /// Adds a pause, whether or not it was examined.
    pub(crate) fn add_pause(&mut self, pause: &Pause) {
        let recent_pause = RecentPause {
            tid: pause.tid,
            start_ns: pause.start_ns,
            end_ns: pause.end_ns,
            generation: generation_index(pause.generation),
            collected: pause.collected,
            shutdown: pause.reason == GcReason::Shutdown,
        };
        self.totals.collections += u64::from(pause.collected != Some(0) && !recent_pause.shutdown);
        if let Some(stratum) = self.strata.get_mut(recent_pause.generation) {
            let collected = if recent_pause.shutdown { None } else { pause.collected };
            gctrace_units::add_if_known(&mut stratum.collected, collected);
        }
        let found = self.waiting.iter().position(|garbage| recent_pause.contained(garbage));
        if let Some(garbage) = found.and_then(|index| self.waiting.remove(index)) {
            return self.count(&garbage, Some(&recent_pause));
        }
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(recent_pause);
    }

    /// Counts garbage that still waits for its pause: no more records follow.
    pub(crate) fn settle(&mut self) {
        while let Some(garbage) = self.waiting.pop_front() {
            self.count(&garbage, None);
        }
    }

    fn count(&mut self, garbage: &Garbage, pause: Option<&RecentPause>) {
        add_known(&mut self.totals.cost_ns, garbage.cost_ns);
        if matches!(pause, Some(pause) if pause.shutdown) {
            return add_to(&mut self.totals.shutdown_objects, garbage.objects);
        }
        if let Some(pause) = pause
            && let Some(stratum) = self.strata.get_mut(pause.generation)
        {
            gctrace_units::add_if_known(&mut stratum.examined, pause.collected);
        }
        if garbage.objects == 0 {
            return;
        }
        self.totals.examined += 1;
        add_to(&mut self.totals.objects, garbage.objects);
        self.garbage.add(garbage.at_ns, garbage.objects);
        let mut listed = 0;
        for count in &garbage.kinds {
            add_to(&mut listed, count.objects);
            add_known(&mut self.totals.bytes, count.bytes);
            let Some(sums) = self.kinds.get_mut(count.kind) else {
                add_to(&mut self.types.other, count.objects);
                continue;
            };
            sums.objects.add(count.objects, garbage.at_ns, pause);
            add_known(&mut sums.bytes, count.bytes);
            if let Some(kind) = self.kinds.key(count.kind) {
                self.types.add(&kind.type_name, count.objects);
            }
        }
        for birth in &garbage.births {
            if let Some(sums) = self.kinds.get_mut(birth.kind) {
                add_to(&mut sums.births, birth.samples);
            }
        }
        let unlisted = garbage.objects.saturating_sub(listed);
        add_to(&mut self.types.other, unlisted);
        if let Some(cycles) = &garbage.cycles {
            add_known(&mut self.cycle_garbage, Some(garbage.objects));
            for count in cycles {
                self.count_cycle(count, garbage.at_ns, pause);
            }
        }
    }

    fn count_cycle(&mut self, count: &CycleCount, at_ns: u64, pause: Option<&RecentPause>) {
        if let Some(sums) = self.cycles.get_mut(count.cycle) {
            sums.count.add(count.count, at_ns, pause);
            add_to(&mut sums.objects, count.objects);
            add_to(&mut sums.held_objects, count.held_objects);
            add_known(&mut sums.bytes, count.bytes);
        }
    }

    /// Objects freed by examined collections, and by all.
    pub(crate) fn freed(&self) -> (u64, u64) {
        let of = |figure: fn(&Stratum) -> u64| sum(self.strata.iter().map(figure));
        (of(|stratum| stratum.examined), of(|stratum| stratum.collected))
    }
}
