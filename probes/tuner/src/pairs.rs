//! Pairs of neighboring blocks: their differences, and the computed share of these.

use super::price::BlockCost;
use gctrace_settings::{AutoDifference, AutoDifferences};
use gctrace_stats::mixture::{PairedDifferences, difference};

/// All pairs so far of a setting and the setting it is compared with.
#[derive(Debug, Default)]
pub(super) struct BlockPairs {
    pub(super) cpu: PairedDifferences,
    wall: PairedDifferences,
    collecting: PairedDifferences,
    /// Sums over pairs, the setting less the other, in ns: of the computed part, and of all.
    computed_ns: [f64; 2],
}

impl BlockPairs {
    /// Adds a pair: the setting's block, and the other's.
    pub(super) fn push(&mut self, one: &BlockCost, other: &BlockCost) {
        self.cpu.push(difference(one.cpu_ns, other.cpu_ns));
        self.wall.push(difference(one.wall_ns, other.wall_ns));
        let both_ns = (one.cpu_ns + other.cpu_ns).max(1.0);
        self.collecting.push(2.0 * (one.collecting_ns - other.collecting_ns) / both_ns);
        self.computed_ns[0] += one.full_ns - other.full_ns;
        self.computed_ns[1] += one.cpu_ns - other.cpu_ns;
    }

    /// Share of the difference of CPU time that is computed; `None`: there is no difference.
    pub(super) fn computed_share(&self) -> Option<f64> {
        let [computed, all] = self.computed_ns;
        if all != 0.0 { Some(computed / all) } else { None }
    }

    pub(super) fn reported(&self) -> AutoDifferences {
        AutoDifferences {
            cpu: reported(&self.cpu),
            wall: reported(&self.wall),
            collections: reported(&self.collecting),
            computed_share: self.computed_share(),
        }
    }
}

fn reported(pairs: &PairedDifferences) -> AutoDifference {
    let interval = pairs.interval();
    AutoDifference {
        mean: if pairs.count() > 0 { Some(pairs.mean()) } else { None },
        low: interval.map(|one| one.low),
        high: interval.map(|one| one.high),
        p: pairs.p_value(),
    }
}
