//! Memory of one process, and what its collections gave back.

use crate::report::MemoryReport;
use crate::time::add_to;
use gctrace_event::Pause;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemorySums {
    /// Resident memory, as last reported.
    pub(crate) resident_bytes: Option<u64>,
    measured: u64,
    freed_objects: u64,
    freed_bytes: u64,
    most_freed_bytes: u64,
}

impl MemorySums {
    pub(crate) fn add_pause(&mut self, pause: &Pause) {
        if let (Some(bytes), Some(objects)) = (pause.freed_bytes, pause.collected) {
            self.measured += 1;
            add_to(&mut self.freed_objects, objects);
            add_to(&mut self.freed_bytes, bytes);
            self.most_freed_bytes = self.most_freed_bytes.max(bytes);
        }
    }

    pub(crate) fn report(self, limit_bytes: Option<u64>) -> MemoryReport {
        let measured = |figure| (self.measured > 0).then_some(figure);
        MemoryReport {
            resident_bytes: self.resident_bytes,
            limit_bytes,
            collections: self.measured,
            freed_objects: measured(self.freed_objects),
            freed_bytes: measured(self.freed_bytes),
            most_freed_bytes: measured(self.most_freed_bytes),
        }
    }
}
