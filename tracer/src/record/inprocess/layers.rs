//! Memory by layer, put together from the records of a ring. Pure.

use super::texts::RingTexts;
use gctrace_event::{
    AllocatorMemory, LayerHeld, LayerMade, LayerRow, Layers, LayersRemark, Record,
};
use gctrace_ring::{RingDeviceMemory, RingLayer, RingLayerFlow, RingLayers};
use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

/// `--layers` without a table.
pub(super) const NONE_MEASURED: &str = "no memory by layer was measured (--layers): that takes two steps of a \
    PyTorch optimizer (2.1 or later), or of another mark (docs/tasks/layers.md)";

/// The words of the bits that are set, as a trace has them.
fn words<T: DeserializeOwned>(words: impl Iterator<Item = &'static str>, bits: u32) -> Vec<T> {
    let set =
        words.enumerate().filter(|(bit, _)| bits.checked_shr(*bit as u32).unwrap_or(0) & 1 == 1);
    let known =
        set.filter_map(|(_, word)| T::deserialize(StrDeserializer::<Error>::new(word)).ok());
    known.collect()
}

/// Devices of a process; far more than a machine has.
const MAX_DEVICES: usize = 1 << 8;

/// The rows of the table whose last record has not come.
#[derive(Debug, Default)]
pub(super) struct LayerRecords {
    rows: Vec<LayerRow>,
    /// Of each row in order, whether its second record came.
    flows: usize,
    devices: Vec<AllocatorMemory>,
    /// A table was not complete, so that the next may not refer to it.
    is_broken: bool,
}

impl LayerRecords {
    /// What a layer holds.
    pub(super) fn layer(&mut self, texts: &RingTexts, layer: &RingLayer) {
        // One more than is read, so that a table with too many is not taken for whole.
        if self.rows.len() > Layers::MOST_ROWS {
            return;
        }
        let text = |id| texts.get(id).map(str::to_owned);
        let held = layer.held;
        self.rows.push(LayerRow {
            path: text(layer.path).unwrap_or_default(),
            type_name: text(layer.type_name).unwrap_or_default(),
            shape: text(layer.shape),
            tied: text(layer.tied),
            device: None,
            marks: words(RingLayer::marks(), layer.flags.into()),
            calls: layer.calls.into(),
            held: LayerHeld {
                weights: held.weights,
                gradients: held.gradients,
                buffers: held.buffers,
                optimizer: held.optimizer,
            },
            made: None,
        });
    }

    /// What the last layer made.
    pub(super) fn flow(&mut self, texts: &RingTexts, flow: &RingLayerFlow) {
        if let Some(row) = self.rows.last_mut() {
            self.flows += usize::from(row.made.is_none());
            row.device = texts.get(flow.device).map(str::to_owned);
            row.made = Some(LayerMade {
                outputs: flow.outputs,
                saved: flow.saved,
                output_gradients: flow.output_gradients,
            });
        }
    }

    /// Memory of a GPU.
    pub(super) fn device(&mut self, memory: &RingDeviceMemory) {
        if self.devices.len() < MAX_DEVICES {
            self.devices.push(AllocatorMemory {
                device: memory.device,
                allocated: memory.allocated,
                peak_allocated: memory.peak_allocated,
                reserved: memory.reserved,
                peak_reserved: memory.peak_reserved,
                split: memory.split,
            });
        }
    }

    /// The step itself; `None` if some of its records are missing, which were counted as lost.
    pub(super) fn step(&mut self, pid: u32, step: &RingLayers) -> Option<Record> {
        let Self { rows, flows, devices, is_broken } = std::mem::take(self);
        let expected = (usize::from(step.rows), usize::from(step.devices));
        let is_whole = (rows.len(), devices.len()) == expected && flows == rows.len();
        self.is_broken = !is_whole || is_broken && rows.is_empty();
        if self.is_broken {
            return None;
        }
        let remarks: Vec<LayersRemark> = words(RingLayers::remarks(), step.remarks);
        let is_end = remarks.contains(&LayersRemark::AtEnd);
        let mut rows = rows;
        if is_end {
            rows.iter_mut().for_each(|row| row.made = None);
        }
        Some(Record::Layers(Layers {
            pid,
            at_ns: step.at_ns,
            step: step.step,
            epoch: (step.epoch != RingLayers::UNKNOWN).then_some(step.epoch),
            every: (step.every > 0).then_some(step.every),
            saved_bytes: (!is_end).then_some(step.saved),
            cost_ns: step.cost_ns,
            remarks,
            devices,
            rows: (!rows.is_empty()).then_some(rows),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::LayerMark;
    use gctrace_ring::{HeldBytes, NO_TEXT, RingRecord, pieces};

    fn texts() -> RingTexts {
        let mut texts = RingTexts::default();
        for record in pieces(1, "blocks.0").chain(pieces(2, "Linear")) {
            if let RingRecord::Text(piece) = record {
                texts.take(&piece);
            }
        }
        texts
    }

    fn add_row(records: &mut LayerRecords, weights: u64) {
        records.layer(
            &texts(),
            &RingLayer {
                flags: 0b1001,
                path: 1,
                type_name: 2,
                shape: NO_TEXT,
                held: HeldBytes { weights, ..HeldBytes::default() },
                ..RingLayer::default()
            },
        );
        records.flow(&texts(), &RingLayerFlow { saved: 7, ..RingLayerFlow::default() });
    }

    fn step(rows: u16, remarks: u32) -> RingLayers {
        RingLayers {
            at_ns: 5,
            step: 3,
            every: 10,
            rows,
            remarks,
            saved: 7,
            ..RingLayers::default()
        }
    }

    fn rows(record: Option<Record>) -> Option<Vec<LayerRow>> {
        match record {
            Some(Record::Layers(layers)) => Some(layers.rows.unwrap_or_default()),
            _ => None,
        }
    }

    #[test]
    fn a_table_is_put_together() {
        let mut records = LayerRecords::default();
        add_row(&mut records, 4);
        let Some(Record::Layers(layers)) = records.step(9, &step(1, 1 << 2)) else {
            panic!("a table");
        };
        assert_eq!((layers.pid, layers.step, layers.every), (9, 3, Some(10)));
        assert_eq!(layers.remarks, [LayersRemark::Compiled]);
        let rows = layers.rows.unwrap();
        assert_eq!((&*rows[0].path, &*rows[0].type_name), ("blocks.0", "Linear"));
        assert_eq!(rows[0].marks, [LayerMark::Frozen, LayerMark::NotCalled]);
        assert_eq!((rows[0].held.weights, rows[0].made.unwrap().saved), (4, 7));
        // At the end nothing was made.
        add_row(&mut records, 4);
        let at_end = rows_at_end(&mut records);
        assert_eq!(at_end[0].made, None);
    }

    fn rows_at_end(records: &mut LayerRecords) -> Vec<LayerRow> {
        let last = RingLayers::remarks().count() - 1;
        rows(records.step(9, &step(1, 1 << last))).unwrap()
    }

    #[test]
    fn a_table_with_a_lost_row_is_none_and_nothing_refers_to_it() {
        let mut records = LayerRecords::default();
        add_row(&mut records, 4);
        assert_eq!(rows(records.step(9, &step(2, 0))), None);
        assert_eq!(rows(records.step(9, &step(0, 0))), None, "as the one that is lost");
        add_row(&mut records, 4);
        assert_eq!(rows(records.step(9, &step(1, 0))).map(|rows| rows.len()), Some(1));
        assert_eq!(rows(records.step(9, &step(0, 0))), Some(Vec::new()));
        // A row without its second half.
        records.layer(&texts(), &RingLayer::default());
        assert_eq!(rows(records.step(9, &step(1, 0))), None);
    }

    #[test]
    fn rows_without_end_take_no_memory() {
        let mut records = LayerRecords::default();
        for _ in 0..3 * Layers::MOST_ROWS {
            add_row(&mut records, 1);
            records.device(&RingDeviceMemory::default());
        }
        assert!(records.rows.len() <= Layers::MOST_ROWS + 1);
        assert_eq!(records.devices.len(), MAX_DEVICES);
        let rows_known = u16::try_from(records.rows.len()).unwrap();
        assert_eq!(rows(records.step(9, &step(rows_known, 0))), None);
    }

    #[test]
    fn each_bit_has_a_word_of_traces() {
        assert_eq!(words::<LayerMark>(RingLayer::marks(), u32::MAX).len(), 6);
        assert_eq!(words::<LayersRemark>(RingLayers::remarks(), u32::MAX).len(), 15);
    }
}
