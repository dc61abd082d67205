//! Lists and tables that stay within a bound, whatever a trace contains.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Time before the newest record that [`Keep::Window`] covers, in ns: the 60 s that are shown, and
/// some seconds for late records.
pub(crate) const WINDOW_NS: u64 = 64_000_000_000;

/// How much of the past is kept, to compare late records with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    /// As much as memory allows; records that arrive later still count. For traces.
    #[default]
    All,
    /// The last [`WINDOW_NS`]; records before that are not counted: for recordings without end.
    Window,
}

/// The heaviest, `most` of them at most; equal ones stay in their order.
pub(crate) fn ranked<T, W: Ord>(
    all: impl IntoIterator<Item = T>,
    most: usize,
    weight: impl Fn(&T) -> W,
) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    all.sort_by_key(|one| Reverse(weight(one)));
    all.truncate(most);
    all
}

/// The value of a key; `None` if it is new and no more fit.
pub(crate) fn within_bound<K: Ord, V: Default>(
    map: &mut BTreeMap<K, V>,
    key: K,
    most: usize,
) -> Option<&mut V> {
    let fits = map.len() < most || map.contains_key(&key);
    if fits { Some(map.entry(key).or_default()) } else { None }
}

/// A series of any length in bounded memory: every n-th entry, n doubled whenever there is no more
/// room; at most `ROOM` of them, evenly.
#[derive(Debug, Clone)]
pub(crate) struct ThinnedSeries<T, const ROOM: usize> {
    points: Vec<T>,
    every: u64,
    seen: u64,
}

impl<T, const ROOM: usize> Default for ThinnedSeries<T, ROOM> {
    fn default() -> Self {
        Self { points: Vec::new(), every: 1, seen: 0 }
    }
}

impl<T: Copy, const ROOM: usize> ThinnedSeries<T, ROOM> {
    pub(crate) fn add(&mut self, point: T) {
        if self.seen.is_multiple_of(self.every) {
            if self.points.len() >= ROOM {
                let mut index = 0usize;
                self.points.retain(|_| {
                    index += 1;
                    !index.is_multiple_of(2)
                });
                self.every *= 2;
            }
            // Also right after thinning: the series is even, so this point is in step.
            self.points.push(point);
        }
        self.seen += 1;
    }

    /// Whether every entry was kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.every == 1
    }

    /// The entries kept, in order of addition.
    pub(crate) fn points(&self) -> &[T] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_spans_the_run_evenly() {
        const ROOM: usize = 64;
        let mut series = ThinnedSeries::<u64, ROOM>::default();
        for n in 0..10_000 {
            series.add(n);
        }
        let kept = series.points();
        assert!(kept.len() <= ROOM && kept.len() > ROOM / 2, "{kept:?}");
        let step = kept[1] - kept[0];
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == step), "{kept:?}");
        assert_eq!(kept[0], 0);
        assert!(kept.last().unwrap() + step >= 10_000);
    }
}
