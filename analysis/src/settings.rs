//! Settings of the collector in one process, and the collections that they do not explain: the program asked
//! for these, where no record has their reason.

use crate::figure::{Basis, Location};
use gctrace_event::{GcReason, GcSettings};
use serde::Serialize;

/// The collector's settings in a process, as last recorded.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingsReport {
    /// Always measured: read from the interpreter's state.
    pub basis: Basis,
    /// Whether automatic collection is enabled (`gc.isenabled()`); `null` if unknown.
    pub enabled: Option<bool>,
    /// Thresholds of generations 0, 1 and 2, as in `gc.get_threshold()`.
    pub thresholds: [i32; 3],
    /// Number of changes after the first record.
    pub changes: u64,
    /// The line that set them; `null` if it is unknown, or if none did.
    pub set_by: Option<Location>,
}

impl SettingsReport {
    /// Initial thresholds of CPython 3.8 - 3.11, for processes with unknown settings.
    pub const DEFAULT_THRESHOLDS: [i32; 3] = [700, 10, 10];

    /// These thresholds with the first one ten times as high.
    pub fn raised([young, middle, old]: [i32; 3]) -> [i32; 3] {
        [young.max(100).saturating_mul(10), middle, old]
    }
}

/// The settings of one process that were read last.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsSums {
    pub(crate) latest: Option<GcSettings>,
    /// How often they changed after they were first read.
    changes: u64,
}

impl SettingsSums {
    /// Adds settings. Whether these are the latest, and new.
    pub(crate) fn add(&mut self, settings: &GcSettings) -> bool {
        let mut is_new = true;
        if let Some(old) = &self.latest {
            is_new = old.enabled != settings.enabled || old.thresholds != settings.thresholds;
            self.changes += u64::from(is_new);
            if old.at_ns > settings.at_ns {
                return false;
            }
        }
        self.latest = Some(settings.clone());
        is_new
    }

    pub(crate) fn thresholds(&self) -> Option<[i32; 3]> {
        self.latest.as_ref().map(|settings| settings.thresholds)
    }

    /// `None` if none were read. `set_by`: the line that set them.
    pub(crate) fn report(&self, set_by: Option<Location>) -> Option<SettingsReport> {
        let GcSettings { enabled, thresholds, .. } = *self.latest.as_ref()?;
        let (basis, changes) = (Basis::Measured, self.changes);
        Some(SettingsReport { basis, enabled, thresholds, changes, set_by })
    }
}

/// Collections of one interpreter, in order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExplicitCalls {
    threshold: i64,
    /// Collections of the middle generation since the last full one; `None` until there was one: collections before
    /// the first record count too, as in the parent of a forked process.
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
            // CPython runs an automatic full collection at the first chance after a collection of the middle
            // generation that exceeded threshold 2 and increased the pending objects (`gc.c`,
            // `gc_select_generation`).
            GcReason::Unknown => {
                let may_exceed = self.middle.is_none_or(|middle| middle > self.threshold);
                let may_follow = matches!(self.previous, None | Some(1));
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

    /// For generations in their order: whether each collection was explicit.
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
