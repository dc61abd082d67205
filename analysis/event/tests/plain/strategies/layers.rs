//! Memory by layer, any.

use super::time;
use gctrace_event::{
    AllocatorMemory, LayerHeld, LayerMade, LayerMark, LayerRow, Layers, LayersRemark, Record,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const MARKS: [LayerMark; 6] = [
    LayerMark::Frozen,
    LayerMark::Offloaded,
    LayerMark::Recomputed,
    LayerMark::NotCalled,
    LayerMark::Rest,
    LayerMark::NoLayer,
];
const REMARKS: [LayersRemark; 3] =
    [LayersRemark::SavedForbidden, LayersRemark::SeveralModels, LayersRemark::AtEnd];

prop_compose! {
    fn row()(
        (path, type_name, calls) in any::<(String, String, u64)>(),
        (shape, tied, device) in any::<(Option<String>, Option<String>, Option<String>)>(),
        marks in subsequence(&MARKS[..], 0..MARKS.len()),
        [weights, gradients, buffers, optimizer] in any::<[u64; 4]>(),
        made in of(any::<[u64; 3]>()),
    ) -> LayerRow {
        let held = LayerHeld { weights, gradients, buffers, optimizer };
        let made = made.map(|[outputs, saved, output_gradients]| {
            LayerMade { outputs, saved, output_gradients }
        });
        LayerRow { path, type_name, shape, tied, device, marks, calls, held, made }
    }
}

prop_compose! {
    fn device()(
        device in any::<u32>(),
        [allocated, peak_allocated, reserved, peak_reserved, split] in any::<[u64; 5]>(),
    ) -> AllocatorMemory {
        AllocatorMemory { device, allocated, peak_allocated, reserved, peak_reserved, split }
    }
}

prop_compose! {
    pub(crate) fn record()(
        (pid, at_ns) in (any::<u32>(), time()),
        (step, epoch, every, saved_bytes, cost_ns) in
            any::<(u64, Option<u32>, Option<u32>, Option<u64>, u64)>(),
        remarks in vec(select(&REMARKS[..]), 0..4),
        devices in vec(device(), 0..3),
        rows in of(vec(row(), 0..4)),
    ) -> Record {
        Record::Layers(Layers {
            pid, at_ns, step, epoch, every, saved_bytes, cost_ns, remarks, devices, rows,
        })
    }
}
