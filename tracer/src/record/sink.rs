//! Destination of records: the trace, or in tests a list.

use crate::record::output::RecordOutput;
use gctrace_event::Record;

/// Where decoders send records, in the order in which they are to be written.
pub(crate) trait RecordSink {
    fn write(&mut self, record: Record);
}

impl RecordSink for RecordOutput {
    fn write(&mut self, record: Record) {
        RecordOutput::write(self, &record);
    }
}

impl RecordSink for Vec<Record> {
    fn write(&mut self, record: Record) {
        self.push(record);
    }
}
