//! Lines with collections that took more or less time than before.

use super::RunFacts;
use super::report::{LineChange, LineComparison, RateUnit};
use crate::report::{LinesReport, Location};
use gctrace_stats::float;
use std::collections::BTreeMap;

/// Lines in a comparison.
const LINES: usize = 20;

/// Lines of one side, by a key that holds in another checkout: the file's name, the function, the line.
type SideLines<'a> = BTreeMap<(&'a str, &'a str, Option<u32>), LineOfSide<'a>>;

#[derive(Clone, Copy)]
struct LineOfSide<'a> {
    location: &'a Location,
    time: f64,
}

/// The lines with the largest differences. Empty if a run has no stacks.
pub(super) fn compare(
    before: &[RunFacts<'_>],
    after: &[RunFacts<'_>],
    per: RateUnit,
) -> Vec<LineComparison> {
    let (Some((mut old, old_least)), Some((mut new, new_least))) =
        (lines(before, per), lines(after, per))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let same: Vec<_> = old.keys().filter(|key| new.contains_key(*key)).copied().collect();
    for key in same {
        if let (Some(old), Some(new)) = (old.remove(&key), new.remove(&key)) {
            found.push(line(Some(old), new.location, new.time, LineChange::Same));
        }
    }
    for (key, new) in new {
        let moved = old.keys().find(|other| (other.0, other.1) == (key.0, key.1)).copied();
        match moved {
            Some(moved) => {
                let old = old.remove(&moved);
                found.push(line(old, new.location, new.time, LineChange::Moved));
            }
            None if new.time > old_least => {
                found.push(line(None, new.location, new.time, LineChange::Appeared));
            }
            None => {}
        }
    }
    let went = old.into_values().filter(|old| old.time > new_least);
    found.extend(went.map(|old| line(Some(old), old.location, 0.0, LineChange::Went)));
    let difference = |line: &LineComparison| (line.after_ns - line.before_ns).abs();
    found.sort_by(|one, other| difference(other).total_cmp(&difference(one)));
    found.truncate(LINES);
    found
}

fn line(
    before: Option<LineOfSide<'_>>,
    location: &Location,
    after_ns: f64,
    change: LineChange,
) -> LineComparison {
    LineComparison {
        location: location.clone(),
        before_line: before.and_then(|before| before.location.line),
        change,
        before_ns: if let Some(before) = before { before.time } else { 0.0 },
        after_ns,
    }
}

/// The own lines of training of all runs of a side, mean over the runs, and the most that a line can
/// have that a run does not list. `None` if a run has no stacks.
fn lines<'a>(runs: &[RunFacts<'a>], per: RateUnit) -> Option<(SideLines<'a>, f64)> {
    let mut sums = SideLines::new();
    let mut least = 0.0_f64;
    for run in runs {
        let lines: &'a LinesReport = run.phases?.lines.as_ref()?;
        let whole = run.training_units(per).filter(|whole| *whole > 0.0)?;
        let share = |time_ns: u64| float(time_ns) / whole / float(runs.len() as u64);
        if lines.own_total > lines.own.len() as u64
            && let Some(last_ns) = lines.own.iter().map(|line| line.pauses.time_ns).min()
        {
            least = least.max(share(last_ns));
        }
        for line in &lines.own {
            let location = &line.location;
            let name = location.file.rsplit('/').next().unwrap_or(&location.file);
            let key = (name, location.function.as_str(), location.line);
            let empty = LineOfSide { location, time: 0.0 };
            sums.entry(key).or_insert(empty).time += share(line.pauses.time_ns);
        }
    }
    Some((sums, least))
}
