//! Sentences about PyTorch's memory by layer.

use super::{LayerReport, LayersReport};
use crate::units::{bytes, count, counted, percent};
use gctrace_event::{LayerMark, LayersRemark};

/// Layers named on the first screen.
const NAMED: usize = 3;

/// Memory that the models of a process hold, and the layers with most of it.
pub fn layers_in_short(rank: Option<u32>, layers: &LayersReport) -> String {
    let totals = layers.totals;
    let all = totals.at_once();
    let parts = [
        ("weights", Some(totals.weights)),
        ("gradients", Some(totals.gradients)),
        ("buffers", Some(totals.buffers)),
        ("optimizer state", Some(totals.optimizer)),
        ("saved for backward", totals.saved),
    ];
    let parts = parts.into_iter().filter_map(|(name, size)| {
        if size > Some(0) { Some(format!("{} {name}", bytes(size?))) } else { None }
    });
    let parts: Vec<String> = parts.collect();
    let share = |layer: &LayerReport| layer.bytes.at_once() as f64 / all.max(1) as f64;
    let named = layers.layers.iter().filter(|layer| is_one(layer) && layer.bytes.at_once() > 0);
    let named: Vec<String> = named
        .take(NAMED)
        .map(|layer| format!("{} {}", name(layer), percent(share(layer))))
        .collect();
    let rank = if let Some(rank) = rank { format!(" of rank {rank}") } else { String::new() };
    let most = match named.as_slice() {
        [] => String::new(),
        named => format!(" Most: {}.", named.join(", ")),
    };
    format!(
        "The model{rank} holds {} at once (step {}): {}.{most}",
        bytes(all),
        count(layers.step),
        parts.join(", "),
    )
}

fn is_one(layer: &LayerReport) -> bool {
    !layer.marks.iter().any(|mark| matches!(mark, LayerMark::Rest | LayerMark::NoLayer))
}

/// The name of a row.
pub fn name(layer: &LayerReport) -> String {
    if layer.marks.contains(&LayerMark::NoLayer) {
        "(no layer)".to_owned()
    } else if layer.marks.contains(&LayerMark::Rest) {
        format!("({})", counted(layer.calls, "smaller layer"))
    } else if layer.path.is_empty() {
        "(model)".to_owned()
    } else {
        layer.path.clone()
    }
}

/// Special traits of a layer, in a few words; empty if there are none.
pub fn marks(layer: &LayerReport) -> String {
    let marks = layer.marks.iter().filter_map(|mark| match mark {
        LayerMark::Frozen => Some("frozen".to_owned()),
        LayerMark::Offloaded => {
            Some(format!("on {}", layer.device.as_deref().unwrap_or("another device")))
        }
        LayerMark::Recomputed => Some("recomputed in backward".to_owned()),
        LayerMark::NotCalled => Some("not called".to_owned()),
        LayerMark::Rest | LayerMark::NoLayer => None,
    });
    let is_many = is_one(layer) && layer.calls > 1;
    let calls = if is_many { Some(format!("{} calls", count(layer.calls))) } else { None };
    let tied = layer.tied.clone();
    marks.chain(calls).chain(tied).collect::<Vec<String>>().join("; ")
}

/// Limits of the figures, a sentence each.
pub fn remarks(layers: &LayersReport) -> Vec<String> {
    let mut sentences: Vec<String> =
        layers.remarks.iter().filter_map(|remark| sentence(*remark)).map(str::to_owned).collect();
    let uncalled = layers.layers.iter().filter(|layer| layer.marks.contains(&LayerMark::NotCalled));
    let uncalled = uncalled.count() as u64;
    if uncalled > 0 && !layers.remarks.contains(&LayersRemark::Compiled) {
        sentences.push(format!(
            "The forward of {} with weights did not run as a module's: replayed by a CUDA graph, compiled, or \
             its weights are used by other code, where what was saved counts.",
            counted(uncalled, "layer"),
        ));
    }
    sentences
}

fn sentence(remark: LayersRemark) -> Option<&'static str> {
    Some(match remark {
        LayersRemark::SavedForbidden => {
            "A transform of the program (torch.func) forbids hooks on saved tensors: what was saved in such \
             steps is incomplete."
        }
        LayersRemark::OwnHooks => {
            "The program has hooks on saved tensors of its own (offloading, for example): what these saved is \
             not counted."
        }
        LayersRemark::Compiled => {
            "torch.compile: a compiled module is one row, which has what its graph saved; the layers in it have \
             their weights, and are not called."
        }
        LayersRemark::Sharded => {
            "FSDP or tensor parallelism: weights, gradients and optimizer state are this rank's part. Weights \
             that are gathered for a layer are not counted, unless they still are at the end of the step."
        }
        LayersRemark::Replicated => {
            "DistributedDataParallel: each rank has all of it. Its buckets for gradients are not counted, \
             unless gradients are views of them."
        }
        LayersRemark::Zero => "ZeRO: the optimizer state is this rank's part.",
        LayersRemark::Quantized => {
            "Quantized layers: packed weights are no parameters and are not counted."
        }
        LayersRemark::Sparse => "Sparse tensors: their indices and values are counted.",
        LayersRemark::Inference => "A model ran in inference mode: nothing is saved there.",
        LayersRemark::SeveralModels => {
            "There are several models: paths begin with the class of theirs."
        }
        LayersRemark::NoOptimizer => {
            "No optimizer stepped: a step is one of another mark (see Steps), and there is no optimizer state."
        }
        LayersRemark::SeveralOptimizers => "Several optimizers stepped: their state is summed up.",
        LayersRemark::SeveralPasses => {
            "Several forward and backward passes in a step (accumulated gradients, several losses): outputs and \
             saved tensors of each layer are those of the pass with the most; the total is that of one pass."
        }
        LayersRemark::OtherThreads => {
            "Modules also ran in other threads; these calls are not counted."
        }
        LayersRemark::AtEnd => return None,
    })
}
