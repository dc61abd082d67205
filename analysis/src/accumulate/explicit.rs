//! Which collections the program asked for, where no record has their reason.

use gctrace_event::GcReason;

/// Collections of one interpreter, in order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExplicitCalls {
    threshold: i64,
    /// Collections of the middle generation since the last full one; `None` until there was one: those before the
    /// first record count too, as in the parent of a forked process.
    middle: Option<i64>,
    previous: Option<u8>,
}

impl ExplicitCalls {
    pub(crate) fn under(thresholds: [i32; 3]) -> Self {
        let mut calls = Self::default();
        calls.set(thresholds);
        calls
    }

    /// The thresholds from now on.
    pub(crate) fn set(&mut self, [_, _, old]: [i32; 3]) {
        self.threshold = i64::from(old.max(0));
    }

    /// Whether the program asked for the next collection.
    pub(crate) fn is_explicit(&mut self, generation: u8, reason: GcReason) -> bool {
        let is_explicit = match reason {
            GcReason::Automatic => false,
            // CPython runs an automatic full collection at the first chance after one of the
            // middle generation by which threshold 2 is exceeded, and by which what is pending
            // grew (`gc.c`, `gc_select_generation`).
            GcReason::Unknown => {
                let may_exceed = self.middle.is_none_or(|middle| middle > self.threshold);
                let may_follow = self.previous.is_none_or(|previous| previous == 1);
                generation == 2 && !(may_exceed && may_follow)
            }
            GcReason::Manual | GcReason::Shutdown => true,
        };
        self.previous = Some(generation);
        match generation {
            2 => self.middle = Some(0),
            1 => self.middle = self.middle.map(|middle| middle + 1),
            _ => {}
        }
        is_explicit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of generations in their order, whether each was asked for.
    fn explicit(generations: &[u8]) -> Vec<bool> {
        let mut calls = ExplicitCalls::under([700, 10, 10]);
        generations.iter().map(|of| calls.is_explicit(*of, GcReason::Unknown)).collect()
    }

    /// A forked process has its parent's counts: its first full collection may come at any time.
    #[test]
    fn the_first_full_collection_may_be_due_from_before() {
        assert_eq!(explicit(&[2]), [false]);
        assert_eq!(explicit(&[0, 0, 1, 2]), [false; 4]);
        // None is due right after a young one.
        assert_eq!(explicit(&[0, 2]), [false, true]);
        // From then on all are known.
        assert_eq!(explicit(&[2, 2]), [false, true]);
        assert_eq!(explicit(&[2, 1, 2]), [false, false, true]);
        let mut due = vec![2];
        due.extend([1; 11]);
        due.push(2);
        assert_eq!(explicit(&due), [false; 13]);
    }
}
