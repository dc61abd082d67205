//! Where records go: the trace, or in tests a list.

use crate::record::output::Output;
use gctrace_event::Record;

/// Takes records in order.
pub(crate) trait Sink {
    /// Takes one.
    fn write(&mut self, record: Record);
}

impl Sink for Output {
    fn write(&mut self, record: Record) {
        Output::write(self, &record);
    }
}

impl Sink for Vec<Record> {
    fn write(&mut self, record: Record) {
        self.push(record);
    }
}
