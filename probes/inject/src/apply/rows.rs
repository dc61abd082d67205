//! The table of steps: one row each, with its setting, times and collections.

use std::fmt::Write as _;

/// Of the table's columns; the numbers of generations are collections.
const HEAD: &str = "step,setting,block,start_ns,end_ns,pause_ns,gen0,gen1,gen2,cpu_ns\n";

/// Rows that are kept before they are written.
const MOST_ROWS: usize = 1000;

/// One step, measured.
pub(crate) struct StepRow {
    pub(crate) step: u64,
    pub(crate) setting: usize,
    pub(crate) block: i64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) pause_ns: u64,
    pub(crate) collections: [u64; 3],
    /// CPU time of the thread that ends the step, if it began it.
    pub(crate) cpu_ns: u64,
}

/// Rows that are still to be written.
#[derive(Default)]
pub(crate) struct StepRows {
    text: String,
    rows: usize,
    /// Whether the head has been written.
    has_head: bool,
}

impl StepRows {
    /// Adds a row; whether they should be written now.
    pub(crate) fn push(&mut self, row: &StepRow) -> bool {
        let [young, middle, old] = row.collections;
        // A text takes all.
        let _ = writeln!(
            self.text,
            "{},{},{},{},{},{},{young},{middle},{old},{}",
            row.step, row.setting, row.block, row.start_ns, row.end_ns, row.pause_ns, row.cpu_ns
        );
        self.rows += 1;
        self.rows >= MOST_ROWS
    }

    /// What is to be written, and whether it starts the table; `None`: nothing.
    pub(crate) fn take(&mut self) -> Option<(String, bool)> {
        if self.rows == 0 {
            return None;
        }
        self.rows = 0;
        let is_first = !std::mem::replace(&mut self.has_head, true);
        let rows = std::mem::take(&mut self.text);
        let text = if is_first { HEAD.to_owned() + &rows } else { rows };
        Some((text, is_first))
    }
}
