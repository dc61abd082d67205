//! The table of steps that the injected library writes (docs/architecture.md, Settings).

use std::collections::BTreeMap;

/// One step of one process, or of a job: see [`StepTable::of_job`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// Its number, from 1.
    pub step: u64,
    /// The setting in force: its place in the list of settings.
    pub setting: usize,
    /// Number of its block; `None` before the first.
    pub block: Option<u64>,
    /// Wall time, in ns.
    pub wall_ns: u64,
    /// CPU time of the thread that made the step, in ns; `None` where it was not recorded.
    pub cpu_ns: Option<u64>,
    /// Time of the collections in it, in ns.
    pub pause_ns: u64,
    /// Collections in it, by generation.
    pub collections: [u64; 3],
}

/// Steps in their order, without those before the program's marker of steps was certain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTable {
    /// The steps; their numbers increase.
    pub rows: Vec<StepRow>,
    /// Lines that were no row, the head and an incomplete last line not counted.
    pub unreadable: u64,
}

impl StepTable {
    /// Reads `step,setting,block,start_ns,end_ns,pause_ns,gen0,gen1,gen2,cpu_ns`, one line per
    /// step, after a head. Later columns are ignored; `cpu_ns` may be missing. `settings`: how many
    /// there are.
    #[must_use]
    pub fn parse(text: &[u8], settings: usize) -> Self {
        let mut table = Self::default();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else {
                // Being written.
                break;
            };
            if line.starts_with(b"step,") {
                continue;
            }
            match row(line).filter(|row| row.setting < settings) {
                Some(row) => table.push(row),
                None => table.unreadable += 1,
            }
        }
        table
    }

    /// Numbers that start again belong to a better marker of steps.
    fn push(&mut self, row: StepRow) {
        if self.rows.last().is_some_and(|last| row.step <= last.step) {
            self.rows.clear();
        }
        self.rows.push(row);
    }

    /// The steps of a job of several ranks that every rank made with the same setting. A step is as
    /// long as its slowest rank's, for which the others wait; pauses, CPU time and collections are
    /// the ranks' mean (rounded down).
    #[must_use]
    pub fn of_job(ranks: &[Self]) -> Self {
        let [first, others @ ..] = ranks else {
            return Self::default();
        };
        let others: Vec<BTreeMap<u64, &StepRow>> = others
            .iter()
            .map(|rank| rank.rows.iter().map(|row| (row.step, row)).collect())
            .collect();
        let rows = first.rows.iter().filter_map(|row| {
            let same = |rank: &BTreeMap<u64, &StepRow>| {
                let found = rank.get(&row.step).copied().copied();
                found.filter(|other| other.setting == row.setting && other.block == row.block)
            };
            let others: Option<Vec<StepRow>> = others.iter().map(same).collect();
            Some(slowest(*row, &others?))
        });
        Self { rows: rows.collect(), unreadable: ranks.iter().map(|rank| rank.unreadable).sum() }
    }
}

fn slowest(row: StepRow, others: &[StepRow]) -> StepRow {
    let all = || std::iter::once(&row).chain(others);
    let mean = |value: &dyn Fn(&StepRow) -> u64| {
        let sum = all().map(value).fold(0, u64::saturating_add);
        sum / (others.len() as u64 + 1)
    };
    let cpu_known = all().all(|row| row.cpu_ns.is_some());
    StepRow {
        wall_ns: all().map(|row| row.wall_ns).max().unwrap_or(row.wall_ns),
        cpu_ns: cpu_known.then(|| mean(&|row| row.cpu_ns.unwrap_or(0))),
        pause_ns: mean(&|row| row.pause_ns),
        collections: [0, 1, 2].map(|generation: usize| {
            mean(&|row| row.collections.get(generation).copied().unwrap_or(0))
        }),
        ..row
    }
}

fn row(line: &[u8]) -> Option<StepRow> {
    let text = std::str::from_utf8(line).ok()?;
    let mut columns = text.split(',').map(str::trim);
    let step = columns.next()?.parse().ok()?;
    let setting = columns.next()?.parse().ok()?;
    let block: i64 = columns.next()?.parse().ok()?;
    let mut number = || columns.next()?.parse::<u64>().ok();
    let (start_ns, end_ns, pause_ns) = (number()?, number()?, number()?);
    let collections = [number()?, number()?, number()?];
    let cpu_ns = match columns.next() {
        Some(cpu_ns) => Some(cpu_ns.parse().ok()?),
        None => None,
    };
    Some(StepRow {
        step,
        setting,
        block: u64::try_from(block).ok(),
        wall_ns: end_ns.checked_sub(start_ns)?,
        cpu_ns,
        pause_ns,
        collections,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "step,setting,block,start_ns,end_ns,pause_ns,gen0,gen1,gen2,cpu_ns\n\
         1,0,-1,100,250,7,1,0,0,140\n\
         2,1,0,260,400,0,0,0,0,130\n";

    #[test]
    fn a_table_is_read() {
        let table = StepTable::parse(TABLE.as_bytes(), 2);
        let [first, second] = table.rows[..] else {
            panic!("{table:?}");
        };
        assert_eq!((first.block, first.wall_ns, first.cpu_ns), (None, 150, Some(140)));
        assert_eq!((first.pause_ns, first.collections), (7, [1, 0, 0]));
        assert_eq!((second.block, second.setting, second.step), (Some(0), 1, 2));
        assert_eq!(table.unreadable, 0);
    }

    #[test]
    fn lines_that_are_no_rows_are_counted() {
        let text = format!("{TABLE}3,2,0,1,2,0,0,0,0\n4,0,0,9,2,0,0,0,0\nx\n5,0,1,500,6");
        let table = StepTable::parse(text.as_bytes(), 2);
        // A setting that does not exist, an end before its start, no numbers; the last is written.
        assert_eq!((table.rows.len(), table.unreadable), (2, 3));
    }

    #[test]
    fn another_marker_starts_again() {
        let text = format!("{TABLE}1,0,-1,500,600,0,0,0,0\n");
        let table = StepTable::parse(text.as_bytes(), 2);
        assert_eq!(table.rows.len(), 1);
        assert_eq!((table.rows[0].wall_ns, table.rows[0].cpu_ns), (100, None));
    }

    #[test]
    fn a_job_is_as_slow_as_its_slowest_rank() {
        let row = |step, wall_ns, pause_ns| StepRow {
            step,
            setting: 0,
            block: Some(0),
            wall_ns,
            cpu_ns: Some(wall_ns),
            pause_ns,
            collections: [4, 2, 0],
        };
        let rank = |rows: &[StepRow]| StepTable { rows: rows.to_vec(), unreadable: 1 };
        let ranks = [
            rank(&[row(1, 10, 2), row(2, 20, 2), row(3, 5, 0)]),
            rank(&[row(2, 30, 4), row(3, 1, 0), row(4, 9, 9)]),
        ];
        let job = StepTable::of_job(&ranks);
        let found: Vec<_> =
            job.rows.iter().map(|row| (row.step, row.wall_ns, row.pause_ns)).collect();
        assert_eq!(found, [(2, 30, 3), (3, 5, 0)]);
        assert_eq!((job.rows[0].cpu_ns, job.rows[0].collections), (Some(25), [4, 2, 0]));
        assert_eq!(job.unreadable, 2);
        assert_eq!(StepTable::of_job(&[]), StepTable::default());
        assert_eq!(StepTable::of_job(&ranks[..1]).rows, ranks[0].rows);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let table = StepTable::parse(&text, 2);
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            prop_assert!(table.rows.len() + usize::try_from(table.unreadable).unwrap() <= lines);
        }

        #[test]
        fn any_numbers_are_read(rows in prop::collection::vec(any::<[u64; 10]>(), 0..20)) {
            let line = |row: &[u64; 10]| row.map(|number| number.to_string()).join(",") + "\n";
            let text: String = rows.iter().map(line).collect();
            let table = StepTable::parse(text.as_bytes(), usize::MAX);
            let _ = StepTable::of_job(&[table.clone(), table.clone()]);
            prop_assert!(table.rows.windows(2).all(|pair| pair[0].step < pair[1].step));
        }
    }
}
