//! Always-valid intervals of a mean of pairs: they may be looked at after each pair, and stop there.
//!
//! A pair is two neighboring blocks of steps, one with each of two settings, in an order that a coin decides. Its
//! difference is antisymmetric in the two, so if the settings do not differ, each sign is a fair coin whatever the
//! sizes are: no tail, drift or autocorrelation of the times matters. With `S` the sum of the differences and `V` the
//! sum of their squares, `exp(l S - l^2 V / 2)` is then a supermartingale for each `l` (de la Pena, The Annals of
//! Probability 27, 1999). So is its mean over normally distributed `l`: `M` below. By Ville's inequality `M` ever
//! exceeds 1/a with a probability of at most a. The interval consists of the means with `M` at most 1/a: it takes for
//! granted that the differences are symmetric about their mean.

/// Probability that an interval ever misses the mean.
pub const ALPHA: f64 = 0.05;

/// Fewest pairs that have an interval. `S^2 <= t V` bounds `M`, so that some more are needed.
const FEWEST: usize = 8;

/// Number of pairs with the tightest interval: gains of a few percent are shown soonest.
const TIGHTEST_AT: f64 = 50.0;

/// `-2 ln a + ln(-2 ln a) + 1`: with it the interval is the tightest there.
const SCALE: f64 = 8.78;

/// Halvings of an end of the interval: more than the digits of its width.
const HALVINGS: u32 = 48;

/// An end is searched so many standard deviations from the mean.
const FARTHEST: f64 = 30.0;

/// The difference of a pair by its mean: 0 if both are alike, at most 2 to either side. Exchanging them
/// changes its sign alone.
pub fn difference(held: f64, own: f64) -> f64 {
    let sum = held + own;
    if sum > 0.0 { 2.0 * (held - own) / sum } else { 0.0 }
}

/// `own` as a multiple of `held`, from the difference of a pair.
pub fn own_by_held(difference: f64) -> f64 {
    let difference = difference.clamp(-1.999, 1.999);
    (2.0 - difference) / (2.0 + difference)
}

/// Both ends of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixtureInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Sums of differences from any value follow from these.
#[derive(Clone, Copy, Debug, Default)]
struct PairSums {
    count: f64,
    sum: f64,
    squares: f64,
}

impl PairSums {
    fn push(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    /// The sum of the distances from `mu`, and of their squares.
    fn from(&self, mu: f64) -> (f64, f64) {
        let squares = self.squares - 2.0 * mu * self.sum + self.count * mu * mu;
        (self.sum - self.count * mu, squares.max(0.0))
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }
}

/// The pairs so far, in a few numbers however many there are.
#[derive(Clone, Debug, Default)]
pub struct PairedDifferences {
    pairs: usize,
    all: PairSums,
    /// The first [`FEWEST`].
    first: PairSums,
    /// The intersection of all intervals so far; it covers the mean as often as each of them.
    common: Option<MixtureInterval>,
    /// The largest `ln M` of a mean of 0 so far.
    against_none: Option<f64>,
}

impl PairedDifferences {
    /// Adds a pair. Anything but a number is left out.
    pub fn push(&mut self, difference: f64) {
        if !difference.is_finite() {
            return;
        }
        self.add(difference);
        if self.pairs >= FEWEST {
            let now = self.evidence(0.0);
            self.against_none = Some(self.against_none.unwrap_or(now).max(now));
        }
        if let Some(now) = self.interval_now() {
            let before = self.common.unwrap_or(now);
            let (low, high) = (before.low.max(now.low), before.high.min(now.high));
            let common = MixtureInterval { low, high };
            // They miss each other if the mean has moved: then the last one says more.
            self.common = Some(if common.low <= common.high { common } else { now });
        }
    }

    fn add(&mut self, difference: f64) {
        if self.pairs < FEWEST {
            self.first.push(difference);
        }
        self.pairs += 1;
        self.all.push(difference);
    }

    /// Number of pairs.
    pub fn count(&self) -> usize {
        self.pairs
    }

    /// The mean of the differences; 0 without any.
    pub fn mean(&self) -> f64 {
        self.all.mean()
    }

    /// The interval by now, at [`ALPHA`] over all looks; `None`: there are too few pairs for one.
    pub fn interval(&self) -> Option<MixtureInterval> {
        self.common
    }

    /// The p of no difference, over all looks; `None`: there are too few pairs for one.
    pub fn p_value(&self) -> Option<f64> {
        self.against_none.map(|most| (-most).exp().min(1.0))
    }

    fn interval_now(&self) -> Option<MixtureInterval> {
        if self.pairs < FEWEST {
            return None;
        }
        let mean = self.mean();
        let (_, squares) = self.all.from(mean);
        let deviation = (squares / (self.all.count - 1.0)).sqrt().max(1e-9);
        Some(MixtureInterval { low: self.end(mean, -deviation)?, high: self.end(mean, deviation)? })
    }

    /// The end of the interval on the side that `deviation` points to; `None`: none so near.
    fn end(&self, mean: f64, deviation: f64) -> Option<f64> {
        let (mut inside, mut outside) = (0.0, FARTHEST);
        if !self.excludes(mean + outside * deviation) {
            return None;
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(inside, outside);
            if self.excludes(mean + middle * deviation) {
                outside = middle;
            } else {
                inside = middle;
            }
        }
        Some(mean + outside * deviation)
    }

    /// Whether `M` exceeds 1/a if `mu` is the mean.
    fn excludes(&self, mu: f64) -> bool {
        self.evidence(mu) >= -ALPHA.ln()
    }

    /// `ln M` if `mu` is the mean. The width of the mixture follows from the sizes of the first differences; these say
    /// nothing of their signs.
    fn evidence(&self, mu: f64) -> f64 {
        let (_, first) = self.first.from(mu);
        let (sum, squares) = self.all.from(mu);
        let ratio = SCALE / (TIGHTEST_AT * (first / self.first.count.max(1.0)).max(1e-20));
        let width = ratio.mul_add(squares, 1.0);
        ratio * sum * sum / (2.0 * width) - width.ln() / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coin::Coin;
    use proptest::prelude::*;

    /// Steps that no theorem helps with: 5 % of noise with a memory, spells of load that take 30 %
    /// more, and rare steps up to ten times as long.
    struct Steps {
        coin: Coin,
        memory: f64,
        load: f64,
    }

    impl Steps {
        fn new(seed: u64) -> Self {
            Self { coin: Coin::new(seed), memory: 0.0, load: 1.0 }
        }

        fn next(&mut self) -> f64 {
            // Nearly normal: the sum of twelve.
            let noise = (0..12).map(|_| self.coin.share()).sum::<f64>() - 6.0;
            self.memory = 0.95 * self.memory + 0.05 * noise * 0.31;
            if self.coin.share() < 0.005 {
                self.load = if self.load > 1.0 { 1.0 } else { 1.3 };
            }
            let spike = if self.coin.share() < 0.01 {
                self.coin.share().max(1e-3).powf(-1.0 / 2.2).min(10.0)
            } else {
                1.0
            };
            self.memory.exp() * self.load * spike
        }

        fn block(&mut self) -> f64 {
            (0..25).map(|_| self.next()).sum()
        }

        /// A pair with a second setting that takes `ratio` times as long.
        fn pair(&mut self, ratio: f64) -> f64 {
            let (first, second) = (self.block(), self.block());
            if self.coin.toss() {
                difference(first * ratio, second)
            } else {
                difference(second * ratio, first)
            }
        }
    }

    /// The number of runs, among this many, with an interval that excludes `value` after any of its pairs.
    fn excluding(runs: u64, pairs: usize, ratio: f64, value: f64) -> u64 {
        let misses = |seed: &u64| {
            let (mut steps, mut all) = (Steps::new(*seed), PairedDifferences::default());
            (0..pairs).any(|_| {
                all.add(steps.pair(ratio));
                all.count() >= FEWEST && all.excludes(value)
            })
        };
        (1..=runs).filter(misses).count() as u64
    }

    #[test]
    fn nothing_to_gain_is_claimed_in_one_of_twenty_runs_at_most() {
        // With 0.05 of 300 the chance of more than 24 is 1 %; a t interval claims in 50 or more.
        let claimed = excluding(300, 120, 1.0, 0.0);
        assert!(claimed <= 24, "{claimed}");
    }

    #[test]
    fn a_known_gain_is_covered() {
        let ratio = 0.93;
        let missed = excluding(300, 120, ratio, difference(ratio, 1.0));
        assert!(missed <= 24, "{missed}");
        // And it is found: nearly all exclude 0.
        let found = excluding(100, 200, ratio, 0.0);
        assert!(found >= 90, "{found}");
    }

    #[test]
    fn a_gain_is_what_was_saved() {
        let found = own_by_held(difference(0.8, 1.0));
        assert!((found - 1.25).abs() < 1e-9, "{found}");
        assert_eq!(difference(0.0, 0.0), 0.0);
        assert!(own_by_held(-5.0).is_finite());
    }

    #[test]
    fn few_pairs_have_no_interval() {
        let mut all = PairedDifferences::default();
        for at in 1..=40 {
            all.push(-0.1 + 0.001 * f64::from(at % 3));
            all.push(f64::NAN);
            let interval = all.interval();
            assert_eq!(interval.is_some(), at > 10, "{at}: {interval:?}");
            assert_eq!(all.p_value().is_some(), at >= 8);
        }
        let interval = all.interval().expect("40 pairs");
        assert!(interval.low < -0.099 && interval.high < -0.09, "{interval:?}");
    }

    proptest! {
        #[test]
        fn exchanging_settings_changes_the_sign(pairs in prop::collection::vec((0.1..9.0, 0.1..9.0), 0..60)) {
            let (mut one, mut other) = (PairedDifferences::default(), PairedDifferences::default());
            for (first, second) in pairs {
                one.push(difference(first, second));
                other.push(difference(second, first));
            }
            prop_assert_eq!(one.mean(), -other.mean());
            let excludes = |one: &PairedDifferences| {
                one.interval().is_some_and(|found| found.low > 0.0 || found.high < 0.0)
            };
            for each in [&one, &other] {
                prop_assert!(!excludes(each) || each.p_value() <= Some(ALPHA), "{each:?}");
            }
            match (one.interval(), other.interval()) {
                (Some(one), Some(other)) => {
                    prop_assert!((one.low + other.high).abs() < 1e-6, "{:?} {:?}", one, other);
                    prop_assert!((one.high + other.low).abs() < 1e-6, "{:?} {:?}", one, other);
                }
                (one, other) => prop_assert_eq!(one.is_some(), other.is_some()),
            }
        }

        #[test]
        fn any_differences_have_ends_in_order(pairs in prop::collection::vec(-2.0..2.0, 0..80)) {
            let mut all = PairedDifferences::default();
            for one in pairs {
                all.push(one);
                if let Some(found) = all.interval() {
                    prop_assert!(found.low <= found.high && found.low.is_finite() && found.high.is_finite());
                }
            }
        }
    }
}
