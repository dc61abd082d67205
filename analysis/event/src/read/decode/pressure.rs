//! Counters of whole processes and allocation pressure.

use super::ChromeEvent;
use super::Problem;
use super::id;
use super::pauses;
use super::time;
use crate::Pressure;
use crate::ProcessCounters;
use serde::Deserialize;

/// Counters of a process.
pub(super) fn process_counters(
    event: &ChromeEvent<'_>,
    report: &mut impl FnMut(Problem),
) -> Result<ProcessCounters, Problem> {
    let at_ns = time(event.ts)?;
    let since_ns = event.args.member("since_ns").unsigned();
    Ok(ProcessCounters {
        pid: id(event.pid).ok_or("the \"pid\" of counters is not a process id")?,
        since_ns: since_ns
            .filter(|since| *since <= at_ns)
            .ok_or("\"since_ns\" of counters is not a time before their reading")?,
        at_ns,
        counters: pauses::counters(event.args.member("counters"), report),
    })
}

#[derive(Deserialize)]
struct DecodedPressure {
    since_ns: u64,
    #[serde(default)]
    collections: u64,
    #[serde(default)]
    net_containers: u64,
    counts: Option<[u32; 3]>,
    arenas_mapped: Option<u64>,
    arenas_unmapped: Option<u64>,
}

/// Allocation pressure of a process over an interval.
pub(super) fn pressure(event: &ChromeEvent<'_>) -> Result<Pressure, Problem> {
    let args: DecodedPressure = event
        .args
        .parse()
        .or(Err("the allocation pressure of a process is damaged"))?;
    let at_ns = time(event.ts)?;
    if args.since_ns > at_ns {
        return Err("an interval of allocation pressure ends before it starts");
    }
    Ok(Pressure {
        pid: id(event.pid).ok_or("the \"pid\" of allocation pressure is not a process id")?,
        since_ns: args.since_ns,
        at_ns,
        collections: args.collections,
        net_containers: args.net_containers,
        counts: args.counts,
        arenas_mapped: args.arenas_mapped,
        arenas_unmapped: args.arenas_unmapped,
    })
}
