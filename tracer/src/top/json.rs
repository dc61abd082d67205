//! Snapshots as JSON lines.

use crate::print;
use gctrace_analysis::live::Snapshot;
use std::collections::HashSet;
use std::io;

/// Writes snapshots, each long pause once.
#[derive(Debug, Default)]
pub(super) struct JsonOutput {
    /// Long pauses of the previous snapshot: pid, tid, start.
    printed: HashSet<(u32, u32, u64)>,
}

impl JsonOutput {
    /// The line for a snapshot. Long pauses of the previous snapshot are left out.
    pub(super) fn text(&mut self, snapshot: &Snapshot) -> io::Result<Vec<u8>> {
        let name =
            |pause: &gctrace_analysis::live::LongPause| (pause.pid, pause.tid, pause.start_ns);
        let mut shown = snapshot.clone();
        shown.long_pauses.retain(|pause| !self.printed.contains(&name(pause)));
        self.printed = snapshot.long_pauses.iter().map(name).collect();
        let mut line = Vec::new();
        serde_json::to_writer(print::JsonEscaper(&mut line), &shown)?;
        line.push(b'\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::live::LongPause;
    use gctrace_event::GcReason;
    use serde_json::Value;

    fn long(start_ns: u64) -> LongPause {
        LongPause { start_ns, reason: GcReason::Automatic, ..LongPause::default() }
    }

    fn starts(line: &[u8]) -> Vec<u64> {
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let value: Value = serde_json::from_slice(line).expect("an object");
        let pauses = value["long_pauses"].as_array().expect("long pauses");
        let start = |pause: &Value| pause["start_ns"].as_u64().expect("a number");
        pauses.iter().map(start).collect()
    }

    #[test]
    fn long_pauses_are_written_once() {
        let mut json = JsonOutput::default();
        let mut snapshot = Snapshot { long_pauses: vec![long(1), long(5)], ..Snapshot::default() };
        assert_eq!(starts(&json.text(&snapshot).expect("text")), [1, 5]);
        assert_eq!(starts(&json.text(&snapshot).expect("text")), [0; 0]);
        // One that was read late, with an earlier start.
        snapshot.long_pauses = vec![long(5), long(4)];
        assert_eq!(starts(&json.text(&snapshot).expect("text")), [4]);
    }
}
