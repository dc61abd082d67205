//! PyTorch's memory by layer as comma-separated text: a line per measured step, layer and kind.
//!
//! Owns the columns; a table that was not written again is repeated.

use super::output;
use crate::analyze::{ReadProgress, TraceItems};
use crate::args::ExportArgs;
use crate::print::clean;
use crate::{analyze, print, text};
use gctrace_event::read::DecodedItem;
use gctrace_event::{AllocatorMemory, LayerMark, LayerRow, Layers, LayersRemark, Record};
use std::collections::HashMap;
use std::fmt::Write as _;

const HEAD: &str = "iteration,epoch,rank,pid,layer,type,shape,device,kind,bytes\n";

/// One trace while it is read.
#[derive(Default)]
struct LayerLines {
    text: String,
    /// Of the whole trace, and by process id.
    rank: Option<u32>,
    ranks: HashMap<u32, u32>,
    last: HashMap<u32, Vec<LayerRow>>,
}

/// Writes the lines of all traces. Returns the exit code: 0, or 1 if an error kept any trace from being read
/// completely.
///
/// # Errors
/// No trace has memory by layer, or the output cannot be written.
pub(super) fn run(config: &ExportArgs) -> anyhow::Result<u8> {
    let traces = analyze::with_summaries(&config.traces);
    let progress = ReadProgress::new(&traces);
    let (mut text, mut failures) = (HEAD.to_owned(), Vec::new());
    for path in &traces {
        let read = TraceItems::open(path).map(|items| {
            let mut lines = LayerLines::default();
            let read = items.each(&mut progress.trace(), |item| {
                lines.add(item);
                Ok::<(), std::convert::Infallible>(())
            });
            text.push_str(&lines.text);
            let (_, failure) = read.ok()?;
            failure
        });
        failures.extend(read.unwrap_or_else(Some));
    }
    progress.finish();
    if text.len() == HEAD.len() {
        let Some(first) = failures.into_iter().next() else {
            anyhow::bail!(
                "no memory by layer in these traces. To have it: gctrace record --layers -- COMMAND"
            );
        };
        return Err(first);
    }
    output(config, &|out| out.write_all(text.as_bytes()))?;
    for error in &failures {
        print::message(text::chain(error));
    }
    Ok(u8::from(!failures.is_empty()))
}

impl LayerLines {
    fn add(&mut self, item: DecodedItem<'_>) {
        match item {
            DecodedItem::Header(header) => self.rank = header.rank,
            DecodedItem::Record(Record::Process(process)) => {
                self.ranks.extend(process.rank.map(|rank| (process.pid, rank)));
            }
            DecodedItem::Record(Record::Layers(layers)) => self.add_step(layers),
            _ => {}
        }
    }

    fn add_step(&mut self, layers: Layers) {
        if layers.remarks.contains(&LayersRemark::AtEnd) {
            return;
        }
        let rank = self.ranks.get(&layers.pid).copied().or(self.rank);
        let rank = if let Some(rank) = rank { rank.to_string() } else { String::new() };
        let epoch = if let Some(epoch) = layers.epoch { epoch.to_string() } else { String::new() };
        let start = format!("{},{epoch},{rank},{}", layers.step, layers.pid);
        let rows = match layers.rows {
            Some(rows) => self.last.entry(layers.pid).insert_entry(rows).into_mut(),
            None => self.last.entry(layers.pid).or_default(),
        };
        for row in rows.iter() {
            let about = format!(
                "{},{},{},{}",
                cell(name(row)),
                cell(&row.type_name),
                cell(gctrace_units::if_known(row.shape.as_deref())),
                cell(gctrace_units::if_known(row.device.as_deref())),
            );
            let held = [
                ("weights", row.held.weights),
                ("gradients", row.held.gradients),
                ("buffers", row.held.buffers),
                ("optimizer", row.held.optimizer),
            ];
            let made = row.made.map(|made| {
                [
                    ("saved", made.saved),
                    ("outputs", made.outputs),
                    ("output_gradients", made.output_gradients),
                ]
            });
            let kinds = held.into_iter().chain(made.into_iter().flatten());
            for (kind, bytes) in kinds {
                if bytes > 0 {
                    self.text.extend([&start, ",", &about, ",", kind]);
                    let _ = writeln!(self.text, ",{bytes}");
                }
            }
        }
        if let Some(saved) = layers.saved_bytes {
            let _ = writeln!(self.text, "{start},,,,,saved_at_once,{saved}");
        }
        for device in &layers.devices {
            for (kind, bytes) in of_device(device) {
                let _ = writeln!(self.text, "{start},,,,cuda:{},{kind},{bytes}", device.device);
            }
        }
    }
}

fn of_device(memory: &AllocatorMemory) -> [(&'static str, u64); 5] {
    [
        ("allocated", memory.allocated),
        ("peak_allocated", memory.peak_allocated),
        ("reserved", memory.reserved),
        ("peak_reserved", memory.peak_reserved),
        ("split", memory.split),
    ]
}

fn name(row: &LayerRow) -> &str {
    if row.marks.contains(&LayerMark::NoLayer) {
        "(no layer)"
    } else if row.marks.contains(&LayerMark::Rest) {
        "(smaller layers)"
    } else if row.path.is_empty() {
        "(model)"
    } else {
        &row.path
    }
}

/// A cell, quoted if it has a comma or a quote (RFC 4180). No spreadsheet takes it for a formula.
fn cell(text: &str) -> String {
    let text = clean::line(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    let text = if is_formula { format!("'{text}") } else { text.into_owned() };
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::{LayerHeld, LayerMade};

    #[test]
    fn a_table_that_did_not_change_is_repeated() {
        let row = LayerRow {
            path: "a, \"b\"".to_owned(),
            type_name: "Linear".to_owned(),
            shape: Some("[2, 3]".to_owned()),
            held: LayerHeld { weights: 4, ..LayerHeld::default() },
            made: Some(LayerMade { saved: 9, ..LayerMade::default() }),
            ..LayerRow::default()
        };
        let step = |step, rows| Layers { pid: 7, step, epoch: Some(5), rows, ..Layers::default() };
        let mut lines = LayerLines { rank: Some(3), ..LayerLines::default() };
        lines.add_step(step(2, Some(vec![row])));
        lines.add_step(step(12, None));
        let expected = "2,5,3,7,\"a, \"\"b\"\"\",Linear,\"[2, 3]\",,weights,4\n\
                        2,5,3,7,\"a, \"\"b\"\"\",Linear,\"[2, 3]\",,saved,9\n";
        assert_eq!(lines.text, expected.to_owned() + &expected.replace("2,5,3,7", "12,5,3,7"));
        assert_eq!(cell("=SUM(A1)"), "'=SUM(A1)");
    }
}
