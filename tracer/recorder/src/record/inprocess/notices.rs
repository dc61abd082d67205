//! Notices from processes, each sentence once.

use super::ring_event::{InjectedNotice, NoticeLevel};
use crate::clock;
use crate::record::output::RecordOutput;
use std::collections::BTreeMap;

/// Maximum number of different sentences to report; they come from other processes.
const MOST: usize = 200;

/// Sentences reported, and in how many processes.
#[derive(Debug, Default)]
pub(super) struct NoticeCounts(BTreeMap<String, NoticeCount>);

#[derive(Debug, Default)]
struct NoticeCount {
    last_pid: u32,
    processes: u64,
    /// It was written to the trace.
    is_written: bool,
}

impl NoticeCounts {
    /// Reports a notice to user and trace when it first occurs. Process 0: about the recording as a
    /// whole.
    pub(super) fn report(&mut self, pid: u32, notice: InjectedNotice, output: &mut RecordOutput) {
        let is_new = !self.0.contains_key(&notice.text);
        if is_new && self.0.len() >= MOST {
            return;
        }
        let count = self.0.entry(notice.text.clone()).or_default();
        if count.last_pid != pid {
            *count = NoticeCount {
                last_pid: pid,
                processes: count.processes + 1,
                is_written: notice.weight != NoticeLevel::Detail,
            };
        }
        if !is_new {
            return;
        }
        if notice.weight == NoticeLevel::Warning {
            tracing::warn!("{}", notice.text);
        } else {
            tracing::info!("{}", notice.text);
        }
        if notice.weight == NoticeLevel::Detail {
            return;
        }
        output.note(if pid > 0 { Some(pid) } else { None }, notice.at_ns, notice.text);
    }

    /// Writes to the trace the notices that applied to several processes.
    pub(super) fn finish(&mut self, output: &mut RecordOutput) {
        for (text, count) in std::mem::take(&mut self.0) {
            if count.is_written && count.processes > 1 {
                let message = format!("in {} processes: {text}", count.processes);
                output.note(None, clock::monotonic_ns(), message);
            }
        }
    }
}
