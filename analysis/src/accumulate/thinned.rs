//! A series of any length in bounded memory: every n-th entry, n doubled whenever there is no more
//! room.

/// Every n-th of the entries added, evenly, at most `ROOM` of them.
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
    /// Whether the entry was kept.
    pub(crate) fn add(&mut self, point: T) -> bool {
        let is_kept = self.seen.is_multiple_of(self.every);
        if is_kept {
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
        is_kept
    }

    /// Whether every entry was kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.every == 1
    }

    /// The entries kept, in the order in which they were added.
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
