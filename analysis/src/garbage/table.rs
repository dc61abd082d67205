//! Sums by what records number, in bounded memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

/// Numbers that are known per row, at most: equal kinds may have any number of them (classes made
/// at run time).
const NUMBERS_PER_ROW: usize = 64;

/// Sums that a row of a [`SumTable`] has.
pub(super) trait RowSums: Default {
    /// Rows with less of it make room for new ones.
    fn weight(&self) -> u64;
}

/// Rows by key, with the numbers that records name them by. Equal keys are one row.
#[derive(Clone, Debug, Default)]
pub(super) struct SumTable<K, S> {
    rows: Vec<(K, S)>,
    by_key: HashMap<K, usize>,
    by_number: HashMap<u32, usize>,
    room: usize,
}

impl<K: Clone + Default + Eq + Hash, S: RowSums> SumTable<K, S> {
    /// A table of at most `room` rows, 2 at least.
    pub(super) fn new(room: usize) -> Self {
        Self { room: room.max(2), ..Self::default() }
    }

    /// From now on this number means this key. If there is no room, the half of the rows with the
    /// least weight is dropped.
    pub(super) fn name(&mut self, number: u32, key: K) {
        if self.rows.len() >= self.room && !self.by_key.contains_key(&key) {
            self.halve();
        }
        let rows = &mut self.rows;
        let row = *self.by_key.entry(key).or_insert_with_key(|key| {
            rows.push((key.clone(), S::default()));
            rows.len() - 1
        });
        let full = self.by_number.len() >= self.room.saturating_mul(NUMBERS_PER_ROW);
        if !full || self.by_number.contains_key(&number) {
            self.by_number.insert(number, row);
        } else {
            self.by_number.remove(&number);
        }
    }

    /// What this number means; `None` if that is unknown, or was dropped.
    pub(super) fn key(&self, number: u32) -> Option<&K> {
        let row = self.rows.get(*self.by_number.get(&number)?)?;
        Some(&row.0)
    }

    /// The sums of this number, as for [`SumTable::key`].
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut S> {
        let row = self.rows.get_mut(*self.by_number.get(&number)?)?;
        Some(&mut row.1)
    }

    /// The rows with weight, largest first; of equal weight the one named first.
    pub(super) fn ranked(&self) -> Vec<&(K, S)> {
        let mut rows: Vec<&(K, S)> = self.rows.iter().filter(|row| row.1.weight() > 0).collect();
        rows.sort_by_key(|row| Reverse(row.1.weight()));
        rows
    }

    fn halve(&mut self) {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let weight =
            |at: &usize| if let Some(row) = self.rows.get(*at) { row.1.weight() } else { 0 };
        order.sort_by_key(|row| Reverse(weight(row)));
        let kept = order.len() / 2;
        let mut places: Vec<Option<usize>> = vec![None; order.len()];
        for row in order.iter().take(kept) {
            if let Some(place) = places.get_mut(*row) {
                *place = Some(0);
            }
        }
        for (next, place) in places.iter_mut().flatten().enumerate() {
            *place = next;
        }
        let mut kept = places.iter().map(Option::is_some);
        self.rows.retain(|_| kept.next().unwrap_or(false));
        let moved = |row: &mut usize| match places.get(*row).copied().flatten() {
            Some(place) => {
                *row = place;
                true
            }
            None => false,
        };
        self.by_key.retain(|_, row| moved(row));
        self.by_number.retain(|_, row| moved(row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl RowSums for u64 {
        fn weight(&self) -> u64 {
            *self
        }
    }

    proptest! {
        /// A number never means another key, no row has more than was added to its key, and the
        /// heaviest row is never dropped.
        #[test]
        fn counts_stay_with_their_key(
            events in prop::collection::vec((0u32..40, 0u8..30, 1u64..100), 0..200),
            room in 2usize..20,
        ) {
            let mut table = SumTable::<u8, u64>::new(room);
            let mut added: HashMap<u8, u64> = HashMap::new();
            let mut meant: HashMap<u32, u8> = HashMap::new();
            table.name(1_000, 99);
            *table.get_mut(1_000).unwrap() = 100_000;
            for (number, key, count) in events {
                table.name(number, key);
                meant.insert(number, key);
                prop_assert_eq!(table.key(number), Some(&key));
                *table.get_mut(number).unwrap() += count;
                *added.entry(key).or_default() += count;
                prop_assert!(table.rows.len() <= room.max(2));
                for (number, key) in &meant {
                    prop_assert!(table.key(*number).is_none_or(|known| known == key));
                }
            }
            let ranked = table.ranked();
            prop_assert!(ranked.windows(2).all(|pair| pair[0].1 >= pair[1].1));
            prop_assert_eq!(ranked[0], &(99, 100_000));
            for (key, count) in &ranked[1..] {
                prop_assert!(*count <= added[key]);
            }
        }
    }
}
