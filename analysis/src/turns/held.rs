//! What holds up the loop of a service: collections, or something else.

use super::figures::{LoopReport, TurnCause, TurnFigures, TurnPart, TurnReport};
use crate::figure::Location;
use crate::paths::{common_directory, place};
use crate::report::Report;
use crate::time::{add_to, beyond, sum};
use crate::units::{duration, percent};
use gctrace_stats::ratio;
use std::collections::BTreeMap;

/// A shorter turn is not worth a change: a person or another service notices 20 ms. 10 ms.
pub(crate) const LONG_NS: u64 = 10_000_000;
/// A person notices a turn of this length, however rare. 100 ms, as of a pause (`verdict.rs`).
const VERY_LONG_NS: u64 = 100_000_000;
/// Turns that take so many times the median are late; below, the loop's work is as long as that.
const LATE_TIMES: u64 = 5;
/// A loop that is busy for this part of the time has no time for more: what arrives queues up.
const OVERLOADED: f64 = 0.9;
/// A cause of this part of the longest turns is named, or causes that together take it.
pub(super) const WORTH_RATIO: f64 = 0.4;

/// A cause, with its line if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held<'a> {
    pub(super) cause: TurnCause,
    pub(super) line: Option<&'a Location>,
}

/// A cause, with what it takes of the longest turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldTime<'a> {
    pub(super) held: Held<'a>,
    /// Of their time apart from collections.
    pub(super) share: f64,
    /// Its time in the turn where it takes most.
    pub(super) longest_ns: u64,
}

impl LoopReport {
    /// Whether it is late for requests: in one of a hundred moments, or rarely and for long. Who waits at one descriptor
    /// for answers has no requests.
    pub(crate) fn is_held_up(&self) -> bool {
        self.waits_for_many()
            && self.is_late()
            && (self.is_often_late() || self.figures.longest_ns >= VERY_LONG_NS)
    }

    /// Whether its longest turn takes many times the usual one.
    pub(super) fn is_late(&self) -> bool {
        let TurnFigures { p50_ns, longest_ns, .. } = self.figures;
        longest_ns / LATE_TIMES >= p50_ns.unwrap_or(0)
    }

    fn is_often_late(&self) -> bool {
        self.figures.lag_p99_ns >= Some(LONG_NS)
    }

    /// Whether collections make most of the time that requests wait for it.
    pub(crate) fn is_held_up_by_collections(&self) -> bool {
        let Some(without) = self.without_collections.filter(|_| self.is_held_up()) else {
            return false;
        };
        let of = |figures: TurnFigures| match figures.lag_p99_ns {
            Some(lag_ns) if self.is_often_late() => lag_ns,
            _ => figures.longest_ns,
        };
        of(without) <= of(self.figures) / 2
    }

    /// Whether most of its lateness is collections, whoever notices it.
    pub(crate) fn is_late_by_collections(&self) -> bool {
        if self.waits_for_many() {
            return self.is_held_up_by_collections();
        }
        self.longest_without_collections_ns() <= self.figures.longest_ns / 2
    }

    /// Its longest turn without collections, in ns, at most.
    pub(super) fn longest_without_collections_ns(&self) -> u64 {
        self.without_collections.unwrap_or(self.figures).longest_ns
    }

    fn long_turns(&self) -> impl Iterator<Item = &TurnReport> {
        self.longest.iter().chain(&self.as_long)
    }

    /// What its longest turns were spent on, apart from collections, the most first.
    pub(super) fn causes(&self) -> Vec<HeldTime<'_>> {
        let mut by_cause: BTreeMap<Held<'_>, (u64, u64)> = BTreeMap::new();
        let mut all_ns = 0;
        let parts = self.long_turns().flat_map(|turn| &turn.parts);
        for part in parts.filter(|part| !part.cause.is_collection()) {
            add_to(&mut all_ns, part.time_ns);
            let (time_ns, longest_ns) = by_cause.entry(Held::of(part)).or_default();
            add_to(time_ns, part.time_ns);
            *longest_ns = part.time_ns.max(*longest_ns);
        }
        let causes = by_cause.into_iter().map(|(held, (ns, longest_ns))| HeldTime {
            held,
            share: ratio(ns, all_ns).unwrap_or(0.0),
            longest_ns,
        });
        crate::bounded::ranked(causes, usize::MAX, |of| (of.share * 1e9) as u64)
    }

    /// The longest of its longest turns without collections and this cause, in ns.
    pub(super) fn longest_without_ns(&self, cause: Held<'_>) -> u64 {
        let rest = |turn: &TurnReport| {
            let is_gone = |part: &&TurnPart| part.cause.is_collection() || Held::of(part) == cause;
            let gone_ns = sum(turn.parts.iter().filter(is_gone).map(|part| part.time_ns));
            beyond(turn.length_ns, gone_ns)
        };
        self.long_turns().map(rest).max().unwrap_or(0)
    }
}

/// `Sleeping at serve.py:88 in compose holds up the loop for up to 812 ms: a request waits for it up to 790 ms (p99), without
/// collections no more than 700 ms.` `None` if nothing holds it up, and it has time for more.
pub fn sentence(report: &Report) -> Option<String> {
    let of = report.service_loop()?;
    let held_up = if of.is_held_up() { held_up(of, Places::of(report)) } else { None };
    match (held_up, overloaded(of)) {
        (Some(held_up), Some(overloaded)) => Some(format!("{held_up} {overloaded}")),
        (held_up, overloaded) => held_up.or(overloaded),
    }
}

/// `The loop is busy 97.3 % of the time, so that requests queue up.`
fn overloaded(of: &LoopReport) -> Option<String> {
    let busy = of.busy_ratio.filter(|busy| of.waits_for_many() && *busy >= OVERLOADED)?;
    Some(format!("The loop is busy {} of the time, so that requests queue up.", percent(busy)))
}

fn held_up(of: &LoopReport, places: Places<'_>) -> Option<String> {
    let what = if of.is_held_up_by_collections() {
        "Collections hold up the loop".to_owned()
    } else {
        match of.causes().as_slice() {
            [] => "Something holds up the loop".to_owned(),
            [one, other, ..] if one.share < WORTH_RATIO => format!(
                "{}, {} and other causes hold up the loop",
                capitalized(&one.held.name(places)),
                other.held.name(places)
            ),
            [one, ..] => format!("{} holds up the loop", capitalized(&one.held.name(places))),
        }
    };
    let waits_ns = of.figures.lag_p99_ns?;
    let waits = duration(waits_ns);
    // Collections of other threads may end before a turn begins.
    let longest_ns = of.figures.longest_ns;
    let without_them_ns = of.longest_without_collections_ns();
    let longest = if longest_ns < waits_ns {
        String::new()
    } else if of.is_held_up_by_collections() || longest_ns - longest_ns / 64 <= without_them_ns {
        format!(" for up to {}", duration(longest_ns))
    } else {
        let [longest, without] = [longest_ns, without_them_ns].map(duration);
        format!(" for up to {without}, collections for up to {longest}")
    };
    let without_ns = of.without_collections.and_then(|figures| figures.lag_p99_ns);
    let without = match without_ns {
        None => String::new(),
        // Lengths are known to one part in 64.
        Some(same_ns) if same_ns >= waits_ns - waits_ns / 64 => {
            ", with collections or without".to_owned()
        }
        Some(0) => ", without collections not at all".to_owned(),
        Some(shorter_ns) => {
            format!(", without collections no more than {}", duration(shorter_ns))
        }
    };
    Some(format!("{what}{longest}: a request waits for it up to {waits} (p99){without}."))
}

/// Names the lines of loops without the common folder of the program.
#[derive(Clone, Copy)]
pub struct Places<'a>(&'a str);

impl<'a> Places<'a> {
    /// The lines of these loops.
    pub fn of(report: &'a Report) -> Self {
        let parts = report.loops.iter().flat_map(|of| &of.longest).flat_map(|turn| &turn.parts);
        let lines = parts.filter_map(|part| part.line.as_ref());
        let own = report.loops.iter().filter_map(|of| of.line.as_ref());
        Self(common_directory(own.chain(lines)))
    }

    /// `serve.py:19 in work`
    pub fn name(self, line: &Location) -> String {
        place(line).replacen(self.0, "", 1)
    }
}

fn capitalized(name: &str) -> String {
    match name.split_at_checked(1) {
        Some((first, rest)) => first.to_uppercase() + rest,
        None => name.to_owned(),
    }
}

impl<'a> Held<'a> {
    fn of(part: &'a TurnPart) -> Self {
        Self { cause: part.cause, line: part.line.as_ref() }
    }

    /// `waiting for a lock at serve.py:12 in put`
    pub(super) fn name(self, places: Places<'_>) -> String {
        let what = match self.cause {
            TurnCause::OwnCode if self.line.is_some() => "code".to_owned(),
            TurnCause::OwnCode => "its own code".to_owned(),
            TurnCause::OffCpu => "a wait (kernel probes show its cause)".to_owned(),
            TurnCause::Stopped => "being stopped".to_owned(),
            cause => cause.to_string(),
        };
        match self.line {
            Some(line) if self.cause == TurnCause::Gil => {
                format!("{what} (meanwhile {})", places.name(line))
            }
            Some(line) => format!("{what} at {}", places.name(line)),
            None => what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(p50_ns: u64, longest_ns: u64, lag_ns: u64) -> TurnFigures {
        TurnFigures {
            p50_ns: Some(p50_ns),
            p99_ns: None,
            p999_ns: None,
            longest_ns,
            lag_p99_ns: Some(lag_ns),
            late_10_ms_ratio: None,
            late_100_ms_ratio: None,
        }
    }

    fn of(call: &str, with: TurnFigures, without: Option<TurnFigures>) -> LoopReport {
        LoopReport {
            trace: 0,
            pid: 7,
            tid: 7,
            main_thread: true,
            threads: 1,
            call: call.to_owned(),
            line: None,
            since_start_ns: 0,
            observed_ns: 0,
            turns: 100,
            turns_per_s: None,
            sees_looks: true,
            busy_ratio: None,
            busy_periods: 0,
            longest_busy_ns: 0,
            figures: with,
            without_collections: without,
            collected_turns: 0,
            longest: Vec::new(),
            as_long: Vec::new(),
        }
    }

    /// 20 ms in one of a hundred moments, or 100 ms at all, and far longer than usual.
    #[test]
    fn a_loop_is_held_up_by_what_is_long_for_it() {
        const MS: u64 = 1_000_000;
        for (p50_ns, longest_ns, lag_ns, expected) in [
            (MS, 20 * MS, 12 * MS, true),
            (MS, 20 * MS, 2 * MS, false),
            (MS, 120 * MS, 2 * MS, true),
            (50 * MS, 120 * MS, 60 * MS, false),
        ] {
            let with = figures(p50_ns, longest_ns, lag_ns);
            assert_eq!(of("epoll_wait", with, None).is_held_up(), expected, "{with:?}");
            assert!(!of("read", with, None).is_held_up());
        }
        let with = figures(MS, 120 * MS, 30 * MS);
        for (without, expected) in [(14, true), (16, false)] {
            let without = figures(MS, 120 * MS, without * MS);
            let of = of("poll", with, Some(without));
            assert_eq!(of.is_held_up_by_collections(), expected);
        }
    }
}
