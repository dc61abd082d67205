//! Performance counters as members of `args`.
//!
//! Owns their text. Their names are those of `perf list`, in an object of their own, so that
//! viewers show them as one group and so that the marks `scaled` and `migrated` are theirs alone.

use super::push_metadata_head;
use super::push_us;
use crate::Counters;
use crate::ProcessCounters;
use std::io;
use std::io::Write;

/// Appends `,"counters":{...}`, or nothing if nothing was counted and no flag is set.
pub(super) fn push_counters(out: &mut Vec<u8>, counters: &Counters) -> io::Result<()> {
    if *counters == Counters::default() {
        return Ok(());
    }
    out.extend_from_slice(br#","counters":{"#);
    let mut separator = "";
    for (counter, value) in counters.iter() {
        write!(out, r#"{separator}"{}":{value}"#, counter.as_str())?;
        separator = ",";
    }
    for (name, marked) in [("scaled", counters.scaled), ("migrated", counters.migrated)] {
        if marked {
            write!(out, r#"{separator}"{name}":true"#)?;
            separator = ",";
        }
    }
    out.push(b'}');
    Ok(())
}

/// Appends the event of a whole process's counters.
pub(super) fn push_process_counters(
    out: &mut Vec<u8>,
    process: &ProcessCounters,
) -> io::Result<()> {
    push_metadata_head(out, "gctrace_counters", process.pid)?;
    out.extend_from_slice(br#","ts":"#);
    push_us(out, process.at_ns)?;
    write!(out, r#","args":{{"since_ns":{}"#, process.since_ns)?;
    push_counters(out, &process.counters)?;
    out.extend_from_slice(b"}}");
    Ok(())
}
