//! The latest allocation pressure of one process.

use super::snapshot::PressureFigures;
use crate::accumulate::pressure::arena_bytes;
use gctrace_event::Allocations;
use gctrace_event::Pressure;

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// The latest records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastPressure {
    /// Net containers per second, and the end of the interval.
    containers: Option<(u64, u64)>,
    /// Arenas mapped minus those unmapped, and the ns in which that happened.
    arenas: Option<(i64, u64)>,
    /// Allocations per second of CPU time, and when that was reported.
    allocations: Option<(u64, u64)>,
}

impl LastPressure {
    /// Adds an interval. An empty one is ignored.
    pub(super) fn add(&mut self, pressure: &Pressure) {
        let length_ns = pressure.at_ns.saturating_sub(pressure.since_ns);
        if length_ns == 0 {
            return;
        }
        let per_second = u128::from(pressure.net_containers) * SECOND / u128::from(length_ns);
        let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
        self.containers = Some((per_second, pressure.at_ns));
        let signed = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let arenas = pressure.arenas_mapped.zip(pressure.arenas_unmapped);
        self.arenas =
            arenas.map(|(mapped, unmapped)| (signed(mapped) - signed(unmapped), length_ns));
    }

    /// Adds a summary of allocations.
    pub(super) fn add_allocations(&mut self, allocations: &Allocations) {
        if let Some(per_second) = allocations.per_cpu_second {
            self.allocations = Some((per_second, allocations.at_ns));
        }
    }

    /// `version`: of the interpreter, which determines the size of an arena.
    pub(super) fn figures(&self, version: Option<&str>) -> Option<PressureFigures> {
        let latest = [self.containers, self.allocations];
        let at_ns = latest.into_iter().flatten().map(|(_, at_ns)| at_ns).max()?;
        let bytes = |(arenas, length_ns): (i64, u64)| {
            let bytes = i128::from(arenas) * i128::from(version.and_then(arena_bytes)?);
            let per_second = bytes * SECOND.cast_signed() / i128::from(length_ns);
            i64::try_from(per_second).ok()
        };
        Some(PressureFigures {
            net_containers_per_second: self.containers.map(|(rate, _)| rate),
            arena_bytes_per_second: self.arenas.and_then(bytes),
            allocations_per_cpu_second: self.allocations.map(|(rate, _)| rate),
            at_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_interval() {
        let mut last = LastPressure::default();
        assert_eq!(last.figures(None), None);
        let pressure = Pressure {
            since_ns: 1_000_000_000,
            at_ns: 1_500_000_000,
            net_containers: 700,
            arenas_mapped: Some(3),
            arenas_unmapped: Some(4),
            ..Pressure::default()
        };
        last.add(&pressure);
        let figures = last.figures(Some("3.9.18")).unwrap();
        assert_eq!(figures.net_containers_per_second, Some(1400));
        assert_eq!(figures.arena_bytes_per_second, Some(-2 * (256 << 10)));
        assert_eq!(last.figures(None).unwrap().arena_bytes_per_second, None);
        let allocations = Allocations {
            per_cpu_second: Some(5),
            at_ns: 9,
            ..Allocations::default()
        };
        let mut counted = LastPressure::default();
        counted.add_allocations(&allocations);
        let figures = counted.figures(None).unwrap();
        assert_eq!(figures.net_containers_per_second, None);
        assert_eq!(figures.allocations_per_cpu_second, Some(5));
    }

    #[test]
    fn damaged_figures_do_no_harm() {
        let mut last = LastPressure::default();
        let pressure = Pressure {
            at_ns: 1,
            net_containers: u64::MAX,
            arenas_mapped: Some(u64::MAX),
            arenas_unmapped: Some(0),
            ..Pressure::default()
        };
        last.add(&pressure);
        let figures = last.figures(Some("3.12.1")).unwrap();
        assert_eq!(figures.net_containers_per_second, Some(u64::MAX));
    }
}
