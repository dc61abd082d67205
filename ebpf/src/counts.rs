//! Converts raw counts of the BPF programs to counters. Pure: nothing here uses libbpf.

use crate::wire::{
    CountedPauseWire, HardwareCounter, HardwareCounts, PauseFlag, PauseWire, SoftwareCounts, read,
};
use gctrace_event::{Counter, Counters};

/// The counters that the programs record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSet {
    /// Whether the per-thread counters of the kernel are included.
    pub(crate) software: bool,
    /// Per-CPU counters: bit mask of `enum hardware_counter`.
    pub(crate) hardware: u32,
}

impl CounterSet {
    /// The set that includes these counters. Software counters are all included or none, as they
    /// are nearly free.
    pub fn new(counters: impl IntoIterator<Item = Counter>) -> Self {
        let mut set = Self::default();
        for counter in counters {
            match slot(counter) {
                Some(slot) => set.hardware |= 1 << slot.0,
                None => set.software = true,
            }
        }
        set
    }

    /// Whether the set includes a per-CPU counter: a hardware event or `cpu-clock`.
    #[must_use]
    pub fn has_hardware(self) -> bool {
        self.hardware != 0
    }
}

/// The index of a per-CPU counter among these; `None` for per-thread counters.
pub(crate) fn slot(counter: Counter) -> Option<HardwareCounter> {
    Some(match counter {
        Counter::Cycles => HardwareCounter::HARDWARE_CYCLES,
        Counter::Instructions => HardwareCounter::HARDWARE_INSTRUCTIONS,
        Counter::CacheMisses => HardwareCounter::HARDWARE_CACHE_MISSES,
        Counter::LlcLoadMisses => HardwareCounter::HARDWARE_LLC_LOAD_MISSES,
        Counter::DtlbLoadMisses => HardwareCounter::HARDWARE_DTLB_LOAD_MISSES,
        Counter::BranchMisses => HardwareCounter::HARDWARE_BRANCH_MISSES,
        Counter::CpuClock => HardwareCounter::HARDWARE_CPU_CLOCK,
        Counter::PageFaults
        | Counter::MajorFaults
        | Counter::ContextSwitches
        | Counter::CpuMigrations
        | Counter::TaskClock => return None,
    })
}

/// The counters of a pause. `bytes`: the whole record, starting with `wire`.
pub(crate) fn of_pause(wire: &PauseWire, bytes: &[u8], cpu_ns: Option<u64>) -> Counters {
    let mut counters = Counters::default();
    if wire.flags & PauseFlag::PAUSE_COUNTED.0 != 0 {
        add_software(&mut counters, &wire.software, cpu_ns);
    }
    if let Some(counted) = read::<CountedPauseWire>(bytes) {
        add_hardware(&mut counters, &counted.hardware, counted.valid);
        counters.migrated = counted.valid != counted.asked;
    }
    counters
}

/// Adds the kernel's counts of a task, or several. `run_ns`: time on a CPU, if known.
pub(crate) fn add_software(counters: &mut Counters, counts: &SoftwareCounts, run_ns: Option<u64>) {
    counters.set(Counter::PageFaults, counts.page_faults);
    counters.set(Counter::MajorFaults, counts.major_faults);
    counters.set(Counter::ContextSwitches, counts.context_switches);
    counters.set(Counter::CpuMigrations, counts.cpu_migrations);
    if let Some(run_ns) = run_ns {
        counters.set(Counter::TaskClock, run_ns);
    }
}

/// Adds the per-CPU counters in `valid`. Multiplexed counters are scaled; counters that never ran are left out.
pub(crate) fn add_hardware(counters: &mut Counters, counts: &HardwareCounts, valid: u32) {
    for counter in Counter::ALL.iter().copied() {
        let Some(slot) = slot(counter) else { continue };
        let Some(read) = counts.of.get(slot.0 as usize) else {
            continue;
        };
        if valid & (1 << slot.0) == 0 || (read.running_ns == 0 && read.enabled_ns > 0) {
            continue;
        }
        if read.running_ns >= read.enabled_ns {
            counters.set(counter, read.value);
        } else {
            counters.scaled = true;
            counters.set(counter, scaled(read.value, read.enabled_ns, read.running_ns));
        }
    }
}

/// value * enabled / running, `running` not 0.
fn scaled(value: u64, enabled_ns: u64, running_ns: u64) -> u64 {
    let product = u128::from(value) * u128::from(enabled_ns);
    u64::try_from(product / u128::from(running_ns.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::skeleton::types::hardware_value;
    use zerocopy::IntoBytes as _;

    fn counts(value: u64, enabled_ns: u64, running_ns: u64) -> HardwareCounts {
        HardwareCounts {
            of: [hardware_value { value, enabled_ns, running_ns };
                HardwareCounter::HARDWARE_COUNTERS.0 as usize],
        }
    }

    fn decoded(counts: &HardwareCounts, valid: u32) -> Counters {
        let mut counters = Counters::default();
        add_hardware(&mut counters, counts, valid);
        counters
    }

    #[test]
    fn every_per_cpu_counter_has_its_own_index() {
        let set = CounterSet::new(Counter::ALL.iter().copied());
        assert!(set.software && set.has_hardware());
        assert_eq!(set.hardware.count_ones(), HardwareCounter::HARDWARE_COUNTERS.0);
        let software = CounterSet::new([Counter::TaskClock]);
        assert!(software.software && !software.has_hardware());
        assert_eq!(CounterSet::new([]), CounterSet::default());
    }

    #[test]
    fn counters_without_multiplexing_are_not_scaled() {
        let counters = decoded(&counts(700, 50, 50), 1);
        assert_eq!(counters.get(Counter::Cycles), Some(700));
        assert_eq!(counters.get(Counter::Instructions), None);
        assert!(!counters.scaled);
    }

    #[test]
    fn multiplexed_counters_are_scaled_and_marked() {
        let counters = decoded(&counts(700, 100, 25), 1);
        assert_eq!(counters.get(Counter::Cycles), Some(2800));
        assert!(counters.scaled);
        assert_eq!(decoded(&counts(u64::MAX, u64::MAX, 1), 1).get(Counter::Cycles), Some(u64::MAX));
    }

    #[test]
    fn counters_that_never_ran_are_left_out() {
        assert!(decoded(&counts(0, 100, 0), u32::MAX).is_empty());
    }

    #[test]
    fn dropped_values_are_marked() {
        let wire = CountedPauseWire {
            asked: 0b11,
            valid: 0b01,
            hardware: counts(7, 1, 1),
            ..CountedPauseWire::default()
        };
        let counters = of_pause(&wire.pause, wire.as_bytes(), None);
        assert_eq!(counters.get(Counter::Cycles), Some(7));
        assert_eq!(counters.get(Counter::Instructions), None);
        assert!(counters.migrated);
        let plain = of_pause(&wire.pause, wire.pause.as_bytes(), None);
        assert!(plain.is_empty() && !plain.migrated);
    }
}
