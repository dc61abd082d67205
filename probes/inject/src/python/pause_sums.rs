//! Exact sums of the pauses of one interpreter, for the program itself (`gctrace.summary()` of the Python package).

use gctrace_ring::RingPause;

/// Most pauses in `longest`: each of them is longer than all after it, and lengths vary.
const MOST: usize = 128;

/// Sums since the hook was added.
#[derive(Default)]
pub(crate) struct PauseSums {
    /// By generation, the youngest first.
    pub(crate) generations: [GenerationSums; 3],
    /// Collections that were not recorded, because gctrace does not listen any more.
    pub(crate) missed: u64,
    pauses: u64,
    /// Pauses without a longer later one: number and length in ns, the longest first.
    longest: Vec<(u64, u64)>,
}

/// Sums of one generation.
#[derive(Clone, Copy, Default)]
pub(crate) struct GenerationSums {
    pub(crate) pauses: u64,
    pub(crate) time_ns: u64,
    pub(crate) collected: u64,
}

impl PauseSums {
    pub(crate) fn add(&mut self, pause: &RingPause) {
        let interval = &pause.interval;
        let length_ns = gctrace_units::duration_ns(interval.start_ns, interval.end_ns);
        let place = usize::from(pause.generation).min(self.generations.len() - 1);
        if let Some(of) = self.generations.get_mut(place) {
            of.pauses += 1;
            of.time_ns += length_ns;
            gctrace_units::add_if_known(&mut of.collected, pause.collected.map(u64::from));
        }
        while matches!(self.longest.last(), Some((_, last_ns)) if *last_ns <= length_ns) {
            self.longest.pop();
        }
        if self.longest.len() < MOST {
            self.longest.push((self.pauses, length_ns));
        } else if let Some(last) = self.longest.last_mut() {
            // Stands for the shorter one after it, too.
            last.0 = self.pauses;
        }
        self.pauses += 1;
    }

    /// The longest pause after the first `pauses` ones, in ns; 0 without any.
    pub(crate) fn longest_since(&self, pauses: u64) -> u64 {
        let after = self.longest.partition_point(|(number, _)| *number < pauses);
        if let Some((_, length_ns)) = self.longest.get(after) { *length_ns } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_ring::TimeInterval;

    fn pause(length_ns: u64, generation: u8) -> RingPause {
        let interval = TimeInterval { start_ns: 10, end_ns: 10 + length_ns };
        RingPause { interval, generation, collected: Some(2), ..RingPause::default() }
    }

    #[test]
    fn the_longest_since_any_pause_is_known() {
        let lengths: Vec<u64> = (0..1000_u64).map(|one| one * 7919 % 1000).collect();
        let mut sums = PauseSums::default();
        for (at, length_ns) in lengths.iter().enumerate() {
            sums.add(&pause(*length_ns, (at % 4) as u8));
            for since in [0, at / 2, at, at + 1] {
                let longest = lengths[since..=at].iter().max().copied().unwrap_or(0);
                assert_eq!(sums.longest_since(since as u64), longest, "{since} {at}");
            }
        }
        let pauses = sums.generations.map(|of| of.pauses);
        assert_eq!(pauses, [250, 250, 500]);
        assert_eq!(sums.generations[0].collected, 500);
        let time_ns: u64 = sums.generations.iter().map(|of| of.time_ns).sum();
        assert_eq!(time_ns, lengths.iter().sum::<u64>());
    }

    #[test]
    fn ever_shorter_pauses_take_no_more_memory() {
        let mut sums = PauseSums::default();
        for length_ns in (0..1000).rev() {
            sums.add(&pause(length_ns, 0));
        }
        assert_eq!((sums.longest.len(), sums.longest_since(0)), (MOST, 999));
        assert!(sums.longest_since(999) > 0);
    }
}
