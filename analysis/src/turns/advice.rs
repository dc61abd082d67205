//! Advice on what holds up a loop besides the collector: the line that most of its longest turns were spent on, with
//! causes that hold it for as long.

use super::AS_LONG_RATIO;
use super::figures::{LoopReport, TurnCause};
use super::held::{HeldTime, LONG_NS, Places, WORTH_RATIO};
use crate::report::{Advice, AdviceEffect, AdviceId, Report};
use crate::units::{duration, percent};
use crate::words::AdviceText;

/// Further causes that are named, if they hold the loop for as long as the first.
const NAMED: usize = 2;

/// The advice on the busiest loop of a program without training steps.
pub(crate) fn advice(report: &Report) -> Option<Advice> {
    let of = report.service_loop().filter(|of| of.waits_for_many())?;
    if of.longest_without_collections_ns() < LONG_NS {
        return None;
    }
    let mut causes = of.causes();
    causes.retain(|one| one.held.cause.is_movable() && one.held.line.is_some());
    let most = causes.first()?.share;
    // The report shows the longest turn: its cause comes first among equals.
    let equal = causes.iter().take_while(|one| one.share >= AS_LONG_RATIO * most).enumerate();
    let (index, first) =
        equal.map(|(index, one)| (index, *one)).max_by_key(|of| of.1.longest_ns)?;
    causes.swap(0, index);
    causes.retain(|one| one.longest_ns as f64 >= AS_LONG_RATIO * first.longest_ns as f64);
    if causes.iter().map(|one| one.share).sum::<f64>() < WORTH_RATIO {
        return None;
    }
    let places = Places::of(report);
    let at = places.name(first.held.line?);
    let text = match first.held.cause {
        TurnCause::OwnCode => computes(of, &at, first.share),
        _ => waits(of, first.held.cause, &at, first.share),
    };
    let action = text.action + &as_long(of, &causes, places);
    Some(AdviceText { action, ..text }.advice(AdviceId::FreeLoop, AdviceEffect::default()))
}

/// `; as long: sleeping at serve.py:9 in b, 2 more (alone, this leaves turns of 30.2 ms)`; empty if there are none.
fn as_long(of: &LoopReport, causes: &[HeldTime<'_>], places: Places<'_>) -> String {
    let [first, others @ ..] = causes else { return String::new() };
    if others.is_empty() {
        return String::new();
    }
    let named = others.iter().take(NAMED).map(|one| one.held.name(places));
    let more = others.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    let named: Vec<String> = named.chain(more).collect();
    let left = duration(of.longest_without_ns(first.held));
    format!("; as long: {} (alone, this leaves turns of {left})", named.join(", "))
}

fn computes(of: &LoopReport, at: &str, share: f64) -> AdviceText {
    AdviceText {
        action: format!(
            "move {at} out of the loop, into a process, or make it shorter: {} of its longest turns (up to {}), apart \
             from collections, is Python code there",
            percent(share),
            duration(of.longest_without_collections_ns())
        ),
        why: "The loop's thread executes this line for so long that all else waits. In another thread it would have the \
              GIL, so that the loop waits as before."
            .to_owned(),
        code: "await loop.run_in_executor(process_pool, function, argument)".to_owned(),
        risk: "The argument and the result are copied between the processes.".to_owned(),
    }
}

fn waits(of: &LoopReport, cause: TurnCause, at: &str, share: f64) -> AdviceText {
    AdviceText {
        action: format!(
            "do not wait in the loop at {at}: {} of its longest turns (up to {}), apart from collections, goes into {cause} \
             there",
            percent(share),
            duration(of.longest_without_collections_ns())
        ),
        why: "The call blocks the loop's thread, and all else waits. In another thread, or as an asynchronous call, only \
              its own caller waits."
            .to_owned(),
        code: "await asyncio.to_thread(function, argument)".to_owned(),
        risk: "What it shares with the loop needs a lock.".to_owned(),
    }
}

impl TurnCause {
    pub(super) fn is_collection(self) -> bool {
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
