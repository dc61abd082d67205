//! The sentences about memory that piles up.

use super::{AdviceText, places};
use crate::advice::facts::Facts;
use crate::advice::memory::Uncollected;
use crate::paths;
use crate::report::{Advice, AdviceId, Level, MemoryRise, PhaseReport, PhasesReport, Report};
use crate::units::{bytes, counted, duration};
use gctrace_event::CollectorKind;

/// Units of work between collections that are asked for.
const UNITS: u64 = 100;

/// The commands that find the holders of objects.
const HEAP: &str =
    "gctrace heap -p PID -o heap.gcheap   # while it runs\ngctrace heap dominators heap.gcheap";

/// Whether a change is advised for the sake of memory.
pub(super) fn piles_up(report: &Report) -> bool {
    let is_short = matches!(Facts::of(report), Some(facts) if facts.rises_shortly().is_some());
    report.advice.iter().any(|advice| {
        advice.id == AdviceId::FindHolders && !is_short
            || advice.id != AdviceId::TrimHeap && advice.effect.gives_back_at_most_bytes.is_some()
    })
}

/// `gives back up to 530 MiB`; `None` if a change gives back none.
pub fn gives_back(advice: &Advice) -> Option<String> {
    let most = advice.effect.gives_back_at_most_bytes?;
    Some(format!("gives back up to {}", bytes(most)))
}

/// States that memory rises, and the possible holders; `None` if no advice is about that.
pub fn memory_in_short(report: &Report) -> Option<String> {
    let is_about_forks = |advice: &Advice| {
        let gives_back = advice.effect.gives_back_at_most_bytes.is_some();
        gives_back && matches!(advice.id, AdviceId::ShareBuffers | AdviceId::FreezeBeforeFork)
    };
    if report.advice.iter().any(is_about_forks) {
        return Some(copies(report));
    }
    let advised = report.advice.iter().any(|advice| advice.id == AdviceId::CollectSometimes);
    if !advised {
        return None;
    }
    let facts = Facts::of(report)?;
    let (why, rise) = facts.uncollected()?;
    let freed = match &report.phases {
        Some(PhasesReport {
            exit: PhaseReport { freed_objects: Some(freed @ 1..), .. }, ..
        }) => {
            format!(" Collections at the exit freed {}.", counted(*freed, "object"))
        }
        _ => String::new(),
    };
    Some(format!("{} while {}.{freed}", rose(&rise), reason(why, &facts)))
}

/// The resident memory and the command that names its holders, where no advice concerns memory; `None` where the
/// collector is the matter, or little is resident.
pub fn resident_in_short(report: &Report) -> Option<String> {
    let is_innocent = matches!(report.verdict.level, Level::None | Level::Negligible);
    let is_said = report.advice.iter().any(|advice| {
        advice.id == AdviceId::FindHolders || advice.effect.gives_back_at_most_bytes.is_some()
    });
    if !is_innocent || is_said {
        return None;
    }
    let facts = Facts::of(report)?;
    Some(format!(
        "{} are resident. If that is more than it should be: gctrace heap -p {} while it runs, then gctrace heap \
         dominators, names what holds it.",
        bytes(facts.large_resident()?),
        facts.process.pid
    ))
}

/// States that the interpreter itself lets garbage wait, where much of it was freed or memory rises; `None`
/// otherwise.
///
/// CPython 3.14.0 to 3.14.4 collect the old generation in increments; 3.14.5 went back to full collections
/// (python/cpython#142516). Free-threaded builds defer a collection while the resident memory has hardly grown since the
/// last (`gc_free_threading.c`, python/cpython#148937).
pub fn interpreter_in_short(report: &Report) -> Option<String> {
    /// From this number of freed objects on, their time of freeing matters.
    const MUCH: u64 = 10_000;
    let process = report.judged_process()?;
    let rises = matches!(&process.trend, Some(trend) if trend.rise.is_some());
    if process.pauses.collected < MUCH && !rises {
        return None;
    }
    let interpreter = process.interpreter.as_ref()?;
    match &interpreter.collector {
        CollectorKind::Incremental => Some(format!(
            "CPython {} collects in increments, and garbage waits longer for it: 3.14.5 and later collect as \
             3.13 does, with up to a third less memory.",
            interpreter.version
        )),
        CollectorKind::FreeThreaded => Some(
            "A free-threaded interpreter may put off collections (python/cpython#148937), whatever the thresholds: \
             cycles that are broken are the only lever."
                .to_owned(),
        ),
        _ => None,
    }
}

/// `Resident memory rose from 12 MiB to 540 MiB in 11.9 s`.
pub fn rose(rise: &MemoryRise) -> String {
    let [from, to] = [rise.from_bytes, rise.to_bytes].map(bytes);
    format!("Resident memory rose from {from} to {to} in {}", duration(rise.duration_ns))
}

/// ` by gc.disable() at train.py:6 in setup`; `None` if the line is unknown.
fn by(facts: &Facts<'_>, call: &str) -> Option<String> {
    let line = facts.process.settings.as_ref()?.set_by.as_ref()?;
    Some(format!(" by {call} at {}", paths::place(line)))
}

/// The first threshold, as it is set.
fn set_threshold(facts: &Facts<'_>) -> (i32, String) {
    let young = if let Some(known) = &facts.process.settings { known.thresholds[0] } else { 0 };
    (young, format!("gc.set_threshold({young}, ...)"))
}

/// Why garbage is not collected.
fn reason(why: Uncollected, facts: &Facts<'_>) -> String {
    match why {
        Uncollected::Off => {
            format!("the collector was off{}", gctrace_units::if_known(by(facts, "gc.disable()")))
        }
        Uncollected::Raised => {
            let (young, call) = set_threshold(facts);
            let by = gctrace_units::if_known(by(facts, &call));
            format!("the first threshold was raised to {young}{by}")
        }
        Uncollected::Promoted => {
            "no collection looked at older objects: explicit collections of a young generation \
             promote what is in use then"
                .to_owned()
        }
        Uncollected::Rare => {
            "few containers were allocated, so that next to no collection started".to_owned()
        }
    }
}

pub(super) fn collect_sometimes(report: &Report) -> AdviceText {
    let Some(facts) = Facts::of(report) else { return AdviceText::default() };
    let Some((why, rise)) = facts.uncollected() else { return AdviceText::default() };
    let how = || " (--mode inject names the line)".to_owned();
    let steps = facts.steps().is_some();
    let unit = if steps { "training steps" } else { "units of work" };
    let action = match why {
        Uncollected::Promoted => {
            let [zero, one, ..] = facts.process.by_generation;
            let young = u8::from(one.count > zero.count);
            let line = match places::explicit_line(report) {
                Some(line) => format!(" at {}", paths::place(line)),
                None => String::new(),
            };
            format!("replace the gc.collect({young}){line} by gc.collect() every {UNITS} {unit}")
        }
        Uncollected::Raised => format!(
            "gc.collect() every {UNITS} {unit}, or the default threshold: it was raised{}",
            by(&facts, &set_threshold(&facts).1).unwrap_or_else(how)
        ),
        Uncollected::Off => format!(
            "gc.collect() every {UNITS} {unit}: the collector is off{}",
            by(&facts, "gc.disable()").unwrap_or_else(how)
        ),
        Uncollected::Rare => format!("gc.collect() every {UNITS} {unit}"),
    };
    AdviceText {
        action,
        why: format!(
            "{} while {}. How much of it is garbage shows when it is collected: what is left then is \
             held (gctrace heap -p PID).",
            rose(&rise),
            reason(why, &facts)
        ),
        code: format!(
            "import gc\n\
             # in the loop over {unit}:\n\
             if n % {UNITS} == 0:\n\
             \x20   gc.collect()"
        ),
        risk: "A collection traverses all that is alive: choose the interval by its pause and by the memory."
            .to_owned(),
    }
}

pub(super) fn find_holders(report: &Report) -> AdviceText {
    let process = report.judged_process();
    let pid = if let Some(process) = process { process.pid.to_string() } else { "PID".to_owned() };
    if let Some(rise) = Facts::of(report).and_then(|facts| facts.rises_shortly()) {
        return AdviceText {
            action: format!(
                "if its memory should not rise ({} to {} in {}): gctrace heap -p PID while it runs, then gctrace heap \
                 dominators",
                bytes(rise.from_bytes),
                bytes(rise.to_bytes),
                duration(rise.duration_ns)
            ),
            why: format!("The memory of process {pid} rises for as long as it was recorded."),
            code: HEAP.to_owned(),
            ..AdviceText::default()
        };
    }
    let born = process.and_then(|process| process.trend.as_ref()?.lines.first());
    let born = if let Some(line) = born {
        format!(" (most are born at {})", paths::place(&line.location))
    } else {
        String::new()
    };
    AdviceText {
        action: format!(
            "find what holds the objects that pile up{born}: gctrace heap -p PID while it runs, then \
             gctrace heap dominators"
        ),
        why: format!("The memory of process {pid} rises for as long as it was recorded."),
        code: HEAP.to_owned(),
        ..AdviceText::default()
    }
}

pub(super) fn trim_heap(report: &Report) -> AdviceText {
    let kept = Facts::of(report).and_then(|facts| facts.kept_by_malloc()).unwrap_or(0);
    let kept = bytes(kept);
    AdviceText {
        action: format!(
            "ctypes.CDLL(\"libc.so.6\").malloc_trim(0) after work that frees much: the C library keeps {kept} that \
             the program has freed"
        ),
        why: format!(
            "In all looks of the second half of the time {kept} or more of resident memory lay in free blocks of \
             glibc's main heap. It gives back the end of the heap only, and blocks in use lie between the free ones. \
             Python holds none of that: neither gc.collect() nor a search for holders helps."
        ),
        code: "import ctypes\n\
               # after a burst, or every minute:\n\
               ctypes.CDLL(\"libc.so.6\").malloc_trim(0)\n\
               # or, without a change of the program, blocks of 64 KiB and more as mappings of their own:\n\
               # MALLOC_MMAP_THRESHOLD_=65536 python ..."
            .to_owned(),
        risk: "Memory that is needed again has to be fetched from the kernel again: call it after bursts, not after \
               each unit of work."
            .to_owned(),
    }
}

/// Memory copied by forked processes: `Its 2 forked processes copied up to 62 MiB each of what they shared`; empty if
/// unknown.
fn copies(report: &Report) -> String {
    if let Some(copied) = report.totals.copied {
        format!(
            "{} copied up to {} each of the memory shared with their parent, {} in all.",
            counted(copied.processes, "forked process"),
            bytes(copied.most_bytes),
            bytes(copied.bytes)
        )
    } else {
        String::new()
    }
}

pub(super) fn share_buffers(report: &Report) -> AdviceText {
    AdviceText {
        action: "keep what forked workers read in a few buffers (bytes, array, numpy), not in many objects: \
                 counting their references copies them"
            .to_owned(),
        why: format!(
            "{} Next to no collection ran in them: reading an object writes its reference count. gc.freeze() \
             changes nothing about that.",
            copies(report)
        ),
        code: "# in the parent, before the fork: offsets and one buffer instead of a list of objects\n\
               parts = [pickle.dumps(item) for item in items]\n\
               ends = array('q', itertools.accumulate(map(len, parts)))\n\
               data = b''.join(parts)"
            .to_owned(),
        risk: "An item is made anew each time that it is read.".to_owned(),
    }
}
