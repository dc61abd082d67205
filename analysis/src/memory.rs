//! Memory of one process, and what its collections gave back.

use crate::time::{add_known, beyond};
use gctrace_event::{GcReason, Pause};
use serde::Serialize;

/// Memory of a process, and what its collections gave back: the objects that they freed, and all memory that these
/// objects owned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryReport {
    /// Resident memory as last recorded, in bytes; `null` if unknown.
    pub resident_bytes: Option<u64>,
    /// Memory that the process may use, in bytes: the smallest limit of its cgroups, or the machine's memory; `null`
    /// if unknown.
    pub limit_bytes: Option<u64>,
    /// The least of it that the C library kept in the second half of the time, in bytes: free blocks of glibc's main
    /// heap. `null` if that is unknown.
    pub kept_bytes: Option<u64>,
    /// Number of collections with memory measured before and after.
    pub collections: u64,
    /// Objects that these freed; `null` without any.
    pub freed_objects: Option<u64>,
    /// Memory that they gave back to malloc or the kernel, in bytes; `null` without any.
    pub freed_bytes: Option<u64>,
    /// The most that one of them gave back, in bytes; `null` without any.
    pub most_freed_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemorySums {
    /// Its sums, and its resident memory, as last reported.
    pub(crate) report: MemoryReport,
    /// Private and resident memory of a forked process at the first look and at the last.
    private: Option<[(u64, u64); 2]>,
}

impl MemorySums {
    pub(crate) fn add_pause(&mut self, pause: &Pause) {
        // At the exit all goes.
        if pause.reason != GcReason::Shutdown
            && pause.freed_bytes.is_some()
            && pause.collected.is_some()
        {
            let report = &mut self.report;
            report.collections += 1;
            add_known(&mut report.freed_objects, pause.collected);
            add_known(&mut report.freed_bytes, pause.freed_bytes);
            report.most_freed_bytes = report.most_freed_bytes.max(pause.freed_bytes);
        }
    }

    /// Adds the private memory of a forked process and its resident memory, in bytes.
    pub(crate) fn add_private(&mut self, private: u64, resident: u64) {
        let now = (private, resident);
        let first = if let Some([first, _]) = self.private { first } else { now };
        self.private = Some([first, now]);
    }

    /// Memory it has copied since it was forked, in bytes: memory that became private and was resident before. `None`
    /// without two looks at it.
    pub(crate) fn copied_bytes(self) -> Option<u64> {
        let [first, last] = self.private?;
        let grown = beyond(last.1, first.1);
        Some(beyond(beyond(last.0, first.0), grown))
    }

    /// `kept_bytes`: as of [`super::leak_watch::LeakWatch::kept_bytes`].
    pub(crate) fn report(self, limit_bytes: Option<u64>, kept_bytes: Option<u64>) -> MemoryReport {
        MemoryReport { limit_bytes, kept_bytes, ..self.report }
    }
}
