//! Filter and order of the rows of the process table.

use super::columns::Column;
use gctrace_analysis::live::{ProcessFigures, Snapshot};
use std::cmp::Ordering;

/// The column that rows are sorted by, and the direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SortOrder {
    /// The column to compare by.
    pub(crate) by: Column,
    /// Whether to reverse the default order: descending for figures and ascending for text.
    pub(crate) reverse: bool,
}

/// Indices into `snapshot.processes` of the processes that match `filter`, sorted.
pub(crate) fn rows(snapshot: &Snapshot, sort: SortOrder, filter: &str) -> Vec<usize> {
    let words = words(filter);
    let processes = snapshot.processes.iter().enumerate();
    let chosen = processes.filter(|(_, process)| passes(process, &words));
    let figure = sort.by.def().figure;
    let mut rows: Vec<(usize, Row<'_>)> =
        chosen.map(|(index, process)| (index, (process, figure(process, snapshot)))).collect();
    // Stable: equal rows stay in the order of the snapshot.
    rows.sort_by(|(_, a), (_, b)| {
        let order = compare(sort.by, *a, *b);
        if sort.reverse { order.reverse() } else { order }
    });
    rows.into_iter().map(|(index, _)| index).collect()
}

/// A process and the figure that it is sorted by.
type Row<'a> = (&'a ProcessFigures, Option<u64>);

/// Compares by a column; the history is sorted like the rate.
fn compare(by: Column, (a, figure): Row<'_>, (b, other): Row<'_>) -> Ordering {
    match by {
        Column::Rank => missing_last(a.rank).cmp(&missing_last(b.rank)),
        Column::Pid => a.pid.cmp(&b.pid),
        Column::Command => a.command.cmp(&b.command),
        Column::Interpreter => a.interpreter.cmp(&b.interpreter),
        Column::Device => device(a).cmp(&device(b)),
        _ => other.cmp(&figure),
    }
}

fn missing_last(rank: Option<u32>) -> (bool, Option<u32>) {
    (rank.is_none(), rank)
}

fn device(process: &ProcessFigures) -> (bool, Option<u32>) {
    missing_last(process.gpus.first().map(|gpu| gpu.device))
}

fn words(filter: &str) -> Vec<String> {
    filter.split_whitespace().map(str::to_lowercase).collect()
}

/// All words have to be met: `rank:3`, `pid:123`, or a part of rank, pid, command or version.
fn passes(process: &ProcessFigures, words: &[String]) -> bool {
    words.iter().all(|word| {
        if let Some(rank) = word.strip_prefix("rank:") {
            return matches!(process.rank, Some(number) if number.to_string() == rank);
        }
        if let Some(pid) = word.strip_prefix("pid:") {
            return process.pid.to_string() == pid;
        }
        let rank = process.rank.map(|rank| rank.to_string());
        rank.as_ref() == Some(word)
            || process.pid.to_string().contains(word)
            || process.command.to_lowercase().contains(word)
            || process.interpreter.to_lowercase().contains(word)
    })
}

#[cfg(test)]
mod tests {
    use super::super::columns;
    use super::*;

    fn process(pid: u32, rank: Option<u32>, pause_ns: u64, command: &str) -> ProcessFigures {
        ProcessFigures {
            pid,
            rank,
            interval_pause_ns: pause_ns,
            command: command.to_owned(),
            ..ProcessFigures::default()
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot {
            interval_ns: 1_000_000_000,
            processes: vec![
                process(30, None, 5, "python a.py"),
                process(10, Some(1), 9, "Python B.py"),
                process(20, Some(0), 5, "python -m c"),
            ],
            ..Snapshot::default()
        }
    }

    fn pids(by: Column, reverse: bool, filter: &str) -> Vec<u32> {
        let snapshot = snapshot();
        let rows = rows(&snapshot, SortOrder { by, reverse }, filter);
        rows.into_iter().map(|row| snapshot.processes[row].pid).collect()
    }

    #[test]
    fn figures_from_the_greatest_names_from_the_first() {
        assert_eq!(pids(Column::Rate, false, ""), [10, 30, 20]);
        assert_eq!(pids(Column::Rate, true, ""), [30, 20, 10]);
        assert_eq!(pids(Column::Rank, false, ""), [20, 10, 30]);
        assert_eq!(pids(Column::Pid, false, ""), [10, 20, 30]);
        assert_eq!(pids(Column::Command, false, ""), [10, 20, 30]);
        for by in columns::COLUMNS.map(|def| def.column) {
            assert_eq!(pids(by, false, "").len(), 3, "{by:?}");
        }
    }

    #[test]
    fn filters() {
        assert_eq!(pids(Column::Pid, false, "b.PY"), [10]);
        assert_eq!(pids(Column::Pid, false, "rank:0"), [20]);
        assert_eq!(pids(Column::Pid, false, "pid:3"), [0_u32; 0]);
        assert_eq!(pids(Column::Pid, false, "python .py"), [10, 30]);
        assert_eq!(pids(Column::Pid, false, " \t"), [10, 20, 30]);
    }
}
