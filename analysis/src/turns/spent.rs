//! What a long turn was spent on.

use super::figures::{TurnCause, TurnPart};
use crate::cpu::spans::{ThreadDid, ThreadSpan};
use crate::figure::Location;
use crate::stacks::{NodeId, StackTree};
use crate::time::{add_to, beyond, overlap_ns, sum};
use gctrace_event::{OffCpuReason, Turn};
use gctrace_stats::scaled;
use std::collections::BTreeMap;

/// Parts listed of a turn.
const LISTED: usize = 8;

/// Waits that a collection of another thread causes: it has the GIL, for which the thread waits as soon as it is woken.
/// Who waits for a thread that needs the GIL has another lock. In this order.
const BEHIND: [TurnCause; 4] = [TurnCause::Gil, TurnCause::Lock, TurnCause::Cpu, TurnCause::OffCpu];

/// A time in which a thread waited for the next piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleTime {
    pub(super) reason: OffCpuReason,
    /// Start and end.
    pub(super) span: (u64, u64),
}

/// Lines listed of a cause.
const LINES: usize = 3;

/// A turn, with the causes of its time.
pub(super) struct Spent<'a> {
    pub(super) turn: &'a Turn,
    by_cause: BTreeMap<TurnCause, u64>,
    idle: Vec<IdleTime>,
}

/// Times by place in the code.
type ByPlace = BTreeMap<Option<NodeId>, u64>;

impl<'a> Spent<'a> {
    /// `others_collected_ns`: time of the turn in which other threads of its process collected. `idle`: waits for the
    /// next piece of work; they are no part of it.
    pub(super) fn of(turn: &'a Turn, others_collected_ns: u64, idle: &[IdleTime]) -> Self {
        let mut by_cause: BTreeMap<TurnCause, u64> = BTreeMap::new();
        // A damaged trace may have more.
        let mut rest_ns = beyond(turn.length_ns(), turn.in_pauses_ns);
        for (reason, ns) in &turn.waits {
            let ns = rest_ns.min(*ns);
            rest_ns -= ns;
            add_to(by_cause.entry(TurnCause::of(*reason)).or_default(), ns);
        }
        let cpu_ns = turn.cpu_ns.map_or(rest_ns, |cpu_ns| cpu_ns.min(rest_ns));
        by_cause.insert(TurnCause::OffCpu, rest_ns - cpu_ns);
        for IdleTime { reason, span } in idle {
            if let Some(ns) = by_cause.get_mut(&TurnCause::of(*reason)) {
                *ns = beyond(*ns, overlap_ns(*span, (turn.start_ns, turn.end_ns)));
            }
        }
        let mut behind_ns = 0;
        for cause in BEHIND {
            if let Some(ns) = by_cause.get_mut(&cause) {
                let part_ns = (*ns).min(others_collected_ns - behind_ns);
                *ns -= part_ns;
                behind_ns += part_ns;
            }
        }
        by_cause.insert(TurnCause::Collection, turn.in_pauses_ns);
        by_cause.insert(TurnCause::CollectionElsewhere, behind_ns);
        by_cause.insert(TurnCause::OwnCode, cpu_ns);
        by_cause.retain(|_, ns| *ns > 0);
        Self { turn, by_cause, idle: idle.to_vec() }
    }

    /// Its length without idle time, in ns.
    pub(super) fn length_ns(&self) -> u64 {
        sum(self.by_cause.values().copied())
    }

    /// Time that collections took of it, in ns.
    pub(super) fn collections_ns(&self) -> u64 {
        let collections = self.by_cause.iter().filter(|(cause, _)| cause.is_collection());
        sum(collections.map(|(_, ns)| *ns))
    }

    /// Its parts, the largest first; they add up to its length. `spans`: what the threads of its process did.
    pub(super) fn parts<'s>(
        &self,
        spans: impl Iterator<Item = &'s ThreadSpan>,
        tree: &StackTree,
    ) -> Vec<TurnPart> {
        let mut places = Places::default();
        let is_idle = |span: &ThreadSpan| self.idle.iter().any(|idle| idle.span == span.span());
        for span in spans.filter(|span| span.tid != self.turn.tid || !is_idle(span)) {
            places.add(self.turn, span);
        }
        let mut parts = Vec::new();
        for (cause, ns) in &self.by_cause {
            let line_of = |places: &ByPlace| lines(places, tree).into_iter().next();
            let most = match cause {
                TurnCause::Gil => line_of(&places.others),
                TurnCause::OwnCode => line_of(&places.executed),
                _ => {
                    let waits = places.waits.get(cause).map(|waits| lines(waits, tree));
                    parts.extend(by_line(*cause, *ns, &waits.unwrap_or_default()));
                    continue;
                }
            };
            let line = most.map(|(line, _)| line.clone());
            parts.push(TurnPart { cause: *cause, time_ns: *ns, line });
        }
        crate::bounded::ranked(parts, LISTED, |part| part.time_ns)
    }
}

/// Where threads were during a turn.
#[derive(Default)]
struct Places {
    /// Samples of its own thread, and of other threads.
    executed: ByPlace,
    others: ByPlace,
    /// Times off the CPU of a millisecond or longer.
    waits: BTreeMap<TurnCause, ByPlace>,
}

impl Places {
    fn add(&mut self, turn: &Turn, span: &ThreadSpan) {
        let Some((part, (start_ns, end_ns))) = span.within((turn.start_ns, turn.end_ns)) else {
            return;
        };
        let is_own = span.tid == turn.tid;
        let (places, amount) = match span.did {
            ThreadDid::Run(_) if is_own && span.in_pause => return,
            // in thousandths of a sample
            ThreadDid::Run(samples) => {
                let places = if is_own { &mut self.executed } else { &mut self.others };
                (places, (part * samples as f64 * 1000.0) as u64)
            }
            ThreadDid::Wait { reason, .. } if is_own => {
                (self.waits.entry(TurnCause::of(reason)).or_default(), end_ns - start_ns)
            }
            ThreadDid::Wait { .. } => return,
        };
        add_to(places.entry(span.node).or_default(), amount);
    }
}

/// The time of a cause, by the lines where it waited; the rest has no line.
fn by_line(cause: TurnCause, time_ns: u64, lines: &[(&Location, u64)]) -> Vec<TurnPart> {
    let known_ns = sum(lines.iter().map(|(_, ns)| *ns));
    let mut rest_ns = time_ns;
    let mut parts = Vec::new();
    for (line, ns) in lines.iter().take(LINES) {
        // Waits of less than a millisecond have no line: they are like the others.
        let time_ns = if lines.len() > 1 { scaled(time_ns, *ns, known_ns) } else { time_ns };
        rest_ns = beyond(rest_ns, time_ns);
        parts.push(TurnPart { cause, time_ns, line: Some((*line).clone()) });
    }
    match parts.first_mut() {
        // rounding
        Some(most) if lines.len() <= LINES => most.time_ns += rest_ns,
        _ => parts.push(TurnPart { cause, time_ns: rest_ns, line: None }),
    }
    parts.retain(|part| part.time_ns > 0);
    parts
}

/// Lines with their times, the most first.
fn lines<'t>(places: &ByPlace, tree: &'t StackTree) -> Vec<(&'t Location, u64)> {
    let mut by_line: BTreeMap<&Location, u64> = BTreeMap::new();
    for (node, amount) in places {
        if let Some(node) = node {
            add_to(by_line.entry(tree.own_line(*node)).or_default(), *amount);
        }
    }
    crate::bounded::ranked(by_line, usize::MAX, |(_, amount)| *amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::TraceFrames;
    use gctrace_event::{Frame, OffCpu};

    fn parts(turn: &Turn) -> Vec<(TurnCause, u64)> {
        let parts = Spent::of(turn, 0, &[]).parts(std::iter::empty(), &StackTree::default());
        parts.into_iter().map(|part| (part.cause, part.time_ns)).collect()
    }

    #[test]
    fn time_off_the_cpu_is_one_part_without_its_waits() {
        let turn = Turn { start_ns: 100, end_ns: 200, in_pauses_ns: 20, ..Turn::default() };
        let ran = Turn { cpu_ns: Some(30), ..turn.clone() };
        let expected =
            [(TurnCause::OffCpu, 50), (TurnCause::OwnCode, 30), (TurnCause::Collection, 20)];
        assert_eq!(parts(&ran), expected);
        // of a damaged trace
        let more = Turn { cpu_ns: Some(500), ..turn.clone() };
        assert_eq!(parts(&more), [(TurnCause::OwnCode, 80), (TurnCause::Collection, 20)]);
        let waited = Turn { waits: vec![(OffCpuReason::Sleep, 70)], ..turn };
        let expected =
            [(TurnCause::Sleep, 70), (TurnCause::Collection, 20), (TurnCause::OwnCode, 10)];
        assert_eq!(parts(&waited), expected);
    }

    #[test]
    fn waits_during_a_collection_of_another_thread_are_behind_it() {
        let waits = vec![
            (OffCpuReason::Sleep, 10),
            (OffCpuReason::Gil, 40),
            (OffCpuReason::Cpu, 20),
            (OffCpuReason::Lock, 15),
        ];
        let turn = Turn { start_ns: 100, end_ns: 200, waits, ..Turn::default() };
        let idle = IdleTime { reason: OffCpuReason::Lock, span: (195, 300) };
        let spent = Spent::of(&turn, 50, &[idle]);
        assert_eq!((spent.length_ns(), spent.collections_ns()), (95, 50));
        let parts = spent.parts(std::iter::empty(), &StackTree::default());
        let parts: Vec<_> = parts.into_iter().map(|part| (part.cause, part.time_ns)).collect();
        let expected = [
            (TurnCause::CollectionElsewhere, 50),
            (TurnCause::Cpu, 20),
            (TurnCause::OwnCode, 15),
            (TurnCause::Sleep, 10),
        ];
        assert_eq!(parts, expected);
        // In-process only the CPU time is known.
        let turn = Turn { start_ns: 100, end_ns: 200, cpu_ns: Some(10), ..Turn::default() };
        assert_eq!(Spent::of(&turn, 80, &[]).collections_ns(), 80);
    }
    /// A thread of a pool waits for a lock, and for its next work at another line.
    #[test]
    fn the_line_of_idle_time_is_in_no_part() {
        let mut tree = StackTree::default();
        let mut frames = TraceFrames::default();
        for (id, file) in [(1, "/app/serve.py"), (2, "/app/pool.py")] {
            let (function, file) = ("wait".to_owned(), file.to_owned());
            frames.add(Frame { id, parent: None, function, file, line: Some(id) }, &mut tree);
        }
        let turn = Turn {
            start_ns: 100,
            end_ns: 200,
            waits: vec![(OffCpuReason::Lock, 90)],
            ..Turn::default()
        };
        let idle = IdleTime { reason: OffCpuReason::Lock, span: (140, 190) };
        let off = OffCpu { reason: OffCpuReason::Lock, ..OffCpu::default() };
        let mut span =
            |id, span| ThreadSpan::off_cpu(&off, span, frames.resolve(id, &mut tree), false);
        let spans = [span(1, (100, 140)), span(2, idle.span)];
        let parts = Spent::of(&turn, 0, &[idle]).parts(spans.iter(), &tree);
        let parts: Vec<_> = parts
            .iter()
            .map(|part| (part.time_ns, part.line.as_ref().map(|line| line.file.as_str())))
            .collect();
        assert_eq!(parts, [(40, Some("/app/serve.py")), (10, None)]);
    }
}
