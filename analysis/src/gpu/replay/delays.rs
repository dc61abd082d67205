//! A list of delays. Each takes 32 bits, one of a second or longer 64 more.

/// Delays in ns by place.
#[derive(Debug, Default)]
pub(super) struct DelayList {
    /// From [`SHORTEST`] on the delay itself; below, its place in `long`, counted from `i32::MIN`.
    short: Vec<i32>,
    long: Vec<i64>,
}

/// The lowest delay that `short` has itself.
const SHORTEST: i32 = -(1 << 30);

impl DelayList {
    /// Delays of 0.
    pub(super) fn zeros(count: usize) -> Self {
        Self { short: vec![0; count], long: Vec::new() }
    }

    pub(super) fn get(&self, at: usize) -> i64 {
        let short = self.short[at];
        if short >= SHORTEST { short.into() } else { self.long[place(short)] }
    }

    pub(super) fn set(&mut self, at: usize, delay_ns: i64) {
        if self.short[at] < SHORTEST {
            self.long[place(self.short[at])] = delay_ns;
        } else {
            self.short[at] = self.shortened(delay_ns);
        }
    }

    pub(super) fn push(&mut self, delay_ns: i64) {
        let short = self.shortened(delay_ns);
        self.short.push(short);
    }

    #[expect(clippy::expect_used, reason = "memory runs out before")]
    fn shortened(&mut self, delay_ns: i64) -> i32 {
        let short = i32::try_from(delay_ns).ok().filter(|short| *short >= SHORTEST);
        short.unwrap_or_else(|| {
            let place = u32::try_from(self.long.len()).ok();
            let short = place.and_then(|place| i32::MIN.checked_add_unsigned(place));
            self.long.push(delay_ns);
            short.filter(|short| *short < SHORTEST).expect("fewer than 2^30 long delays")
        })
    }

    /// All in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        (0..self.short.len()).map(|at| self.get(at))
    }

    /// Frees what it has room for.
    pub(super) fn shrink(&mut self) {
        self.short.shrink_to_fit();
        self.long.shrink_to_fit();
    }
}

// Derived, this would not reuse memory.
impl Clone for DelayList {
    fn clone(&self) -> Self {
        Self { short: self.short.clone(), long: self.long.clone() }
    }

    fn clone_from(&mut self, from: &Self) {
        self.short.clone_from(&from.short);
        self.long.clone_from(&from.long);
    }
}

fn place(short: i32) -> usize {
    short.wrapping_sub(i32::MIN) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn delay() -> impl Strategy<Value = i64> {
        let edges = [i64::from(SHORTEST), i64::from(i32::MAX), i64::MIN, i64::MAX];
        let near = prop::sample::select(edges.to_vec());
        let near = (near, -2i64..3).prop_map(|(edge, by)| edge.saturating_add(by));
        prop_oneof![near, any::<i64>(), any::<i32>().prop_map(i64::from)]
    }

    proptest! {
        #[test]
        fn delays_are_as_set(
            first in prop::collection::vec(delay(), 1..20),
            changes in prop::collection::vec((any::<prop::sample::Index>(), delay()), 0..40),
        ) {
            let (mut expected, mut list) = (first.clone(), DelayList::default());
            first.iter().for_each(|delay_ns| list.push(*delay_ns));
            for (at, delay_ns) in changes {
                let at = at.index(expected.len());
                expected[at] = delay_ns;
                list.set(at, delay_ns);
            }
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), expected);
            prop_assert!(list.long.len() <= first.len());
        }
    }
}
