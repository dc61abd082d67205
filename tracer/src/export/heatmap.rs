//! Steps of all ranks as a picture: a page with a row per rank and a column per step.
//!
//! Owns how many cells there are, and what one of several steps shows. `heatmap.html` draws them.

use crate::units::counted;
use gctrace_analysis::ProcessStepRow;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::io::Write;

/// The most rows and columns; with more ranks or steps a cell stands for several.
const MOST: (usize, usize) = (512, 1000);

/// The page; its one place for data is [`PLACE`].
const PAGE: &str = include_str!("heatmap.html");
const PLACE: &str = "/*DATA*/";

/// What the page draws. Times in microseconds; `null`: no step, or unknown.
#[derive(Debug, PartialEq, Serialize)]
struct HeatMap {
    about: String,
    /// A cell stands for several steps.
    several: bool,
    rows: Vec<String>,
    columns: Vec<String>,
    step: Vec<Vec<Option<u64>>>,
    gc: Vec<Vec<Option<u64>>>,
}

/// Writes the page. The greatest values of a cell's steps are its values: one slow rank in a
/// collective is all that counts.
pub(super) fn write(rows: &[ProcessStepRow], out: &mut impl Write) -> io::Result<()> {
    let data = serde_json::to_string(&HeatMap::of(rows, MOST))?;
    // In a script, and names may be anything.
    let data = data.replace('<', "\\u003c");
    out.write_all(PAGE.replacen(PLACE, &data, 1).as_bytes())
}

impl HeatMap {
    fn of(rows: &[ProcessStepRow], most: (usize, usize)) -> Self {
        let numbers: BTreeSet<u64> =
            rows.iter().flat_map(|row| row.steps.iter().map(|step| step.number)).collect();
        let numbers: Vec<u64> = numbers.into_iter().collect();
        let (high, wide) =
            (rows.len().div_ceil(most.0).max(1), numbers.len().div_ceil(most.1).max(1));
        let columns: Vec<String> =
            numbers.chunks(wide).map(|lot| span(lot.iter().map(u64::to_string))).collect();
        let (mut step, mut gc) = (Vec::new(), Vec::new());
        for lot in rows.chunks(high) {
            let (mut steps, mut collections) =
                (vec![None; columns.len()], vec![None; columns.len()]);
            for cell in lot.iter().flat_map(|row| &row.steps) {
                let column = numbers.partition_point(|number| *number < cell.number) / wide;
                if let (Some(length), Some(gc)) =
                    (steps.get_mut(column), collections.get_mut(column))
                {
                    *length = (*length).max(Some(cell.duration_ns / 1000));
                    *gc = (*gc).max(cell.gc_ns.map(|ns| ns / 1000));
                }
            }
            step.push(steps);
            gc.push(collections);
        }
        let cell = match high * wide {
            1 => "A cell is one step.".to_owned(),
            _ => format!("A cell is the greatest value of up to {high} ranks and {wide} steps."),
        };
        Self {
            about: format!(
                "{}, {}. Measured. {cell}",
                counted(rows.len() as u64, "process"),
                counted(numbers.len() as u64, "step"),
            ),
            several: high * wide > 1,
            rows: rows.chunks(high).map(|lot| span(lot.iter().map(name))).collect(),
            columns,
            step,
            gc,
        }
    }
}

/// `rank 3 on node7`, `process 4242`.
fn name(row: &ProcessStepRow) -> String {
    let host = row.host.as_ref().map_or(String::new(), |host| format!(" on {host}"));
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
    use gctrace_analysis::StepCell;

    fn row(rank: u32, steps: &[(u64, u64, Option<u64>)]) -> ProcessStepRow {
        ProcessStepRow {
            trace: 0,
            pid: 100 + rank,
            rank: Some(rank),
            host: (rank == 1).then(|| "</script>".to_owned()),
            steps: steps
                .iter()
                .map(|(number, ms, gc_ms)| StepCell {
                    number: *number,
                    duration_ns: ms * 1_000_000,
                    gc_ns: gc_ms.map(|ms| ms * 1_000_000),
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
        let map = HeatMap::of(&rows(), MOST);
        assert_eq!(map.rows, ["rank 0", "rank 1 on </script>", "rank 2"]);
        assert_eq!(map.columns, ["10", "11", "12", "13"]);
        assert_eq!(map.step[0], [Some(5000), Some(6000), Some(5000), None]);
        assert_eq!(map.gc[1], [None, Some(45_000), Some(0), Some(2000)]);
        assert_eq!(map.gc[2], [None; 4]);
        assert!(!map.several, "{}", map.about);
    }

    #[test]
    fn the_greatest_of_several() {
        let map = HeatMap::of(&rows(), (2, 2));
        assert_eq!(map.rows, ["rank 0 - rank 1 on </script>", "rank 2"]);
        assert_eq!(map.columns, ["10 - 11", "12 - 13"]);
        assert_eq!(map.step, [[Some(50_000), Some(7000)], [Some(4000), None]]);
        assert_eq!(map.gc[0], [Some(45_000), Some(2000)]);
        assert!(map.several && map.about.contains("up to 2 ranks and 2 steps"));
    }

    #[test]
    fn names_cannot_end_the_script() {
        let mut page = Vec::new();
        write(&rows(), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(!page.contains(PLACE));
    }
}
