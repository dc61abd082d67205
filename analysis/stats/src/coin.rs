//! A coin, from a seed: the same in each run and on each rank.

/// A generator of random numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Coin(u64);

impl Coin {
    /// A coin with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Heads or tails.
    pub fn toss(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// A number from 0 on below `count`, for a small `count`; 0 if `count` is.
    pub fn below(&mut self, count: usize) -> usize {
        let count = count.max(1) as u64;
        usize::try_from(self.next() % count).unwrap_or(0)
    }

    /// Puts them into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// A number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fair_and_repeats() {
        let tossed = |seed| {
            let mut coin = Coin::new(seed);
            (0..1_000).map(|_| coin.toss()).collect::<Vec<_>>()
        };
        assert_eq!(tossed(1), tossed(1));
        let heads = tossed(2).into_iter().filter(|heads| *heads).count();
        assert!((430..570).contains(&heads), "{heads}");
        let (mut coin, mut seen) = (Coin::new(3), [0; 6]);
        for _ in 0..600 {
            let mut order = [0, 1, 2];
            coin.shuffle(&mut order);
            let permutations = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
            let at = permutations.iter().position(|one| *one == order);
            seen[at.expect("a permutation")] += 1;
        }
        assert!(seen.iter().all(|times| (60..140).contains(times)), "{seen:?}");
    }
}
