//! Runs of the collector, and counters.
//!
//! Owns the members of a pause, gctrace's and other tools'.

use super::{ChromeEvent, DecodeError, FrameNumbers, JsonValue, Problem, id, time};
use crate::record::Declared as _;
use crate::{Counter, Counters, EventSource, GcReason, Pause, ProcessCounters};
use gctrace_units::after;

pub(super) fn is_collection(event: &ChromeEvent<'_>) -> bool {
    event.category.raw_text() == Some(b"gc") || event.name.raw_text() == Some(b"Python GC")
}

/// The pause of a complete event.
pub(super) fn pause(
    event: &ChromeEvent<'_>,
    names: &mut FrameNumbers,
    report: &mut impl FnMut(Problem),
) -> Result<Pause, DecodeError> {
    let start_ns = time(event.ts)?;
    let length_ns = event.dur.us_as_ns().ok_or(
        "a collection's \"dur\" is missing, negative, out of range or not a number of \
         microseconds",
    )?;
    let mut pause = Pause {
        pid: id(event.pid).ok_or("a collection's \"pid\" is missing or not a process id")?,
        tid: id(event.tid).ok_or("a collection's \"tid\" is missing or not a thread id")?,
        start_ns,
        end_ns: after(start_ns, length_ns),
        ..Pause::default()
    };
    let mut source = InjectedMembers::default();
    for (key, value) in event.args.members() {
        match key {
            b"source" => source.name = value,
            b"injected_ts" => source.ts = value,
            b"injected_dur" => source.dur = value,
            _ => argument(&mut pause, key, value, report),
        }
    }
    pause.source = source.decode(report);
    if !event.stack.is_missing() {
        pause.stack = names.id(event.stack, report);
    }
    if pause.generation == Pause::UNKNOWN_GENERATION {
        pause.generation = generation_in_name(event.name);
    }
    Ok(pause)
}

/// The members that tell the sources of a pause apart.
#[derive(Default)]
struct InjectedMembers<'a> {
    name: JsonValue<'a>,
    ts: JsonValue<'a>,
    dur: JsonValue<'a>,
}

impl InjectedMembers<'_> {
    fn decode(&self, report: &mut impl FnMut(Problem)) -> EventSource {
        match self.name.raw_text() {
            None => EventSource::Probes,
            Some(b"injected") => EventSource::Injected,
            Some(b"both") => match (time(self.ts), self.dur.us_as_ns()) {
                (Ok(start_ns), Some(length_ns)) => {
                    EventSource::Both { start_ns, end_ns: after(start_ns, length_ns) }
                }
                _ => {
                    report("\"injected_ts\" or \"injected_dur\" is not a time");
                    EventSource::Probes
                }
            },
            Some(_) => {
                report("\"source\" is unknown");
                EventSource::Probes
            }
        }
    }
}

fn argument(pause: &mut Pause, key: &[u8], value: JsonValue<'_>, report: &mut impl FnMut(Problem)) {
    let mut count = |slot: &mut Option<u64>, problem| match value.unsigned() {
        Some(count) if count < MAX_COUNT => *slot = Some(count),
        _ => report(problem),
    };
    match key {
        b"collected" => count(&mut pause.collected, "\"collected\" is not a count"),
        b"uncollectable" => count(&mut pause.uncollectable, "\"uncollectable\" is not a count"),
        b"cpu_ns" => count(&mut pause.cpu_ns, "\"cpu_ns\" is not a time"),
        b"stop_the_world_ns" => {
            count(&mut pause.stop_the_world_ns, "\"stop_the_world_ns\" is not a time")
        }
        b"oldest_objects" => count(&mut pause.oldest_objects, "\"oldest_objects\" is not a count"),
        b"heap_objects" => count(&mut pause.heap_objects, "\"heap_objects\" is not a count"),
        b"freed_bytes" => count(&mut pause.freed_bytes, "\"freed_bytes\" is not a count"),
        b"young_count" => count(&mut pause.young_count, "\"young_count\" is not a count"),
        b"counters" => pause.counters = counters(value, report),
        b"generation" => match value.unsigned() {
            Some(generation @ 0..=2) => pause.generation = generation as u8,
            _ => report("\"generation\" is not 0, 1 or 2"),
        },
        b"reason" => match value.raw_text() {
            Some(name) => pause.reason = GcReason::from_name(name),
            None => report("\"reason\" is not a string"),
        },
        b"interpreter" => match value.signed() {
            Some(id) => pause.interpreter = Some(id),
            None => report("\"interpreter\" is not a number"),
        },
        b"unfinished" => pause.unfinished = value.boolean().unwrap_or(false),
        _ => {}
    }
}

/// Counters of a process.
pub(super) fn process_counters(
    event: &ChromeEvent<'_>,
    report: &mut impl FnMut(Problem),
) -> Result<ProcessCounters, Problem> {
    let at_ns = time(event.ts)?;
    let since_ns = event.args.member("since_ns").unsigned();
    Ok(ProcessCounters {
        pid: id(event.pid).ok_or(ProcessCounters::KIND.no_pid)?,
        since_ns: since_ns
            .filter(|since| *since <= at_ns)
            .ok_or("\"since_ns\" of counters is not a time before their reading")?,
        at_ns,
        counters: counters(event.args.member("counters"), report),
    })
}

/// Counters by their names in `perf list`; other names are ignored.
pub(super) fn counters(value: JsonValue<'_>, report: &mut impl FnMut(Problem)) -> Counters {
    let mut counters = Counters::default();
    if !value.is_missing() && value.json().first() != Some(&b'{') {
        report("\"counters\" is not an object");
    }
    for (key, value) in value.members() {
        match (key, Counter::from_name(key)) {
            (_, Some(counter)) => match value.unsigned() {
                Some(count) if count < MAX_COUNT => counters.set(counter, count),
                _ => report("a counter is not a count"),
            },
            (b"scaled", None) => counters.scaled = value.boolean().unwrap_or(false),
            (b"migrated", None) => counters.migrated = value.boolean().unwrap_or(false),
            _ => {}
        }
    }
    counters
}

/// Counts and times from here on are taken for damage: 2^62 ns are 146 years.
pub(crate) const MAX_COUNT: u64 = 1 << 62;

/// The generation in a name such as `gc gen1`.
fn generation_in_name(name: JsonValue<'_>) -> u8 {
    match name.raw_text() {
        Some([.., b'g', b'e', b'n', digit @ b'0'..=b'2']) => digit - b'0',
        _ => Pause::UNKNOWN_GENERATION,
    }
}
