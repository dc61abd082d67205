//! Performance counters inside pauses, and of whole processes.
//!
//! Owns the sums and the ratios made of them. Every ratio is taken over exactly those pauses that
//! have both of its values.

use crate::figure::{Basis, PauseTotal};
use crate::time::{add_to, beyond};
use gctrace_event::{Counter, Pause, ProcessCounters};
use gctrace_stats::ratio;
use serde::Serialize;

/// Performance counters inside pauses and outside. Counters that were not recorded are absent.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountersReport {
    /// Basis of the figures outside pauses: inferred, as the whole process minus its pauses. Pauses
    /// without a value (`inside_pauses` < `pauses`) count as outside.
    pub basis: Basis,
    /// Number of pauses of the processes with counters.
    pub pauses: u64,
    /// One entry for each counter of any pause or process.
    pub counters: Vec<CounterReport>,
    /// Instructions per cycle inside pauses, over the pauses with both counters; `null` if there
    /// are none.
    pub inside_ipc: Option<f64>,
    /// Instructions per cycle outside pauses; `null` if unknown.
    pub outside_ipc: Option<f64>,
    /// Pauses with per-CPU values dropped, because the thread migrated to another CPU unseen or a reading was
    /// interrupted.
    pub migrated_pauses: u64,
    /// Processes with totals too low for the same reason.
    pub migrated_processes: u64,
    /// Pauses with values scaled because counters were multiplexed.
    pub scaled_pauses: u64,
    /// Processes with totals scaled because counters were multiplexed.
    pub scaled_processes: u64,
    /// Pauses that waited for a disk (`major-faults` above 0).
    pub major_fault_pauses: PauseTotal,
    /// Number of full collections with a known number of traversed objects.
    pub traversed_pauses: u64,
    /// Objects traversed in these collections: objects left plus objects freed. Inferred: a collection visits each at
    /// least once.
    pub traversed_objects: u64,
}

/// One performance counter. Values are counts; `task-clock` and `cpu-clock` are in ns.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CounterReport {
    /// Name of the counter in `perf list`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: Counter,
    /// Sum over the pauses with a value.
    pub inside: u64,
    /// Number of pauses with a value.
    pub inside_pauses: u64,
    /// Totals of the processes minus `inside`, over the processes with both; `null` if there are
    /// none.
    pub outside: Option<u64>,
    /// Share of the pauses in the totals of these processes, 0 to 1; `null` if unknown.
    pub inside_ratio: Option<f64>,
    /// Value per 1,000 instructions inside pauses, over the pauses with both counters; `null` if
    /// there are none.
    pub inside_per_1000_instructions: Option<f64>,
    /// Value per 1,000 instructions outside pauses; `null` if unknown.
    pub outside_per_1000_instructions: Option<f64>,
    /// Value per second of CPU time inside pauses, over the pauses with both; `null` if there are
    /// none.
    pub inside_per_cpu_s: Option<f64>,
    /// Value per second of CPU time outside pauses (`task-clock`, all threads); `null` if unknown.
    pub outside_per_cpu_s: Option<f64>,
    /// Value per 1,000 traversed objects, over the full collections with both; `null` if there are
    /// none.
    pub per_1000_objects: Option<f64>,
}

const COUNTERS: usize = Counter::ALL.len();

/// Sums over one process, or several.
#[derive(Clone, Debug, Default)]
pub(crate) struct CounterSums {
    /// Numbers of pauses, and of other processes.
    totals: CountersReport,
    /// Value and number of pauses.
    inside: [CounterPair; COUNTERS],
    /// Value, and instructions of the same pauses.
    by_instructions: [CounterPair; COUNTERS],
    /// Value, and CPU time in ns over the same pauses.
    by_cpu_ns: [CounterPair; COUNTERS],
    /// Value, and objects traversed in the same pauses.
    by_objects: [CounterPair; COUNTERS],
    /// Totals of one process, as last read.
    whole: Option<ProcessCounters>,
    /// Over several processes: whole and inside, for processes with both.
    compared: [Option<CounterPair>; COUNTERS],
}

/// Two sums over the same things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CounterPair {
    value: u64,
    other: u64,
}

impl CounterPair {
    fn add(&mut self, value: u64, other: u64) {
        add_to(&mut self.value, value);
        add_to(&mut self.other, other);
    }

    fn per(self, many: f64) -> Option<f64> {
        ratio(self.value, self.other).map(|ratio| ratio * many)
    }
}

impl CounterSums {
    /// Adds a pause. `traversed`: objects that it traversed, if known.
    pub(crate) fn add(&mut self, pause: &Pause, traversed: Option<u64>) {
        let totals = &mut self.totals;
        totals.pauses += 1;
        let counters = &pause.counters;
        totals.migrated_pauses += u64::from(counters.migrated);
        totals.scaled_pauses += u64::from(counters.scaled);
        if counters.is_empty() {
            return;
        }
        if matches!(counters.get(Counter::MajorFaults), Some(faults) if faults > 0) {
            totals.major_fault_pauses.add(pause.duration_ns());
        }
        if let Some(objects) = traversed {
            totals.traversed_pauses += 1;
            add_to(&mut totals.traversed_objects, objects);
        }
        let instructions = counters.get(Counter::Instructions);
        let cpu_ns = counters.get(Counter::TaskClock);
        for (counter, value) in counters.iter() {
            let add = |pairs: &mut [CounterPair; COUNTERS], other: Option<u64>| {
                if let Some(other) = other {
                    pairs[counter as usize].add(value, other);
                }
            };
            add(&mut self.inside, Some(1));
            add(&mut self.by_instructions, instructions);
            add(&mut self.by_cpu_ns, cpu_ns);
            add(&mut self.by_objects, traversed);
        }
    }

    /// Sets the totals of the process; the latest ones count.
    pub(crate) fn set_whole(&mut self, whole: ProcessCounters) {
        let newer = |known: &ProcessCounters| whole.at_ns >= known.at_ns;
        if self.whole.as_ref().is_none_or(newer) {
            self.whole = Some(whole);
        }
    }

    /// Adds the counters of another process.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (sums, others) in [
            (&mut self.inside, &other.inside),
            (&mut self.by_instructions, &other.by_instructions),
            (&mut self.by_cpu_ns, &other.by_cpu_ns),
            (&mut self.by_objects, &other.by_objects),
        ] {
            for (sum, other) in sums.iter_mut().zip(others) {
                sum.add(other.value, other.other);
            }
        }
        let (totals, others) = (&mut self.totals, &other.totals);
        totals.pauses += others.pauses;
        totals.migrated_pauses += others.migrated_pauses;
        totals.scaled_pauses += others.scaled_pauses;
        totals.major_fault_pauses.add_all(&others.major_fault_pauses);
        totals.traversed_pauses += others.traversed_pauses;
        add_to(&mut totals.traversed_objects, others.traversed_objects);
        totals.scaled_processes += other.scaled_processes();
        totals.migrated_processes += other.migrated_processes();
        for counter in Counter::ALL {
            if let Some(pair) = other.compared(*counter) {
                let compared = self.compared[*counter as usize].get_or_insert_default();
                compared.add(pair.value, pair.other);
            }
        }
    }

    /// Whole and inside, if both are known.
    fn compared(&self, counter: Counter) -> Option<CounterPair> {
        let before = self.compared[counter as usize];
        let inside = self.inside(counter);
        let whole = self.whole.as_ref().and_then(|whole| whole.counters.get(counter));
        match whole {
            Some(value) if inside.other > 0 => Some(CounterPair { value, other: inside.value }),
            _ => before,
        }
    }

    fn scaled_processes(&self) -> u64 {
        let scaled = matches!(&self.whole, Some(whole) if whole.counters.scaled);
        self.totals.scaled_processes + u64::from(scaled)
    }

    fn migrated_processes(&self) -> u64 {
        let migrated = matches!(&self.whole, Some(whole) if whole.counters.migrated);
        self.totals.migrated_processes + u64::from(migrated)
    }

    fn inside(&self, counter: Counter) -> CounterPair {
        self.inside[counter as usize]
    }

    /// The whole minus inside; `None` if unknown.
    fn outside(&self, counter: Counter) -> Option<u64> {
        let pair = self.compared(counter)?;
        Some(beyond(pair.value, pair.other))
    }

    /// The report on one process or, after [`CounterSums::merge`], several; `None` where nothing
    /// was counted.
    pub(crate) fn report(&self) -> Option<CountersReport> {
        let counters: Vec<CounterReport> =
            Counter::ALL.iter().filter_map(|counter| self.counter(*counter)).collect();
        if counters.is_empty() {
            return None;
        }
        let ipc = |cycles: Option<u64>, instructions: Option<u64>| ratio(instructions?, cycles?);
        let cycles = self.by_instructions.get(Counter::Cycles as usize);
        Some(CountersReport {
            basis: Basis::Inferred,
            counters,
            inside_ipc: cycles.and_then(|pair| ipc(Some(pair.value), Some(pair.other))),
            outside_ipc: ipc(self.outside(Counter::Cycles), self.outside(Counter::Instructions)),
            scaled_processes: self.scaled_processes(),
            migrated_processes: self.migrated_processes(),
            ..self.totals.clone()
        })
    }

    fn counter(&self, counter: Counter) -> Option<CounterReport> {
        let inside = self.inside(counter);
        let outside = self.outside(counter);
        if inside.other == 0 {
            return None;
        }
        let pair = |pairs: &[CounterPair; COUNTERS], many| pairs.get(counter as usize)?.per(many);
        let outside_per = |of: Counter, many: f64| {
            let pair = CounterPair { value: outside?, other: self.outside(of)? };
            if of != counter { pair.per(many) } else { None }
        };
        let unless = |of: Counter, value: Option<f64>| if of != counter { value } else { None };
        let instructions = pair(&self.by_instructions, 1e3);
        let whole = self.compared(counter);
        Some(CounterReport {
            name: counter,
            inside: inside.value,
            inside_pauses: inside.other,
            outside,
            inside_ratio: whole.and_then(|pair| ratio(pair.other.min(pair.value), pair.value)),
            inside_per_1000_instructions: unless(Counter::Instructions, instructions),
            outside_per_1000_instructions: outside_per(Counter::Instructions, 1e3),
            inside_per_cpu_s: unless(Counter::TaskClock, pair(&self.by_cpu_ns, 1e9)),
            outside_per_cpu_s: outside_per(Counter::TaskClock, 1e9),
            per_1000_objects: pair(&self.by_objects, 1e3),
        })
    }
}
