//! Memory by layer. Pure.

use super::texts::RingTexts;
use gctrace_event::{AllocatorMemory, LayerHeld, LayerMade, LayerRow, Layers, LayersRemark};
use gctrace_ring::{RingDeviceMemory, RingLayer, RingLayers};
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

/// A measured step; `None` if it has more rows than a trace may have.
pub(super) fn layers(pid: u32, texts: &RingTexts, step: &RingLayers) -> Option<Layers> {
    if step.rows.len() > Layers::MOST_ROWS {
        return None;
    }
    let remarks: Vec<LayersRemark> = words(RingLayers::remarks(), step.remarks);
    let is_end = remarks.contains(&LayersRemark::AtEnd);
    // At the end nothing was made.
    let rows = step.rows.iter().map(|layer| row(texts, layer, !is_end));
    Some(Layers {
        pid,
        at_ns: step.at_ns,
        step: step.step,
        epoch: step.epoch,
        every: if step.every > 0 { Some(step.every) } else { None },
        saved_bytes: if is_end { None } else { Some(step.saved) },
        cost_ns: step.cost_ns,
        remarks,
        devices: step.devices.iter().take(MAX_DEVICES).map(device).collect(),
        rows: if step.rows.is_empty() { None } else { Some(rows.collect()) },
    })
}

fn row(texts: &RingTexts, layer: &RingLayer, has_made: bool) -> LayerRow {
    let (held, made) = (layer.held, layer.made);
    LayerRow {
        path: texts.owned(layer.path).unwrap_or_default(),
        type_name: texts.owned(layer.type_name).unwrap_or_default(),
        shape: texts.owned(layer.shape),
        tied: texts.owned(layer.tied),
        device: texts.owned(layer.device),
        marks: words(RingLayer::marks(), layer.flags.into()),
        calls: layer.calls.into(),
        held: LayerHeld {
            weights: held.weights,
            gradients: held.gradients,
            buffers: held.buffers,
            optimizer: held.optimizer,
        },
        made: has_made.then_some(LayerMade {
            outputs: made.outputs,
            saved: made.saved,
            output_gradients: made.output_gradients,
        }),
    }
}

fn device(memory: &RingDeviceMemory) -> AllocatorMemory {
    AllocatorMemory {
        device: memory.device,
        allocated: memory.allocated,
        peak_allocated: memory.peak_allocated,
        reserved: memory.reserved,
        peak_reserved: memory.peak_reserved,
        split: memory.split,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::LayerMark;
    use gctrace_ring::{HeldBytes, MadeBytes, NO_TEXT};

    fn texts() -> RingTexts {
        let mut texts = RingTexts::default();
        texts.take(1, "blocks.0".into());
        texts.take(2, "Linear".into());
        texts
    }

    fn step(rows: usize, remarks: u32) -> RingLayers {
        let row = RingLayer {
            flags: 0b1001,
            path: 1,
            type_name: 2,
            shape: NO_TEXT,
            held: HeldBytes { weights: 4, ..HeldBytes::default() },
            made: MadeBytes { saved: 7, ..MadeBytes::default() },
            ..RingLayer::default()
        };
        RingLayers { step: 3, every: 10, rows: vec![row; rows], remarks, ..RingLayers::default() }
    }

    #[test]
    fn a_table_has_its_texts_and_words() {
        let table = layers(9, &texts(), &step(1, 1 << 2)).unwrap();
        assert_eq!((table.pid, table.step, table.every), (9, 3, Some(10)));
        assert_eq!(table.remarks, [LayersRemark::Compiled]);
        let rows = table.rows.unwrap();
        assert_eq!((&*rows[0].path, &*rows[0].type_name), ("blocks.0", "Linear"));
        assert_eq!(rows[0].marks, [LayerMark::Frozen, LayerMark::NotCalled]);
        assert_eq!((rows[0].held.weights, rows[0].made.unwrap().saved), (4, 7));
    }

    #[test]
    fn at_the_end_nothing_was_made() {
        let last = RingLayers::remarks().count() - 1;
        let table = layers(9, &texts(), &step(1, 1 << last)).unwrap();
        assert_eq!((table.rows.unwrap()[0].made, table.saved_bytes), (None, None));
    }

    #[test]
    fn no_rows_are_those_before_and_too_many_none() {
        assert_eq!(layers(9, &texts(), &step(0, 0)).unwrap().rows, None);
        assert!(layers(9, &texts(), &step(Layers::MOST_ROWS, 0)).is_some());
        assert_eq!(layers(9, &texts(), &step(Layers::MOST_ROWS + 1, 0)), None);
    }

    #[test]
    fn each_bit_has_a_word_of_traces() {
        assert_eq!(words::<LayerMark>(RingLayer::marks(), u32::MAX).len(), 6);
        assert_eq!(words::<LayersRemark>(RingLayers::remarks(), u32::MAX).len(), 15);
    }
}
