//! Steps of all ranks as a picture, with a row per rank and a column per step.
//!
//! Owns the number of cells, and the values of a cell that stands for several steps. `heat.js` draws them.

use super::pack::{or_zero, pack};
use crate::print::clean;
use crate::units::counted;
use gctrace_analysis::ProcessStepRow;
use gctrace_analysis::report::{IdleCause, StepReport};
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The most rows and columns; with more ranks or steps a cell stands for several.
pub(super) const MOST: (usize, usize) = (256, 400);

/// Number of causes of idle time to draw, each with at least this part of it.
const CAUSES: usize = 5;
const WORTH_DRAWING: u64 = 100;

/// By row and column, in microseconds; `None`: no step, or unknown.
type StepValues = Vec<Vec<Option<u64>>>;

/// The data that the page draws.
#[derive(Debug, Serialize)]
pub(super) struct HeatData {
    about: String,
    /// A cell stands for several steps.
    several: bool,
    rows: Vec<String>,
    columns: Vec<String>,
    /// Length of the step, time in collections, and idle time of GPUs: all, then by the causes with the most. The
    /// script gets the values row by row, one more than the microseconds, 0 if unknown.
    #[serde(serialize_with = "packed")]
    figures: Vec<(String, StepValues)>,
}

fn packed<S: Serializer>(figures: &[(String, StepValues)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(figures.iter().map(|(name, values)| {
        (name, pack(values.iter().flatten().map(|us| or_zero(us.map(shown)))))
    }))
}

impl HeatData {
    /// The greatest values of a cell's steps are its values: in a collective only the slowest rank counts. `None`
    /// without steps.
    pub(super) fn of(rows: &[ProcessStepRow], most: (usize, usize)) -> Option<Self> {
        if rows.is_empty() {
            return None;
        }
        let steps = || rows.iter().flat_map(|row| &row.steps);
        let numbers: BTreeSet<u64> = steps().map(|step| step.number).collect();
        let numbers: Vec<u64> = numbers.into_iter().collect();
        let (high, wide) =
            (rows.len().div_ceil(most.0).max(1), numbers.len().div_ceil(most.1).max(1));
        let columns: Vec<String> =
            numbers.chunks(wide).map(|lot| span(lot.iter().map(u64::to_string))).collect();
        let greatest = |of: &dyn Fn(&StepReport) -> Option<u64>| -> StepValues {
            let lots = rows.chunks(high).map(|lot| {
                let mut values = vec![None; columns.len()];
                for cell in lot.iter().flat_map(|row| &row.steps) {
                    let column = numbers.partition_point(|number| *number < cell.number) / wide;
                    if let Some(value) = values.get_mut(column) {
                        *value = (*value).max(of(cell).map(|ns| ns / 1000));
                    }
                }
                values
            });
            lots.collect()
        };
        let mut figures = vec![
            ("Length of the step".to_owned(), greatest(&|cell| Some(cell.duration_ns))),
            ("Time in collections".to_owned(), greatest(&|cell| cell.gc_ns)),
        ];
        if steps().any(|cell| cell.gpu_idle_ns.is_some()) {
            figures.push(("GPU idle time".to_owned(), greatest(&|cell| cell.gpu_idle_ns)));
        }
        for cause in most_idle(rows) {
            let of = |cell: &StepReport| {
                let part = cell.gpu_idle_causes.as_ref()?.iter().find(|part| part.cause == cause);
                Some(if let Some(part) = part { part.time_ns } else { 0 })
            };
            figures.push((format!("GPU idle by {cause}"), greatest(&of)));
        }
        let cell = match high * wide {
            1 => "A cell is one step.".to_owned(),
            _ => format!("A cell is the greatest value of up to {high} ranks and {wide} steps."),
        };
        let inferred = "; causes of GPU idle time inferred, by replay";
        Some(Self {
            about: format!(
                "{}, {}. Measured{}. {cell}",
                counted(rows.len() as u64, "process"),
                counted(numbers.len() as u64, "step"),
                if figures.len() > 3 { inferred } else { "" },
            ),
            several: high * wide > 1,
            rows: rows.chunks(high).map(|lot| span(lot.iter().map(name))).collect(),
            columns,
            figures,
        })
    }
}

/// Three digits, as a page shows them: the others would be most of its size.
fn shown(us: u64) -> u64 {
    let unit = 10u64.pow(us.max(100).ilog10() - 2);
    us / unit * unit
}

/// The causes with the most idle time in all steps, the largest first.
fn most_idle(rows: &[ProcessStepRow]) -> Vec<IdleCause> {
    let mut sums: BTreeMap<IdleCause, u64> = BTreeMap::new();
    let steps = rows.iter().flat_map(|row| &row.steps);
    for part in steps.filter_map(|cell| cell.gpu_idle_causes.as_ref()).flatten() {
        *sums.entry(part.cause).or_default() += part.time_ns;
    }
    let all_ns: u64 = sums.values().sum();
    let mut largest: Vec<(IdleCause, u64)> = sums.into_iter().collect();
    largest.retain(|(_, ns)| *ns >= all_ns / WORTH_DRAWING);
    largest.sort_by_key(|(cause, ns)| (Reverse(*ns), *cause));
    largest.into_iter().take(CAUSES).map(|(cause, _)| cause).collect()
}

/// `rank 3 on node7`, `process 4242`.
pub(super) fn name(row: &ProcessStepRow) -> String {
    let host = row.host.as_ref().map_or(String::new(), |host| format!(" on {}", clean::line(host)));
    match row.rank {
        Some(rank) => format!("rank {rank}{host}"),
        None => format!("process {}{host}", row.pid),
    }
}

/// The first and the last of some names.
fn span(mut names: impl Iterator<Item = String>) -> String {
    let first = names.next().unwrap_or_default();
    match names.last() {
        Some(last) => format!("{first} - {last}"),
        None => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::report::IdlePart;

    fn row(rank: u32, steps: &[(u64, u64, Option<u64>)]) -> ProcessStepRow {
        ProcessStepRow {
            trace: 0,
            pid: 100 + rank,
            rank: Some(rank),
            host: (rank == 1).then(|| "</script>".to_owned()),
            steps: steps
                .iter()
                .map(|(number, ms, gc_ms)| StepReport {
                    number: *number,
                    start_ns: number * 100_000_000,
                    duration_ns: ms * 1_000_000,
                    gc_ns: gc_ms.map(|ms| ms * 1_000_000),
                    full_collections: 0,
                    gpu_idle_ns: gc_ms.map(|ms| ms * 1_500_000),
                    gpu_idle_causes: gc_ms.map(|ms| {
                        let part = |cause, time_ns| IdlePart { cause, time_ns };
                        vec![
                            part(IdleCause::Gc, ms * 1_000_000),
                            part(IdleCause::Synchronization, ms * 500_000),
                        ]
                    }),
                })
                .collect(),
        }
    }

    fn rows() -> Vec<ProcessStepRow> {
        vec![
            row(0, &[(10, 5, Some(0)), (11, 6, Some(1)), (12, 5, Some(0))]),
            row(1, &[(11, 50, Some(45)), (12, 5, Some(0)), (13, 7, Some(2))]),
            row(2, &[(10, 4, None)]),
        ]
    }

    #[test]
    fn a_cell_is_a_step() {
        let map = HeatData::of(&rows(), MOST).unwrap();
        assert_eq!(map.rows, ["rank 0", "rank 1 on </script>", "rank 2"]);
        assert_eq!(map.columns, ["10", "11", "12", "13"]);
        assert_eq!(map.figures[0].1[0], [Some(5000), Some(6000), Some(5000), None]);
        assert_eq!(map.figures[1].1[1], [None, Some(45_000), Some(0), Some(2000)]);
        assert_eq!(map.figures[1].1[2], [None; 4]);
        assert!(!map.several, "{}", map.about);
        let names: Vec<&str> = map.figures.iter().map(|(name, _)| name.as_str()).collect();
        let (gc, waits) = (IdleCause::Gc, IdleCause::Synchronization);
        let by = [gc, waits].map(|cause| format!("GPU idle by {cause}"));
        assert_eq!(names[2..], ["GPU idle time", &by[0], &by[1]]);
        assert_eq!(map.figures[2].1[1], [None, Some(67_500), Some(0), Some(3000)]);
        assert_eq!(map.figures[4].1[1], [None, Some(22_500), Some(0), Some(1000)]);
        assert_eq!(map.figures[3].1[2], [None; 4]);
    }

    #[test]
    fn the_greatest_of_several() {
        let map = HeatData::of(&rows(), (2, 2)).unwrap();
        assert_eq!(map.rows, ["rank 0 - rank 1 on </script>", "rank 2"]);
        assert_eq!(map.columns, ["10 - 11", "12 - 13"]);
        assert_eq!(map.figures[0].1, [[Some(50_000), Some(7000)], [Some(4000), None]]);
        assert_eq!(map.figures[1].1[0], [Some(45_000), Some(2000)]);
        assert!(map.several && map.about.contains("up to 2 ranks and 2 steps"));
    }
}
