//! How long the collecting threads of a process used a CPU and waited for one, over time.

use crate::time::{add_to, beyond, duration_ns};
use gctrace_event::Pressure;
use gctrace_stats::scaled;

/// Readings that are kept: recorders make some hundred a day.
const KEPT: usize = 10_000;

/// CPU time and waits of some threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuWait {
    pub(crate) cpu_ns: u64,
    pub(crate) waited_ns: u64,
}

/// Readings of both, in order of time: each from the start of the recording on.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuWaits(Vec<(u64, CpuWait)>);

impl CpuWaits {
    pub(crate) fn add(&mut self, pressure: &Pressure) {
        if let (Some(cpu_ns), Some(waited_ns)) = (pressure.cpu_ns, pressure.cpu_wait_ns)
            && self.0.len() < KEPT
            && self.0.last().is_none_or(|(at_ns, _)| *at_ns < pressure.at_ns)
        {
            self.0.push((pressure.at_ns, CpuWait { cpu_ns, waited_ns }));
        }
    }

    /// Within these times; what no reading covers is taken to be like the rest. `None` if the readings
    /// cover less than half of it.
    pub(crate) fn within(&self, (from_ns, to_ns): (u64, u64)) -> Option<CpuWait> {
        let (mut sum, mut covered_ns) = (CpuWait::default(), 0);
        for pair in self.0.windows(2) {
            let [(start_ns, start), (end_ns, end)] = pair else { continue };
            let part_ns = duration_ns(from_ns.max(*start_ns), to_ns.min(*end_ns));
            let part =
                |start: u64, end: u64| scaled(beyond(end, start), part_ns, end_ns - start_ns);
            add_to(&mut covered_ns, part_ns);
            add_to(&mut sum.cpu_ns, part(start.cpu_ns, end.cpu_ns));
            add_to(&mut sum.waited_ns, part(start.waited_ns, end.waited_ns));
        }
        let length_ns = duration_ns(from_ns, to_ns);
        let whole = |part_ns: u64| scaled(part_ns, length_ns, covered_ns);
        if covered_ns == 0 || covered_ns < length_ns.div_ceil(2) {
            return None;
        }
        Some(CpuWait { cpu_ns: whole(sum.cpu_ns), waited_ns: whole(sum.waited_ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(readings: &[(u64, u64, u64)]) -> CpuWaits {
        let mut waits = CpuWaits::default();
        for (at_ns, cpu_ns, waited_ns) in readings.iter().copied() {
            waits.add(&Pressure {
                since_ns: at_ns,
                at_ns,
                cpu_ns: Some(cpu_ns),
                cpu_wait_ns: Some(waited_ns),
                ..Pressure::default()
            });
        }
        waits
    }

    #[test]
    fn what_no_reading_covers_is_like_the_rest() {
        let waits = waits(&[(1_000, 0, 0), (2_000, 100, 800), (4_000, 300, 2_000)]);
        let within = |from_ns, to_ns| {
            waits.within((from_ns, to_ns)).map(|wait| (wait.cpu_ns, wait.waited_ns))
        };
        assert_eq!(within(1_000, 2_000), Some((100, 800)));
        assert_eq!(within(1_500, 3_000), Some((150, 1_000)));
        assert_eq!(within(0, 4_000), Some((400, 2_666)));
        assert_eq!(within(3_000, 5_001), None);
        assert_eq!(within(6_000, 7_000), None);
        assert_eq!(within(2_000, 2_000), None);
    }

    #[test]
    fn absurd_readings_do_not_overflow() {
        let waits = waits(&[(5, u64::MAX, 0), (5, 1, 1), (6, 0, u64::MAX), (7, u64::MAX, 9)]);
        assert!(waits.within((0, u64::MAX)).is_none());
        assert!(waits.within((5, 8)).is_some());
    }
}
