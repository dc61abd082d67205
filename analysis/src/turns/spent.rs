//! What a long turn was spent on.

use super::figures::{TurnCause, TurnPart};
use crate::cpu::spans::{ThreadDid, ThreadSpan};
use crate::figure::Location;
use crate::stacks::{NodeId, StackTree};
use crate::time::{add_to, beyond, sum};
use gctrace_event::{OffCpuReason, Turn};
use std::collections::BTreeMap;

/// Parts listed of a turn.
const LISTED: usize = 8;

/// A turn, and the part of its waits for the GIL that another thread's collections took.
pub(super) struct Spent<'a> {
    pub(super) turn: &'a Turn,
    in_others_pauses_ns: u64,
}

/// Times by place in the code.
type ByPlace = BTreeMap<Option<NodeId>, u64>;

impl<'a> Spent<'a> {
    /// `others_collected_ns`: time of the turn in which other threads of its process collected. They had the GIL: as far as
    /// the turn waited for it, it waited for them.
    pub(super) fn of(turn: &'a Turn, others_collected_ns: u64) -> Self {
        let gil = turn.waits.iter().find(|(reason, _)| *reason == OffCpuReason::Gil);
        let gil_ns = gil.map_or(0, |(_, ns)| *ns);
        Self { turn, in_others_pauses_ns: others_collected_ns.min(gil_ns) }
    }

    /// Time that collections took of it, in ns.
    pub(super) fn collections_ns(&self) -> u64 {
        sum([self.turn.in_pauses_ns, self.in_others_pauses_ns])
    }

    /// Its parts, the largest first; they add up to its length. `spans`: what the threads of its process did.
    pub(super) fn parts<'s>(
        &self,
        spans: impl Iterator<Item = &'s ThreadSpan>,
        tree: &StackTree,
    ) -> Vec<TurnPart> {
        let mut places = Places::default();
        for span in spans {
            places.add(self.turn, span);
        }
        let mut parts = vec![
            TurnPart::new(TurnCause::Collection, self.turn.in_pauses_ns, None),
            TurnPart::new(TurnCause::CollectionElsewhere, self.in_others_pauses_ns, None),
        ];
        let mut waited_ns = 0;
        for (reason, ns) in &self.turn.waits {
            add_to(&mut waited_ns, *ns);
            let place = match reason {
                OffCpuReason::Gil => line(&places.others, tree),
                _ => places.waits.get(reason).and_then(|places| line(places, tree)),
            };
            let elsewhere_ns =
                if *reason == OffCpuReason::Gil { self.in_others_pauses_ns } else { 0 };
            parts.push(TurnPart::new(TurnCause::of(*reason), beyond(*ns, elsewhere_ns), place));
        }
        let rest_ns = beyond(self.turn.length_ns(), sum([self.turn.in_pauses_ns, waited_ns]));
        let cpu_ns = self.turn.cpu_ns.map_or(rest_ns, |cpu_ns| cpu_ns.min(rest_ns));
        parts.push(TurnPart::new(TurnCause::OwnCode, cpu_ns, line(&places.executed, tree)));
        parts.push(TurnPart::new(TurnCause::OffCpu, rest_ns - cpu_ns, None));
        parts.retain(|part| part.time_ns > 0);
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
    waits: BTreeMap<OffCpuReason, ByPlace>,
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
                (self.waits.entry(reason).or_default(), end_ns - start_ns)
            }
            ThreadDid::Wait { .. } => return,
        };
        add_to(places.entry(span.node).or_default(), amount);
    }
}

/// The line with most of a time.
fn line(places: &ByPlace, tree: &StackTree) -> Option<Location> {
    let mut by_line: BTreeMap<&Location, u64> = BTreeMap::new();
    for (node, amount) in places {
        if let Some(node) = node {
            add_to(by_line.entry(tree.own_line(*node)).or_default(), *amount);
        }
    }
    let most = by_line.into_iter().max_by_key(|(_, amount)| *amount)?;
    Some(most.0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(turn: &Turn) -> Vec<(TurnCause, u64)> {
        let parts = Spent::of(turn, 0).parts(std::iter::empty(), &StackTree::default());
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
}
