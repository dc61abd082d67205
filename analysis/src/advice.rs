//! What to do next: one list of changes, by what they save. Some come from the rules (`rules.rs`), the others from
//! the waits of the main thread.

pub(crate) mod facts;
mod idle;
pub(crate) mod memory;
mod rules;
mod waits;

use self::facts::Facts;
use crate::report::{Advice, AdviceEffect, AdviceId, Level, PauseTotal, Report};
use crate::{turns, words};
use std::cmp::Reverse;

/// A cause is worth an action from this share of all pause time on.
const WORTH_RATIO: f64 = 0.2;

/// A change that was measured in no program counts as half of its bound in the order.
const UNMEASURED: f64 = 0.5;

/// A change that saves this part of the run comes before a change that gives back memory.
const MUCH: f64 = 0.05;

/// A change that may be advised.
struct Candidate {
    id: AdviceId,
    effect: AdviceEffect,
}

impl Advice {
    /// What it is likely to save, in ns, for the order: the usual share of its bound.
    fn likely_ns(&self) -> u64 {
        let bound_ns = self.effect.saves_at_most_ns.unwrap_or(0);
        let usual = if let Some(usual) = self.effect.usual { usual.median } else { UNMEASURED };
        (bound_ns as f64 * usual) as u64
    }
}

impl Report {
    /// Whether the collections that the verdict is about free next to nothing; `None` if that is unknown.
    pub fn frees_nothing(&self) -> Option<bool> {
        Facts::of(self)?.frees_nothing()
    }
}

/// All advice for a report, in the order to try it.
pub(crate) fn advice(report: &Report) -> Vec<Advice> {
    let list = choose(report).into_iter();
    let mut list: Vec<Advice> =
        list.map(|advised| words::advice::advice(advised.id, advised.effect, report)).collect();
    if report.runs <= 1 {
        if report.verdict.level != Level::TooShort {
            list.extend(waits::advice(report));
        }
        let names_gil = list.iter().any(|advice| advice.id == AdviceId::FreeGil);
        list.extend(turns::advice::advice(report, names_gil));
    }
    let (idle, host) = match report.runs {
        0 | 1 => idle::advice(report, &list),
        _ => (Vec::new(), Vec::new()),
    };
    list.extend(idle);
    // "Nothing to change" stands alone. Advice that saves no time comes last.
    if list.len() + host.len() > 1 {
        list.retain(|advice| !matches!(advice.id, AdviceId::Leave | AdviceId::NoCollection));
    }
    list.sort_by_key(|advice| Reverse(advice.likely_ns()));
    put_memory_first(report, &mut list);
    let service = report.service_loop();
    if matches!(service, Some(service) if !service.is_late_by_collections()) {
        list.sort_by_key(|advice| advice.id != AdviceId::FreeLoop);
    }
    let saving = list.iter().rposition(|advice| advice.likely_ns() > 0).map_or(0, |last| last + 1);
    list.splice(saving..saving, host);
    list
}

/// Cycles of the program that are nearly all garbage come first. Memory that piles up, or that garbage holds, comes
/// before changes that save little time.
fn put_memory_first(report: &Report, list: &mut [Advice]) {
    let whole_ns = if let Some(phases) = &report.phases { phases.unhindered_ns() } else { 0 };
    let knows_cycles = matches!(Facts::of(report), Some(facts) if facts.knows_own_cycles());
    list.sort_by_key(|advice| {
        let is_memory =
            advice.effect.gives_back_at_most_bytes.is_some() || advice.id == AdviceId::FindHolders;
        let saves_much = advice.likely_ns() as f64 >= MUCH * whole_ns.max(1) as f64;
        match (saves_much, is_memory) {
            _ if knows_cycles && advice.id == AdviceId::BreakCycles => 0,
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 3,
        }
    });
}

fn choose(report: &Report) -> Vec<Candidate> {
    if report.runs > 1 {
        return Vec::new();
    }
    let Some(facts) = Facts::of(report) else {
        return vec![plain(match report.verdict.level {
            Level::Unknown => AdviceId::RecordCollections,
            _ => AdviceId::NoCollection,
        })];
    };
    if facts.hang_ns().is_some() {
        return vec![plain(AdviceId::DumpHang)];
    }
    let mut list = match report.verdict.level {
        Level::TooShort => Vec::new(),
        _ => rules::changes(&facts),
    };
    if matches!(report.verdict.level, Level::None | Level::Negligible) {
        list.retain(|change| change.id == AdviceId::FreezeAtExit);
    }
    if words::advice::is_of_others(report) {
        list.retain(|change| change.id != AdviceId::ExplicitCalls);
    }
    if let Some(cost) = &report.gpu_cost {
        // A pause that is hidden behind GPU work saves nothing.
        for change in &mut list {
            let most_ns = &mut change.effect.saves_at_most_ns;
            *most_ns = most_ns.map(|ns| ns.min(cost.cost_ns));
        }
    }
    for change in memory::changes(&facts) {
        match list.iter_mut().find(|listed| listed.id == change.id) {
            Some(listed) => {
                if change.effect.gives_back_at_most_bytes.is_some() {
                    listed.effect.gives_back_at_most_bytes = change.effect.gives_back_at_most_bytes;
                }
            }
            None => list.push(change),
        }
    }
    list.extend(swapped_out(report));
    if list.is_empty() && report.verdict.level != Level::TooShort {
        list.push(plain(AdviceId::Leave));
    }
    if report.totals.pauses.uncollectable > 0 {
        list.push(plain(AdviceId::Uncollectable));
    }
    list
}

/// `None` unless many pauses waited for a disk.
fn swapped_out(report: &Report) -> Option<Candidate> {
    let waited = report.counters.as_ref()?.major_fault_pauses;
    if !is_worth(report, waited) {
        return None;
    }
    Some(Candidate { id: AdviceId::SwappedOut, effect: AdviceEffect::saves(waited.time_ns) })
}

fn plain(id: AdviceId) -> Candidate {
    Candidate { id, effect: AdviceEffect::default() }
}

/// Whether pauses of a cause are worth an action.
fn is_worth(report: &Report, pauses: PauseTotal) -> bool {
    pauses.count > 0 && report.share(pauses) >= WORTH_RATIO
}
