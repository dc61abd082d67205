//! What is to be kept for good, and why.

use super::{Now, SegmentedTrace};
use crate::units::counted;
use std::time::Duration;

/// Most folders that pauses and steps have kept; those that a user asks for are kept in any case.
const MOST_KEPT: usize = 20;

/// What is to be kept for good.
#[derive(Default)]
pub(super) struct KeepRequests {
    /// The user asked.
    pub(super) asked: Option<&'static str>,
    /// Of the first pause or step since segments were kept, and how many followed.
    pub(super) noticed: Option<(String, u64)>,
    /// The last segment that was kept.
    pub(super) last_kept: u64,
    /// The limit on folders was stated.
    pub(super) is_limit_noted: bool,
}

impl KeepRequests {
    pub(super) fn notice(&mut self, what: impl FnOnce() -> String) {
        match &mut self.noticed {
            Some((_, more)) => *more += 1,
            None => self.noticed = Some((what(), 0)),
        }
    }

    /// Whether segments are to be kept now. Of what the same segments would be kept for again, only once the
    /// last ones that were kept are deleted: before that which was noticed since would be, too.
    pub(super) fn is_due(&self, oldest: u64) -> bool {
        self.asked.is_some() || (self.noticed.is_some() && oldest > self.last_kept)
    }

    pub(super) fn reason(&self) -> String {
        let noticed = self.noticed.as_ref().map(|(first, more)| match more {
            0 => first.clone(),
            more => format!("{first}, and {} since", counted(*more, "other")),
        });
        let reasons: Vec<String> =
            self.asked.map(ToOwned::to_owned).into_iter().chain(noticed).collect();
        reasons.join("; ")
    }

    pub(super) fn settle(&mut self, last_kept: u64) {
        self.asked = None;
        self.noticed = None;
        self.last_kept = last_kept;
    }
}

impl SegmentedTrace {
    /// Keeps all segments there are in a folder.
    pub(super) fn keep(&mut self, now: Now) {
        let is_asked = self.requests.asked.is_some();
        let reason = self.requests.reason();
        let last = self.closed.back().map_or(0, |segment| segment.number);
        self.requests.settle(last);
        if !is_asked && self.folder.kept() >= MOST_KEPT {
            if !std::mem::replace(&mut self.requests.is_limit_noted, true) {
                tracing::warn!(
                    "not kept ({reason}): {MOST_KEPT} folders are kept in {} already; remove some of \
                     them, and the next is kept",
                    self.path().display()
                );
            }
            return;
        }
        self.requests.is_limit_noted = false;
        let numbers: Vec<u64> = self.closed.iter().map(|segment| segment.number).collect();
        let at = humantime::format_rfc3339_seconds(
            std::time::UNIX_EPOCH + Duration::from_nanos(now.unix_ns),
        );
        match self.folder.keep(&numbers, &format!("{at}: {reason}")) {
            Ok(kept) => tracing::warn!("kept in {}: {reason}", kept.display()),
            Err(error) => tracing::warn!("cannot keep the last segments ({reason}): {error}"),
        }
    }
}
