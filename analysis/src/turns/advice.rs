//! Advice on what holds up a loop besides the collector: one line that most of its longest turns were spent on.

use super::figures::{LoopReport, TurnCause};
use super::held::{LONG_NS, Places};
use crate::report::{Advice, AdviceEffect, AdviceId, Report};
use crate::units::{duration, percent};
use crate::words::AdviceText;

/// The advice on the busiest loop of a program without training steps.
pub(crate) fn advice(report: &Report) -> Option<Advice> {
    let of = report.service_loop().filter(|of| of.waits_for_many())?;
    if of.longest_without_collections_ns() < LONG_NS {
        return None;
    }
    let (held, share) = of.costliest().filter(|(held, _)| held.cause.is_movable())?;
    let at = Places::of(report).name(held.line?);
    let text = match held.cause {
        TurnCause::OwnCode => computes(of, &at, share),
        _ => waits(of, held.cause, &at, share),
    };
    Some(text.advice(AdviceId::FreeLoop, AdviceEffect::default()))
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
