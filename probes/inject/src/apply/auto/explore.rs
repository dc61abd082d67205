//! Which setting is the best: tried in short blocks, half of them left out after each round.
//!
//! By the charged CPU time of collections, which varies by microseconds, not by that of steps.

use super::block::{Block, BlockKind};
use super::coin::Coin;
use super::price::{BlockCost, Thresholds, float, whole};

/// First thresholds that are tried. Two neighbors were never apart by more than the noise where they
/// were the best.
const FIRST: [u32; 3] = [2_000, 10_000, 50_000];
/// Steps of a block.
const SHORTEST: u64 = 25;
const LONGEST: u64 = 200;
/// Blocks of long steps are shorter, if they take this long, in ns; not below [`FEWEST`].
const LONG_NS: f64 = 250e6;
const FEWEST: u64 = 5;
/// Collections of generation 1 that a block spans.
const PERIODS: f64 = 2.0;
/// CPU time to collect an object of cyclic garbage, in ns (measured with 1.6 million of them).
const COLLECTING_NS: u64 = 163;

/// A setting that is tried. The first is the program's own.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) thresholds: Thresholds,
    is_out: bool,
    pub(super) costs: Vec<(BlockCost, u64)>,
}

impl Tried {
    pub(super) fn mean(&self, of: fn(&BlockCost) -> f64) -> f64 {
        let sum: f64 = self.costs.iter().map(|(cost, _)| of(cost)).sum();
        sum / float(self.costs.len().max(1) as u64)
    }

    /// Squared standard error of the mean of collecting.
    pub(super) fn squared_error(&self) -> f64 {
        let (mean, count) = (self.mean(collecting), float(self.costs.len() as u64));
        let squares: f64 =
            self.costs.iter().map(|(cost, _)| (cost.collecting_ns - mean).powi(2)).sum();
        squares / (count * (count - 1.0)).max(1.0)
    }
}

/// Steps of a compared block of a program that a block of this cost has shown.
pub(super) fn block_steps(cost: &BlockCost) -> u64 {
    let shortest = whole(LONG_NS / cost.cpu_ns.max(1.0)).clamp(FEWEST, SHORTEST);
    let spanning = PERIODS / cost.middle.max(1e-9);
    whole(spanning.min(float(LONGEST))).clamp(shortest, LONGEST)
}

pub(super) fn collecting(cost: &BlockCost) -> f64 {
    cost.collecting_ns
}

/// One search.
#[derive(Debug)]
pub(super) struct Exploration {
    pub(super) tried: Vec<Tried>,
    pub(super) queue: Vec<usize>,
    round: u32,
    /// Steps of a block.
    pub(super) block: u64,
}

impl Exploration {
    /// Of a program with these thresholds, that a block of this cost has shown. `longest_ns`: no young
    /// collection may be as long. `None`: there is nothing to try.
    pub(super) fn new(own: Thresholds, cost: &BlockCost, longest_ns: Option<u64>) -> Option<Self> {
        let [first, second, third] = own;
        if first == 0 || third == 0 {
            // Switched off, or without this rule.
            return None;
        }
        let is_near = |one: u32| u64::from(one) * 2 < u64::from(first) * 3;
        let may = |one: u32| {
            longest_ns.is_none_or(|longest_ns| u64::from(one) * COLLECTING_NS < longest_ns)
        };
        let others = FIRST.into_iter().filter(|one| !is_near(*one) && may(*one));
        let tried =
            |first| Tried { thresholds: [first, second, third], is_out: false, costs: Vec::new() };
        let tried: Vec<Tried> = std::iter::once(first).chain(others).map(tried).collect();
        if tried.len() < 2 && longest_ns.is_none() {
            return None;
        }
        Some(Self { tried, queue: Vec::new(), round: 0, block: block_steps(cost) })
    }

    /// Two blocks of each setting, twice as many in each later round, in random order.
    pub(super) fn begin_round(&mut self, coin: &mut Coin) {
        for _ in 0..2_u32 << self.round {
            let all = self.tried.iter().enumerate().filter(|(_, tried)| !tried.is_out);
            let mut places: Vec<usize> = all.map(|(at, _)| at).collect();
            coin.shuffle(&mut places);
            self.queue.append(&mut places);
        }
    }

    pub(super) fn next_block(&self) -> Option<Block> {
        let place = *self.queue.last()?;
        let thresholds = self.tried.get(place)?.thresholds;
        Some(Block { kind: BlockKind::Tried(place), thresholds, steps: self.block })
    }

    /// After a round: leaves the worse half out. `Some`: the place of the best of the others.
    pub(super) fn halve(&mut self) -> Option<usize> {
        self.round += 1;
        let mut others: Vec<usize> =
            (1..self.tried.len()).filter(|at| !self.tried[*at].is_out).collect();
        others.sort_by(|one, other| {
            let mean = |at: &usize| self.tried[*at].mean(collecting);
            mean(one).total_cmp(&mean(other))
        });
        for out in others.split_off(others.len().div_ceil(2)) {
            self.tried[out].is_out = true;
        }
        (others.len() < 2 && self.round > 1).then(|| others.first().copied().unwrap_or(0))
    }

    /// Steps of blocks of other settings than the program's own, and what they cost more, in ns; below 0:
    /// less.
    pub(super) fn cost(&self) -> (u64, f64) {
        let own = self.tried[0].mean(collecting);
        let others = self.tried.iter().skip(1).flat_map(|tried| &tried.costs);
        others.fold((0, 0.0), |(all, lost_ns), (cost, steps)| {
            (all + steps, lost_ns + (cost.collecting_ns - own) * float(*steps))
        })
    }
}
