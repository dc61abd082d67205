//! What processes complain about, each sentence once.

use super::said::Notice;
use super::said::Weight;
use crate::record::clock;
use crate::record::output::Output;
use std::collections::BTreeMap;

/// Different sentences that are told; they come from other processes.
const MOST: usize = 200;

/// Sentences told, and in how many processes.
#[derive(Debug, Default)]
pub(super) struct Notices(BTreeMap<String, Told>);

#[derive(Debug, Default)]
struct Told {
    last_pid: u32,
    processes: u64,
    /// In the trace.
    is_written: bool,
}

impl Notices {
    /// Tells user and trace, if it is the first time. Process 0: of the recording as a whole.
    pub(super) fn say(&mut self, pid: u32, notice: Notice, output: &mut Output) {
        let is_new = !self.0.contains_key(&notice.text);
        if is_new && self.0.len() >= MOST {
            return;
        }
        let told = self.0.entry(notice.text.clone()).or_default();
        if told.last_pid != pid {
            *told = Told {
                last_pid: pid,
                processes: told.processes + 1,
                is_written: notice.weight != Weight::Detail,
            };
        }
        if !is_new {
            return;
        }
        if notice.weight == Weight::Warning {
            tracing::warn!("{}", notice.text);
        } else {
            tracing::info!("{}", notice.text);
        }
        if notice.weight == Weight::Detail {
            return;
        }
        output.note((pid > 0).then_some(pid), notice.at_ns, notice.text);
    }

    /// Tells the trace what held for several processes.
    pub(super) fn finish(&mut self, output: &mut Output) {
        for (text, told) in std::mem::take(&mut self.0) {
            if told.is_written && told.processes > 1 {
                let message = format!("in {} processes: {text}", told.processes);
                output.note(None, clock::monotonic_ns(), message);
            }
        }
    }
}
