//! Time that pauses cover.

use crate::gpu::timeline::Timeline;

/// The union of a timeline's pauses.
#[derive(Debug, Default)]
pub(super) struct PauseUnion {
    /// Disjoint, in order: start, end, and the length of all before.
    spans: Vec<(u64, u64, u64)>,
}

impl PauseUnion {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let mut pauses: Vec<(u64, u64)> = timeline
            .pauses
            .iter()
            .map(|pause| (pause.start_ns, pause.end_ns))
            .filter(|(start, end)| start < end)
            .collect();
        pauses.sort_unstable();
        let mut spans: Vec<(u64, u64, u64)> = Vec::with_capacity(pauses.len());
        for (start, end) in pauses {
            match spans.last_mut() {
                Some((_, last, _)) if start <= *last => *last = end.max(*last),
                last => {
                    let before = last.map_or(0, |(start, end, before)| *before + (*end - *start));
                    spans.push((start, end, before));
                }
            }
        }
        Self { spans }
    }

    /// The time between two timestamps, minus the part that pauses cover.
    pub(super) fn outside(&self, from_ns: u64, to_ns: u64) -> u64 {
        let covered = self.until(to_ns).saturating_sub(self.until(from_ns));
        to_ns.saturating_sub(from_ns).saturating_sub(covered)
    }

    /// Time covered before a time.
    fn until(&self, at_ns: u64) -> u64 {
        let behind = self.spans.partition_point(|(start, _, _)| *start < at_ns);
        let last = behind.checked_sub(1).and_then(|last| self.spans.get(last));
        last.map_or(0, |(start, end, before)| before + (at_ns.min(*end) - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_pauses_count_once() {
        let spans = vec![(10, 20, 0), (30, 40, 10)];
        let covered = PauseUnion { spans };
        assert_eq!(covered.outside(0, 50), 30);
        assert_eq!(covered.outside(15, 35), 10);
        assert_eq!(covered.outside(20, 30), 10);
        assert_eq!(covered.outside(30, 20), 0);
    }
}
