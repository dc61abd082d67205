//! `--print-every`: PyTorch's memory by layer on the terminal, while the program runs.

use crate::record::output::RecordSink;
use crate::units::{bytes, count};
use crate::{print, render};
use gctrace_analysis::report::LatestLayers;
use gctrace_event::Record;

/// Layers of a table.
const LAYERS: usize = 6;

/// Prints the tables of the first process that has any: ranks are much alike.
pub(crate) struct PrintedLayers {
    every: u64,
    pid: Option<u32>,
    latest: LatestLayers,
    /// The step from which on one is printed, and the last that was with a table.
    next: u64,
    shown: Option<u64>,
}

impl PrintedLayers {
    /// Prints a table every so many steps.
    pub(crate) fn new(every: u32) -> Self {
        Self {
            every: every.into(),
            pid: None,
            latest: LatestLayers::default(),
            next: 0,
            shown: None,
        }
    }

    /// What is to be printed after a record: a message, and the lines below it.
    fn after(&mut self, record: &Record) -> Option<(String, Vec<String>)> {
        match record {
            Record::ProcessExit(exit) if self.pid == Some(exit.pid) => {
                *self = Self { every: self.every, ..Self::new(0) };
                None
            }
            Record::Layers(layers) if self.pid.is_none_or(|pid| pid == layers.pid) => {
                self.pid = Some(layers.pid);
                self.latest.add(layers);
                if layers.rows.is_some() {
                    self.shown = None;
                }
                let step = self.latest.step;
                // Numbers begin again where another mark turns out to be the better one.
                let is_soon = (1..=self.every).contains(&self.next.saturating_sub(step));
                if layers.saved_bytes.is_none() || is_soon {
                    return None;
                }
                self.next = step.saturating_add(self.every);
                if let Some(shown) = self.shown {
                    return Some((
                        format!(
                            "step {}: memory by layer as in step {}",
                            count(step),
                            count(shown)
                        ),
                        Vec::new(),
                    ));
                }
                self.shown = Some(step);
                let totals = &self.latest.totals;
                let head = format!(
                    "step {}: {} at once as its backward pass began, by layer in MiB",
                    count(step),
                    bytes(totals.at_once())
                );
                Some((head, render::layer_table(&self.latest.layers, totals, LAYERS)))
            }
            _ => None,
        }
    }
}

impl RecordSink for PrintedLayers {
    fn write(&mut self, record: &Record) {
        if let Some((head, table)) = self.after(record) {
            print::message(head);
            if !table.is_empty() {
                print::lines(&table.join("\n"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::{LayerHeld, LayerMade, LayerRow, Layers, LayersRemark, ProcessExit};

    fn layers(pid: u32, step: u64, weights: &[u64]) -> Record {
        let row = |(index, weights): (usize, &u64)| LayerRow {
            path: format!("blocks.{index}"),
            type_name: "Linear".to_owned(),
            held: LayerHeld { weights: *weights, ..LayerHeld::default() },
            made: Some(LayerMade { saved: 1 << 20, ..LayerMade::default() }),
            ..LayerRow::default()
        };
        let rows: Vec<LayerRow> = weights.iter().enumerate().map(row).collect();
        let rows = (!rows.is_empty()).then_some(rows);
        Record::Layers(Layers { pid, step, saved_bytes: Some(2 << 20), rows, ..Layers::default() })
    }

    #[test]
    fn a_table_every_so_many_steps_of_one_process() {
        let mut printed = PrintedLayers::new(100);
        let (head, table) = printed.after(&layers(7, 2, &[3 << 20, 5 << 20])).unwrap();
        assert_eq!(head, "step 2: 10.0 MiB at once as its backward pass began, by layer in MiB");
        assert_eq!(
            table,
            [
                "  layer     weights  grads  optim  saved  outputs",
                "  blocks.1     5.00                 1.00           Linear",
                "  blocks.0     3.00                 1.00           Linear",
                "  all          8.00                 2.00",
            ]
        );
        assert_eq!(printed.after(&layers(8, 2, &[1])), None, "another rank");
        assert_eq!(printed.after(&layers(7, 52, &[])), None, "too soon");
        let (head, table) = printed.after(&layers(7, 102, &[])).unwrap();
        assert_eq!((&*head, table.len()), ("step 102: memory by layer as in step 2", 0));
        // One that changed meanwhile is not the same.
        assert_eq!(printed.after(&layers(7, 152, &[1 << 20])), None);
        let (head, table) = printed.after(&layers(7, 202, &[])).unwrap();
        assert!(head.starts_with("step 202: 3.00 MiB"), "{head}");
        assert_eq!(table.len(), 3);
        let at_end = Layers { pid: 7, remarks: vec![LayersRemark::AtEnd], ..Layers::default() };
        assert_eq!(printed.after(&Record::Layers(at_end)), None);
        // The next process.
        let exit = ProcessExit { pid: 7, at_ns: 1, code: None, signal: None };
        assert_eq!(printed.after(&Record::ProcessExit(exit)), None);
        assert!(printed.after(&layers(9, 2, &[1 << 20])).is_some());
    }
}
