//! Lines whose collections took more or less time than before.

use super::RunFacts;
use super::float;
use super::report::LineChange;
use super::report::LineComparison;
use crate::report::LinesReport;
use crate::report::Location;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Lines in a comparison.
const LINES: usize = 20;
const NS_PER_S: f64 = 1e9;

/// Lines of one side, by what they are recognized by in another checkout: the file's name, the
/// function, the line.
type SideLines<'a> = BTreeMap<(&'a str, &'a str, Option<u32>), LineOfSide<'a>>;

#[derive(Clone, Copy)]
struct LineOfSide<'a> {
    location: &'a Location,
    ns_per_s: f64,
}

/// The lines with the largest differences. Empty if a run has no stacks.
pub(super) fn compare(before: &[RunFacts<'_>], after: &[RunFacts<'_>]) -> Vec<LineComparison> {
    let (Some((mut old, old_least)), Some((mut new, new_least))) = (lines(before), lines(after))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let same: Vec<_> = old.keys().filter(|key| new.contains_key(*key)).copied().collect();
    for key in same {
        if let (Some(old), Some(new)) = (old.remove(&key), new.remove(&key)) {
            found.push(line(Some(old), new.location, new.ns_per_s, LineChange::Same));
        }
    }
    for (key, new) in new {
        let mut others = old.iter().filter(|(own, _)| (own.0, own.1) == (key.0, key.1));
        match others.next().map(|(own, _)| *own) {
            Some(moved) => {
                let old = old.remove(&moved);
                found.push(line(old, new.location, new.ns_per_s, LineChange::Moved));
            }
            None if new.ns_per_s > old_least => {
                found.push(line(None, new.location, new.ns_per_s, LineChange::Appeared));
            }
            None => {}
        }
    }
    let went = old.into_values().filter(|old| old.ns_per_s > new_least);
    found.extend(went.map(|old| line(Some(old), old.location, 0.0, LineChange::Went)));
    let difference = |line: &LineComparison| (line.after_ns_per_s - line.before_ns_per_s).abs();
    found.sort_by(|one, other| difference(other).total_cmp(&difference(one)));
    found.truncate(LINES);
    found
}

fn line(
    before: Option<LineOfSide<'_>>,
    location: &Location,
    after_ns_per_s: f64,
    change: LineChange,
) -> LineComparison {
    LineComparison {
        location: location.clone(),
        before_line: before.and_then(|before| before.location.line),
        change,
        before_ns_per_s: before.map_or(0.0, |before| before.ns_per_s),
        after_ns_per_s,
    }
}

/// The own lines of all runs of a side, mean over the runs, and the most that a line can have that
/// a run does not list. `None` if a run has no stacks.
fn lines<'a>(runs: &[RunFacts<'a>]) -> Option<(SideLines<'a>, f64)> {
    let mut sums = SideLines::new();
    let mut least = 0.0_f64;
    for run in runs {
        let process = run.process?;
        let own: &'a LinesReport = process.lines.as_ref()?;
        let seconds = float(process.observed_ns) / NS_PER_S;
        let share = |time_ns: u64| float(time_ns) / seconds / float(runs.len() as u64);
        if seconds <= 0.0 {
            return None;
        }
        if own.own_total > own.own.len() as u64 {
            let last = own.own.iter().map(|line| Reverse(line.pauses.time_ns)).max();
            least = least.max(last.map_or(0.0, |Reverse(ns)| share(ns)));
        }
        for line in &own.own {
            let location = &line.location;
            let name = location.file.rsplit('/').next().unwrap_or_default();
            let key = (name, location.function.as_str(), location.line);
            let empty = LineOfSide {
                location,
                ns_per_s: 0.0,
            };
            sums.entry(key).or_insert(empty).ns_per_s += share(line.pauses.time_ns);
        }
    }
    Some((sums, least))
}
