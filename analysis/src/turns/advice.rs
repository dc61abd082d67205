//! Advice on what holds up a loop besides the collector: one line that most of its longest turns were spent on.

use super::figures::{LoopReport, TurnCause, TurnPart};
use crate::figure::Location;
use crate::paths::place;
use crate::report::{Advice, AdviceEffect, AdviceId, Report};
use crate::time::add_to;
use crate::units::{duration, percent};
use crate::words::AdviceText;
use gctrace_stats::ratio;
use std::collections::BTreeMap;

/// A shorter turn is not worth a change: a person or another service notices 20 ms. 10 ms.
const LONG_NS: u64 = 10_000_000;
/// From this share of its longest turns on, a line is worth moving.
const WORTH_RATIO: f64 = 0.4;

/// The advice on the busiest loop of a program without training steps.
pub(crate) fn advice(report: &Report) -> Option<Advice> {
    let of = report.service_loop()?;
    if of.figures.longest_ns < LONG_NS {
        return None;
    }
    let (part, share) = costliest(of)?;
    let text = match part.cause {
        TurnCause::OwnCode => computes(of, part.line, share),
        _ => waits(of, part, share),
    };
    Some(text.advice(AdviceId::FreeLoop, AdviceEffect::default()))
}

/// A cause at a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Held<'a> {
    cause: TurnCause,
    line: &'a Location,
}

/// What the longest turns were spent on most, with its share, if a change of that line is worth it.
fn costliest(of: &LoopReport) -> Option<(Held<'_>, f64)> {
    let mut by_cause: BTreeMap<Held<'_>, u64> = BTreeMap::new();
    let mut all_ns = 0;
    let parts = of.longest.iter().flat_map(|turn| &turn.parts);
    // Collections have advice of their own.
    for TurnPart { cause, time_ns, line } in parts.filter(|part| !part.cause.is_collection()) {
        add_to(&mut all_ns, *time_ns);
        let line = line.as_ref().filter(|_| cause.is_movable());
        if let Some(line) = line {
            add_to(by_cause.entry(Held { cause: *cause, line }).or_default(), *time_ns);
        }
    }
    let (held, ns) = by_cause.into_iter().max_by_key(|(_, ns)| *ns)?;
    let share = ratio(ns, all_ns)?;
    (share >= WORTH_RATIO).then_some((held, share))
}

fn computes(of: &LoopReport, line: &Location, share: f64) -> AdviceText {
    AdviceText {
        action: format!(
            "move {} out of the loop, into a process, or make it shorter: {} of its longest turns (up to {}), apart \
             from collections, is Python code there",
            place(line),
            percent(share),
            duration(of.figures.longest_ns)
        ),
        why: "The loop's thread executes this line for so long that all else waits. In another thread it would have the \
              GIL, so that the loop waits as before."
            .to_owned(),
        code: "await loop.run_in_executor(process_pool, function, argument)".to_owned(),
        risk: "The argument and the result are copied between the processes.".to_owned(),
    }
}

fn waits(of: &LoopReport, part: Held<'_>, share: f64) -> AdviceText {
    AdviceText {
        action: format!(
            "do not wait in the loop at {}: {} of its longest turns (up to {}), apart from collections, goes into {} \
             there",
            place(part.line),
            percent(share),
            duration(of.figures.longest_ns),
            part.cause
        ),
        why: "The call blocks the loop's thread, and all else waits. In another thread, or as an asynchronous call, only \
              its own caller waits."
            .to_owned(),
        code: "await asyncio.to_thread(function, argument)".to_owned(),
        risk: "What it shares with the loop needs a lock.".to_owned(),
    }
}

impl TurnCause {
    fn is_collection(self) -> bool {
        matches!(self, Self::Collection | Self::CollectionElsewhere)
    }

    /// Whether another thread or process could do it.
    fn is_movable(self) -> bool {
        match self {
            Self::OwnCode
            | Self::Lock
            | Self::Poll
            | Self::Pipe
            | Self::Sleep
            | Self::Process
            | Self::Disk
            | Self::Driver => true,
            Self::Collection
            | Self::CollectionElsewhere
            | Self::OffCpu
            | Self::Gil
            | Self::PageFault
            | Self::Cpu
            | Self::Stopped
            | Self::Other => false,
        }
    }
}
