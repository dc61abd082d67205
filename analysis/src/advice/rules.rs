//! The rules: the change that helps a program, by what its collections free.
//!
//! Each rule names the measurement that justifies it: the collector's CPU time that the change saved in programs of
//! that kind, and their number (docs/evidence.md; `tests/verdict/matrix.py` measures them again). A rule states an
//! upper bound, the time of the collections that the change is about, and the part of it saved elsewhere. No rule
//! predicts more from one recording.

use super::Candidate;
use super::facts::Facts;
use crate::report::{AdviceEffect, AdviceId, GarbageReport, Level, UsualGain};
use crate::words::{EXPLICIT_EVERY, PLANNED_STEPS};

/// A change is worth a line from this part of the judged time on.
const WORTH: f64 = 0.01;
/// From this part of the allocated containers on, a collection meets mostly garbage: a higher threshold has it
/// traverse the same garbage later, in colder caches.
const MOSTLY_GARBAGE: f64 = 0.25;
/// Nothing is freed, the collector off; a script can run so.
const OFF: UsualGain = UsualGain { least: 0.51, median: 1.0, most: 1.0, programs: 32 };
/// Nothing is freed, threshold 50,000. Freezing beside it gained less: its own collection costs 2 % of the CPU time
/// in the median.
const RARE: UsualGain = UsualGain { least: -0.26, median: 0.73, most: 0.96, programs: 32 };
/// Cycles are freed, threshold 7,000; 50,000 is -46 to 100 %.
const LESS_OFTEN: UsualGain = UsualGain { least: -0.58, median: 0.09, most: 0.75, programs: 22 };
/// Cycles are freed, and broken in the program.
const BROKEN: UsualGain = UsualGain { least: 0.46, median: 0.89, most: 1.0, programs: 21 };
/// Explicit calls left out. Thresholds and gc.disable() made each such call longer.
const WITHOUT_CALLS: UsualGain = UsualGain { least: 0.86, median: 0.95, most: 0.96, programs: 5 };
/// Explicit calls of a heap that is frozen after its set-up.
const FROZEN_CALLS: UsualGain = UsualGain { least: 0.78, median: 0.86, most: 0.93, programs: 5 };
/// Live objects frozen at the exit.
const FROZEN_AT_EXIT: UsualGain = UsualGain { least: 0.43, median: 0.71, most: 0.97, programs: 59 };
/// Forked workers, the heap of their parent frozen.
const FROZEN_FORKS: UsualGain = UsualGain { least: 0.42, median: 0.9, most: 0.96, programs: 3 };

/// The changes for these facts, in no order.
pub(super) fn changes(facts: &Facts<'_>) -> Vec<Candidate> {
    let mut list = Vec::new();
    let (automatic_ns, explicit_ns) = (facts.automatic_ns(), facts.causes.manual.time_ns);
    let is_explicit = explicit_ns > automatic_ns;
    // Long pauses that are rare take little time, and make a request late.
    let is_long = facts.report.verdict.level == Level::RareLongPauses;
    let matters = |ns| is_worth(ns, facts.unhindered_ns()) || is_long && ns > 0;
    // Each collection calls them.
    let with_callbacks_ns = crate::time::sum([automatic_ns, facts.callbacks_ns()]);
    if matters(with_callbacks_ns) && !is_explicit {
        list.extend(of_automatic(facts, with_callbacks_ns));
    }
    if matters(explicit_ns) {
        list.extend(of_explicit(facts, explicit_ns));
    }
    // An end is short or long whatever is judged. No request waits for the end of a service.
    let exit_ns = facts.exit_ns();
    if is_worth(exit_ns, facts.run_ns()) && !facts.serves() {
        list.push(candidate(AdviceId::FreezeAtExit, exit_ns, Some(FROZEN_AT_EXIT), None));
    }
    list
}

/// Explicit calls that free nothing are left out. Others are needed, each walks a heap that hardly changes, and some
/// are too many.
fn of_explicit(facts: &Facts<'_>, bound_ns: u64) -> Vec<Candidate> {
    if !facts.explicit_calls_free() {
        return vec![candidate(AdviceId::ExplicitCalls, bound_ns, Some(WITHOUT_CALLS), None)];
    }
    let mut list = Vec::new();
    if facts.has_large_heap() {
        let settings = facts.steps().map(|_| "freeze@step:2".to_owned());
        list.push(candidate(AdviceId::Freeze, bound_ns, Some(FROZEN_CALLS), settings));
    }
    let others_ns = bound_ns - bound_ns / EXPLICIT_EVERY;
    list.push(candidate(AdviceId::ExplicitCalls, others_ns, None, None));
    list
}

fn of_automatic(facts: &Facts<'_>, bound_ns: u64) -> Vec<Candidate> {
    let of = |id, gain, settings: Option<&str>| {
        candidate(id, bound_ns, gain, settings.map(str::to_owned))
    };
    if facts.has_large_heap() && facts.traverses_inherited() == Some(true) {
        return vec![of(AdviceId::FreezeBeforeFork, Some(FROZEN_FORKS), Some("freeze-forks"))];
    }
    // Objects made by imports belong to them: no line of the program breaks their cycles.
    let keeps_most = matches!(facts.garbage_ratio(), Some(ratio) if ratio < MOSTLY_GARBAGE);
    if facts.at_start_up() && (!facts.ends() || keeps_most && facts.frees_nothing() == Some(false))
    {
        return vec![of(AdviceId::OffWhileLoading, None, None)];
    }
    match facts.frees_nothing() {
        // The objects that pile up are not all alive, or will be garbage.
        Some(true) | None if facts.uncollected().is_some() || facts.grows() => Vec::new(),
        // Each rank that collects holds up the others.
        Some(true) if facts.is_rank() => {
            let settings = format!("plan:{PLANNED_STEPS},gen2:{PLANNED_STEPS}");
            let settings = facts.steps().map(|_| settings.as_str());
            vec![of(AdviceId::Planned, None, settings)]
        }
        Some(true) if facts.ends() => {
            vec![of(AdviceId::Disable, Some(OFF), Some("disable@start"))]
        }
        Some(true) => {
            let mut list =
                vec![of(AdviceId::RaiseThreshold, Some(RARE), Some("threshold=50000,10,10"))];
            if facts.has_large_heap() {
                list.push(freeze(facts));
            }
            list
        }
        // The freed objects are unknown.
        None => vec![of(AdviceId::RaiseThreshold, Some(LESS_OFTEN), Some("threshold=7000,10,10"))],
        Some(false) => of_garbage(facts, bound_ns),
    }
}

/// Collections that free garbage in cycles: broken, these need no collection. A higher threshold saves some of
/// the time of a collector that goes through more than garbage; a much higher one has been seen to double it.
fn of_garbage(facts: &Facts<'_>, bound_ns: u64) -> Vec<Candidate> {
    // Objects in broken cycles are finalized too.
    let finalizer = facts.finalizer();
    let bound_ns = match finalizer {
        Some(called) => bound_ns - (bound_ns as f64 * called.ratio.min(1.0)) as u64,
        None => bound_ns,
    };
    let part_ns = match &facts.process.garbage {
        Some(GarbageReport { verdict: Some(main), .. }) => (bound_ns as f64 * main.ratio) as u64,
        _ => bound_ns,
    };
    let mut list = Vec::new();
    if !facts.has_cycles_of_python() {
        let id = facts.about_cycles();
        let gain = if id == AdviceId::BreakCycles { Some(BROKEN) } else { None };
        list.push(candidate(id, part_ns, gain, None));
    }
    let keeps_most = matches!(facts.garbage_ratio(), Some(ratio) if ratio < MOSTLY_GARBAGE);
    if keeps_most && facts.has_large_heap() {
        list.push(freeze(facts));
    }
    // Waiting garbage would be ten times as much.
    let is_small =
        facts.held_by_garbage().is_none() && finalizer.is_none() && !facts.may_free_buffers();
    if is_small && keeps_most {
        let settings = Some("threshold=7000,10,10".to_owned());
        list.push(candidate(AdviceId::RaiseThreshold, bound_ns, Some(LESS_OFTEN), settings));
    }
    if matches!(facts.steps(), Some(steps) if steps >= 10 * PLANNED_STEPS) {
        let settings = Some(format!("plan:{PLANNED_STEPS},gen2:{PLANNED_STEPS}"));
        list.push(candidate(AdviceId::Planned, bound_ns, None, settings));
    }
    list
}

/// Full collections traverse what was loaded no more.
fn freeze(facts: &Facts<'_>) -> Candidate {
    let full_ns = facts.causes.automatic_full.time_ns;
    let settings = facts.steps().map(|_| "freeze@step:2".to_owned());
    candidate(AdviceId::Freeze, full_ns, None, settings)
}

fn candidate(
    id: AdviceId,
    bound_ns: u64,
    usual: Option<UsualGain>,
    settings: Option<String>,
) -> Candidate {
    Candidate { id, effect: AdviceEffect { usual, settings, ..AdviceEffect::saves(bound_ns) } }
}

fn is_worth(ns: u64, of_ns: u64) -> bool {
    ns as f64 >= WORTH * of_ns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_settings::NEXT_TO_NOTHING_PER_S;
    use std::collections::BTreeMap;
    use std::path::Path;

    /// A program with an interpreter, by remedy: its figures by column.
    type Measured = BTreeMap<String, BTreeMap<String, f64>>;

    fn measured() -> Vec<Measured> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/verdict/truth.csv");
        let text = std::fs::read_to_string(file).unwrap();
        // A quoted cell has commas of its own.
        let unquoted = |(index, part): (usize, &str)| match index % 2 {
            0 => part.to_owned(),
            _ => part.replace(',', ";"),
        };
        let text: String = text.split('"').enumerate().map(unquoted).collect();
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().unwrap();
        let mut programs: BTreeMap<(&str, &str), Measured> = BTreeMap::new();
        // Ranks load their heaps after the fork, and froze them there.
        for cells in lines.filter(|cells| cells[1..3] != ["ranks", "freeze-forks"]) {
            let figures = head.iter().zip(&cells).skip(3);
            let figures = figures.map(|(name, cell)| ((*name).to_owned(), cell.parse().unwrap()));
            let program = programs.entry((cells[0], cells[1])).or_default();
            program.insert(cells[2].to_owned(), figures.collect());
        }
        programs.into_values().collect()
    }

    /// The part of a column that a remedy saves.
    fn saved(program: &Measured, remedy: &str, column: &str) -> f64 {
        1.0 - program[remedy][column] / program["none"][column]
    }

    fn gain(mut shares: Vec<f64>) -> UsualGain {
        shares.sort_by(f64::total_cmp);
        let count = shares.len();
        let median = (shares[(count - 1) / 2] + shares[count / 2]) / 2.0;
        let rounded = |share: f64| (share * 100.0).round() / 100.0;
        UsualGain {
            least: rounded(shares[0]),
            median: rounded(median),
            most: rounded(shares[count - 1]),
            programs: count as u32,
        }
    }

    /// Each gain is as measured by tests/verdict, grouped as in docs/evidence.md.
    #[test]
    fn gains_are_those_of_the_measured_programs() {
        let all = measured();
        let share =
            |program: &Measured, column: &str| program["none"][column] / program["none"]["cpu_ms"];
        let counted = || all.iter().filter(|program| share(program, "collector_ms") > 0.02);
        let is_explicit = |program: &Measured| {
            program["none"]["explicit_ms"] > program["none"]["collector_ms"] / 2.0
        };
        let frees_nothing =
            |program: &Measured| share(program, "freed") * 1e3 < NEXT_TO_NOTHING_PER_S as f64;
        let of = |is_of: &dyn Fn(&Measured) -> bool, remedy: &str| {
            let having = counted().filter(|one| is_of(one) && one.contains_key(remedy));
            gain(having.map(|one| saved(one, remedy, "collector_ms")).collect())
        };
        let nothing = |one: &Measured| !is_explicit(one) && frees_nothing(one);
        let cycles = |one: &Measured| !is_explicit(one) && !frees_nothing(one);
        assert_eq!(of(&nothing, "disable@start"), OFF);
        assert_eq!(of(&nothing, "threshold=50000;10;10"), RARE);
        assert_eq!(of(&cycles, "threshold=7000;10;10"), LESS_OFTEN);
        assert_eq!(of(&is_explicit, "no-explicit"), WITHOUT_CALLS);
        assert_eq!(of(&is_explicit, "freeze"), FROZEN_CALLS);
        assert_eq!(of(&|one| !is_explicit(one), "freeze-forks"), FROZEN_FORKS);
        let exits = all.iter().filter(|one| share(one, "exit_ms") > WORTH);
        assert_eq!(
            gain(exits.map(|one| saved(one, "exit-freeze", "exit_ms")).collect()),
            FROZEN_AT_EXIT
        );
        // If a cycle can be broken in several ways, the way that gains most.
        let broken = counted().filter(|one| cycles(one)).filter_map(|one| {
            let fixes = one.keys().filter(|remedy| remedy.starts_with("fix="));
            fixes.map(|fix| saved(one, fix, "collector_ms")).max_by(f64::total_cmp)
        });
        assert_eq!(gain(broken.collect()), BROKEN);
    }
}
