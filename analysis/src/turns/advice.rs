//! Advice on what holds up a loop besides the collector: the line that most of its longest turns were spent on, with
//! causes that hold it for as long.

use super::AS_LONG_RATIO;
use super::figures::{LoopReport, TurnCause};
use super::held::{Held, HeldTime, LONG_NS, Places, WORTH_RATIO};
use crate::figure::Location;
use crate::paths::is_of_python;
use crate::report::{Advice, AdviceEffect, AdviceId, Report};
use crate::units::{duration, percent};
use crate::words::AdviceText;

/// How work goes to another process, and what that costs.
const TO_PROCESS: &str = "pool = concurrent.futures.ProcessPoolExecutor()\n\
     await loop.run_in_executor(pool, function, argument)   # without asyncio: pool.submit(function, argument)";
const TO_PROCESS_RISK: &str = "The argument and the result are copied between the processes.";
/// Further causes that are named, if they hold the loop for as long as the first.
const NAMED: usize = 2;

/// The advice on the loops of a service, the one that waits for requests first. `names_gil`: whether other advice names
/// the line that its main thread waits for.
pub(crate) fn advice(report: &Report, names_gil: bool) -> impl Iterator<Item = Advice> {
    let pid = report.service_loop().map(|of| of.pid);
    let own = report.service_loops().filter(move |of| Some(of.pid) == pid);
    own.filter_map(move |of| advice_on(of, Places::of(report), names_gil && of.main_thread))
}

fn advice_on(of: &LoopReport, places: Places<'_>, names_gil: bool) -> Option<Advice> {
    // Work that always takes as long is no surprise to who gave it to a thread.
    let is_late = of.waits_for_many() || of.is_late();
    if of.longest_without_collections_ns() < LONG_NS || !is_late {
        return None;
    }
    let mut causes = of.causes();
    let no_cpu = causes.iter().find(|one| one.held.cause == TurnCause::Cpu);
    if let Some(no_cpu) = no_cpu.filter(|one| one.share >= WORTH_RATIO && of.is_held_up()) {
        let text = lacks_cpu(of, no_cpu.share);
        return Some(text.advice(AdviceId::FreeLoop, AdviceEffect::default()));
    }
    let is_named = |one: &HeldTime<'_>| names_gil && one.held.cause == TurnCause::Gil;
    causes.retain(|one| one.held.is_movable() && one.longest_ns >= LONG_NS && !is_named(one));
    if causes.iter().map(|one| one.share).sum::<f64>() < WORTH_RATIO {
        return None;
    }
    let most = causes.first()?.share;
    // The report shows the longest turn: its cause comes first among equals.
    let equal = causes.iter().take_while(|one| one.share >= AS_LONG_RATIO * most).enumerate();
    let (index, first) =
        equal.map(|(index, one)| (index, *one)).max_by_key(|of| of.1.longest_ns)?;
    causes.swap(0, index);
    causes.retain(|one| one.longest_ns as f64 >= AS_LONG_RATIO * first.longest_ns as f64);
    let at = places.name(first.held.line?);
    let text = match first.held.cause {
        TurnCause::OwnCode => computes(of, &at, first.share),
        TurnCause::Gil => lacks_gil(of, &at, first.share),
        _ => waits(of, first.held.cause, &at, first.share),
    };
    let action = text.action + &as_long(of, &causes, places);
    Some(AdviceText { action, ..text }.advice(AdviceId::FreeLoop, AdviceEffect::default()))
}

/// `; as long: sleeping at serve.py:9 in b, 2 more (alone, this leaves turns of 30.2 ms)`; empty if the first takes most
/// of the longest turns.
fn as_long(of: &LoopReport, causes: &[HeldTime<'_>], places: Places<'_>) -> String {
    let [first, others @ ..] = causes else { return String::new() };
    let left = duration(of.longest_without_ns(first.held));
    if others.is_empty() {
        return match first.share >= WORTH_RATIO {
            true => String::new(),
            false => format!("; this leaves turns of {left}"),
        };
    }
    let named = others.iter().take(NAMED).map(|one| one.held.name(places));
    let more = others.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    let named: Vec<String> = named.chain(more).collect();
    format!("; as long: {} (alone, this leaves turns of {left})", named.join(", "))
}

/// `66.0 % of its longest turns (up to 94.8 ms), apart from collections,`
fn part_of_turns(of: &LoopReport, share: f64) -> String {
    let whose = match of.is_of_several() {
        _ if of.waits_for_many() => "its",
        true => "the threads'",
        false => "the",
    };
    let longest = duration(of.longest_without_collections_ns());
    format!(
        "{} of {whose} longest turns (up to {longest}), apart from collections,",
        percent(share)
    )
}

fn computes(of: &LoopReport, at: &str, share: f64) -> AdviceText {
    let part = part_of_turns(of, share);
    let (action, why) = if of.waits_for_many() {
        (
            format!(
                "move {at} out of the loop, into a process, or make it shorter: {part} is Python code there"
            ),
            "The loop's thread executes this line for so long that all else waits. In another thread it would have the \
             GIL, so that the loop waits as before.",
        )
    } else {
        (
            format!("make {at} shorter, or run it in a process: {part} is Python code there"),
            "The piece of work takes so long, and the other threads wait for the GIL meanwhile.",
        )
    };
    AdviceText {
        action,
        why: why.to_owned(),
        code: TO_PROCESS.to_owned(),
        risk: TO_PROCESS_RISK.to_owned(),
    }
}

fn lacks_gil(of: &LoopReport, at: &str, share: f64) -> AdviceText {
    AdviceText {
        action: format!(
            "run {at} in another process: {} is waiting for the GIL while another thread executes that line",
            part_of_turns(of, share)
        ),
        why: "One thread of a process executes Python code at a time. A call into native code that does not release the \
              GIL keeps it until it returns."
            .to_owned(),
        code: TO_PROCESS.to_owned(),
        risk: TO_PROCESS_RISK.to_owned(),
    }
}

fn lacks_cpu(of: &LoopReport, share: f64) -> AdviceText {
    AdviceText {
        action: format!(
            "give it more CPUs, or run less beside it: {} is waiting for a CPU",
            part_of_turns(of, share)
        ),
        why: "The thread could run, and other threads or processes had the CPUs, or its control group had used up its \
              time."
            .to_owned(),
        code: "cat /proc/pressure/cpu; cat /sys/fs/cgroup/cpu.stat   # nr_throttled: the limit of its control group"
            .to_owned(),
        ..AdviceText::default()
    }
}

fn waits(of: &LoopReport, cause: TurnCause, at: &str, share: f64) -> AdviceText {
    let part = part_of_turns(of, share);
    if of.waits_for_many() {
        return AdviceText {
            action: format!("do not wait in the loop at {at}: {part} goes into {cause} there"),
            why: "The call blocks the loop's thread, and all else waits. In another thread, or as an asynchronous call, \
                  only its own caller waits."
                .to_owned(),
            code: "await asyncio.to_thread(function, argument)".to_owned(),
            risk: "What it shares with the loop needs a lock.".to_owned(),
        };
    }
    AdviceText {
        action: format!("wait less at {at}: {part} goes into {cause} there"),
        why: "The piece of work is as late as this call. More threads do not make it shorter; they keep others from \
              waiting behind it."
            .to_owned(),
        code: "gctrace analyze --full FILE   # when, and what each of these turns consists of".to_owned(),
        ..AdviceText::default()
    }
}

impl Held<'_> {
    /// Whether its line can be moved. Code of the standard library is called from another one.
    fn is_movable(&self) -> bool {
        let is_own = |line: &Location| !is_of_python(&line.file);
        self.cause.is_movable() && self.line.is_some_and(is_own)
    }
}

impl TurnCause {
    pub(super) fn is_collection(self) -> bool {
        matches!(self, Self::Collection | Self::CollectionElsewhere)
    }

    /// Whether another thread or process could do it, or the line that it waits for.
    fn is_movable(self) -> bool {
        match self {
            Self::OwnCode
            | Self::Lock
            | Self::Poll
            | Self::Pipe
            | Self::Sleep
            | Self::Process
            | Self::Disk
            | Self::Driver
            | Self::Gil => true,
            Self::Collection
            | Self::CollectionElsewhere
            | Self::OffCpu
            | Self::PageFault
            | Self::Cpu
            | Self::Stopped
            | Self::Other => false,
        }
    }
}
