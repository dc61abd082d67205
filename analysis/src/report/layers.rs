//! The part of a report about PyTorch's memory by layer.

use crate::time::sum;
use gctrace_event::{LayerMark, LayersRemark};
use schemars::JsonSchema;
use serde::Serialize;

/// PyTorch's memory by layer (`--layers`), measured in some steps of one process. Bytes are sizes of storages,
/// each counted once: of tied weights at the first layer that has them.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct LayersReport {
    /// Steps that were measured.
    pub measured_steps: u64,
    /// Number of the measured step that held the most at once, which `layers` and `totals` are of; the first
    /// of several.
    pub step: u64,
    /// Each how many-th step was measured at last; `null` if unknown.
    pub every: Option<u32>,
    /// Time that measuring took, in ns.
    pub cost_ns: u64,
    /// `cost_ns` / the observed time of the process, 0 to 1; `null` if too little was observed.
    pub cost_ratio: Option<f64>,
    /// Sums over the layers of that step.
    pub totals: LayerTotals,
    /// Weights, gradients, buffers and optimizer state at the end of the process; `null` if it did not end in
    /// order, or the models were gone.
    pub at_end: Option<LayerTotals>,
    /// The layers of that step, most bytes at once first; at most 1,100, the last of which may be the sum of
    /// others.
    pub layers: Vec<LayerReport>,
    /// What the figures do not contain, or how they are to be read, in any measured step: `saved_forbidden`,
    /// `own_hooks`, `compiled`, `sharded`, `replicated`, `zero`, `quantized`, `sparse`, `inference`,
    /// `several_models`, `no_optimizer`, `several_optimizers`, `several_passes`, `other_threads`.
    #[schemars(with = "Vec<String>")]
    pub remarks: Vec<LayersRemark>,
    /// Memory of its GPUs by the caching allocator, as of the last measured step.
    pub devices: Vec<LayerDevice>,
    /// The sums of measured steps in order, at most 1,000, evenly spread.
    pub over_time: Vec<LayersPoint>,
}

/// Memory of all layers, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LayerTotals {
    /// Parameters.
    pub weights: u64,
    /// Their gradients at the end of the step.
    pub gradients: u64,
    /// Buffers.
    pub buffers: u64,
    /// The optimizers' state.
    pub optimizer: u64,
    /// What was saved for a backward pass, at most at once; `null` if unknown.
    pub saved: Option<u64>,
    /// What modules returned; of it, what is saved too is in both. `null` if unknown.
    pub outputs: Option<u64>,
    /// Gradients of these outputs; the backward pass frees each after its use. `null` if unknown.
    pub output_gradients: Option<u64>,
}

impl LayerTotals {
    /// What is held as a backward pass begins, in bytes: everything but outputs, which are saved or freed, and
    /// their gradients.
    #[must_use]
    pub fn at_once(&self) -> u64 {
        let Self { weights, gradients, buffers, optimizer, saved, .. } = *self;
        sum([weights, gradients, buffers, optimizer, saved.unwrap_or(0)])
    }
}

/// The latest measured step of a process that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LatestLayers {
    /// Its number.
    pub step: u64,
    /// Sums over its layers.
    pub totals: LayerTotals,
    /// Its layers, most bytes at once first, at most 20.
    pub layers: Vec<LayerReport>,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayerReport {
    /// Path in its model; with several models the class of its model first. Empty: the model itself, or with a
    /// mark `rest` or `no_layer` what these are.
    pub path: String,
    /// Name of its class; empty if it is of no layer or several.
    pub type_name: String,
    /// Shape of the first tensor that it returned; `null` if it returned none.
    pub shape: Option<String>,
    /// Weights that are another layer's and count there, as in `weight = emb.weight`; `null` without any.
    pub tied: Option<String>,
    /// Device of its weights, or of its model; `null` if unknown.
    pub device: Option<String>,
    /// `frozen`, `offloaded`, `recomputed`, `not_called`, `rest` (the sum of smaller layers), `no_layer`.
    #[schemars(with = "Vec<String>")]
    pub marks: Vec<LayerMark>,
    /// How often its forward ran in the step; of `rest` the number of layers.
    pub calls: u64,
    /// Its memory.
    #[serde(flatten)]
    pub bytes: LayerTotals,
}

/// Memory of a GPU by PyTorch's caching allocator, in bytes.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LayerDevice {
    /// Its number, as the process counts them.
    pub device: u32,
    /// Memory of tensors at the end of the last measured step.
    pub allocated: u64,
    /// The most by then.
    pub peak_allocated: u64,
    /// Memory that the allocator had obtained from the driver.
    pub reserved: u64,
    /// The most by then.
    pub peak_reserved: u64,
    /// Free parts of blocks that are in use (fragmentation).
    pub split: u64,
}

/// A measured step.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LayersPoint {
    /// Its number.
    pub step: u64,
    /// Number of its epoch, as a variable `epoch` of the program has it; `null` if unknown.
    pub epoch: Option<u32>,
    /// Its end, in ns after the start of the recording.
    pub since_start_ns: u64,
    /// Sums over its layers.
    #[serde(flatten)]
    pub totals: LayerTotals,
    /// Memory of tensors on all GPUs at its end, in bytes; `null` without GPUs.
    pub allocated: Option<u64>,
}
