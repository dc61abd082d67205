//! The latest allocation pressure of one process, per second.

use super::snapshot::PressureFigures;
use crate::accumulate::pressure::{PressureSums, arena_bytes, balance};

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// `version`: of the interpreter, which determines the size of an arena.
pub(super) fn pressure(sums: &PressureSums, version: Option<&str>) -> Option<PressureFigures> {
    let latest = sums.latest.as_ref();
    let (rate, reported_ns) = sums.allocations.unzip();
    let at_ns = latest.map(|latest| latest.at_ns).max(reported_ns)?;
    let per_second = |amount: i128| {
        let length_ns = latest.map(|latest| latest.at_ns - latest.since_ns);
        length_ns.map(|length_ns| amount * SECOND / i128::from(length_ns))
    };
    let containers = latest.and_then(|latest| per_second(latest.net_containers.into()));
    let arenas = latest.and_then(|latest| latest.arenas_mapped.zip(latest.arenas_unmapped));
    let arena_bytes = arenas.and_then(|(mapped, unmapped)| {
        let bytes = version.and_then(arena_bytes)?;
        per_second(i128::from(balance(mapped, unmapped)) * i128::from(bytes))
    });
    Some(PressureFigures {
        net_containers_per_second: containers.map(|rate| u64::try_from(rate).unwrap_or(u64::MAX)),
        arena_bytes_per_second: arena_bytes.and_then(|rate| i64::try_from(rate).ok()),
        allocations_per_cpu_second: rate,
        at_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::{Allocations, Pressure};

    #[test]
    fn rates_are_of_the_last_interval() {
        let mut last = PressureSums::default();
        assert_eq!(super::pressure(&last, None), None);
        let pressure = Pressure {
            since_ns: 1_000_000_000,
            at_ns: 1_500_000_000,
            net_containers: 700,
            arenas_mapped: Some(3),
            arenas_unmapped: Some(4),
            ..Pressure::default()
        };
        last.add(&pressure);
        let figures = super::pressure(&last, Some("3.9.18")).unwrap();
        assert_eq!(figures.net_containers_per_second, Some(1400));
        assert_eq!(figures.arena_bytes_per_second, Some(-2 * (256 << 10)));
        assert_eq!(super::pressure(&last, None).unwrap().arena_bytes_per_second, None);
        let allocations =
            Allocations { per_cpu_second: Some(5), at_ns: 9, ..Allocations::default() };
        let mut counted = PressureSums::default();
        counted.add_allocations(&allocations);
        let figures = super::pressure(&counted, None).unwrap();
        assert_eq!(figures.net_containers_per_second, None);
        assert_eq!(figures.allocations_per_cpu_second, Some(5));
    }

    #[test]
    fn damaged_figures_do_no_harm() {
        let mut last = PressureSums::default();
        let pressure = Pressure {
            at_ns: 1,
            net_containers: u64::MAX,
            arenas_mapped: Some(u64::MAX),
            arenas_unmapped: Some(0),
            ..Pressure::default()
        };
        last.add(&pressure);
        let figures = super::pressure(&last, Some("3.12.1")).unwrap();
        assert_eq!(figures.net_containers_per_second, Some(u64::MAX));
    }
}
