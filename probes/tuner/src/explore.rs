//! The search for the best setting: all are tried in short blocks, half of them left out after each round.
//!
//! The measure is the charged CPU time of collections, not of steps: it varies by microseconds.

use super::block::{Block, BlockKind};
use super::price::{BlockCost, SUSPENDED, Thresholds};
use gctrace_settings::{AutoDifference, AutoDifferences, ComparedSetting, GcSetting};
use gctrace_stats::coin::Coin;
use gctrace_stats::{float, whole};

/// First thresholds that are tried. Two neighbors were never apart by more than the noise where they
/// were the best.
const FIRST: [u32; 3] = [2_000, 10_000, 50_000];
/// The first threshold that brings enough looks if only collections bring them.
const LOOKING: u32 = 500_000;
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

/// Thresholds that are as good as none: no automatic collection, or, `by_time`, no full one.
pub(super) fn off([_, second, third]: Thresholds, by_time: bool) -> Thresholds {
    if by_time { [LOOKING, second, SUSPENDED] } else { [SUSPENDED, second, third] }
}

pub(super) fn is_off([first, _, third]: Thresholds) -> bool {
    first >= SUSPENDED || third >= SUSPENDED
}

/// Thresholds as `gctrace apply` takes them.
pub(super) fn setting(thresholds: Thresholds, freezes: bool) -> GcSetting {
    let [first, second, third] = thresholds;
    let thresholds = match is_off(thresholds) {
        true => "disable@start".to_owned(),
        false => format!("threshold={first},{second},{third}"),
    };
    let freeze = if freezes { ",freeze@step:2" } else { "" };
    format!("{thresholds}{freeze}").parse().unwrap_or_default()
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
    /// `own`: the program's thresholds, with a block of this cost. `longest_ns`: no young collection may be as long.
    /// `off`: thresholds that are tried too. `None`: there is nothing to try.
    pub(super) fn new(
        own: Thresholds,
        cost: &BlockCost,
        longest_ns: Option<u64>,
        off: Option<Thresholds>,
    ) -> Option<Self> {
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
        let all = std::iter::once(first).chain(others).map(|first| [first, second, third]);
        let off = off.filter(|[first, ..]| may(*first));
        let tried = |thresholds| Tried { thresholds, is_out: false, costs: Vec::new() };
        let tried: Vec<Tried> = all.chain(off).map(tried).collect();
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
        if others.len() >= 2 || self.round <= 1 {
            return None;
        }
        Some(others.first().copied().unwrap_or(0))
    }

    /// Results by now, the program's own settings first.
    pub(super) fn reported(&self) -> Vec<ComparedSetting> {
        let own = &self.tried[0];
        let all_ns = own.mean(|cost| cost.cpu_ns);
        let difference = |tried: &Tried| {
            let blocks = own.costs.len().min(tried.costs.len());
            if blocks == 0 || all_ns <= 0.0 {
                return AutoDifference::default();
            }
            let mean = (tried.mean(collecting) - own.mean(collecting)) / all_ns;
            // Student's quantiles for so few blocks, or a little more.
            let quantile = 2.0 + 2.3 / float(blocks as u64 - 1);
            let half = quantile * (own.squared_error() + tried.squared_error()).sqrt() / all_ns;
            // As a share of the mean of both.
            let share = |of_own: f64| of_own / (1.0 + of_own / 2.0);
            let [low, high] = [mean - half, mean + half]
                .map(|end| if blocks > 1 { Some(share(end)) } else { None });
            AutoDifference { mean: Some(share(mean)), low, high, p: None }
        };
        let reported = self.tried.iter().map(|tried| ComparedSetting {
            setting: setting(tried.thresholds, false),
            pairs: tried.costs.len() as u64,
            cpu_ns: whole(tried.mean(|cost| cost.cpu_ns)),
            wall_ns: whole(tried.mean(|cost| cost.wall_ns)),
            collecting_ns: whole(tried.mean(collecting)),
            full_ns: whole(tried.mean(|cost| cost.full_ns)),
            differences: AutoDifferences {
                collections: difference(tried),
                ..AutoDifferences::default()
            },
        });
        reported.collect()
    }

    /// Steps of blocks of other settings than the program's own, and their extra cost, in ns; below 0: they cost less.
    pub(super) fn cost(&self) -> (u64, f64) {
        let own = self.tried[0].mean(collecting);
        let others = self.tried.iter().skip(1).flat_map(|tried| &tried.costs);
        others.fold((0, 0.0), |(all, lost_ns), (cost, steps)| {
            (all + steps, lost_ns + (cost.collecting_ns - own) * float(*steps))
        })
    }
}
