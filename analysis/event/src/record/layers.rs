//! PyTorch's memory by layer (`--layers`).

use super::kind::{Phase, declare};
use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// The memory of a process's models in one training step, by layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Layers {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// End of the step, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Number of the step, counted from 1 by its marks.
    pub step: u64,
    /// Number of its epoch, from a variable `epoch` of the program; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// Each how many-th step is measured from then on; `None`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// The most that was saved for a backward pass at once, in bytes; `None` at the end of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_bytes: Option<u64>,
    /// Time that measuring took, in ns.
    pub cost_ns: u64,
    /// Gaps in the figures, and notes on how to read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<LayersRemark>,
    /// The caching allocator's memory of each GPU in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<AllocatorMemory>,
    /// The layers, in the order of the models; empty layers are left out. `None`: as in the process's previous record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<LayerRow>>,
}

declare! {
    Layers: Phase::Meta, "gctrace_layers", "memory by layer",
    pid: pid, at: at_ns, spaced: Layers, by: "--layers";
    fn check(&self) -> Result<(), &'static str> {
        if matches!(&self.rows, Some(rows) if rows.len() > Layers::MOST_ROWS) {
            return Err("memory by layer has more layers than gctrace writes");
        }
        Ok(())
    }
}

impl Layers {
    /// Most rows of a record; the library sums up smaller layers in the last.
    pub const MOST_ROWS: usize = 1_100;
}

/// A gap in a table of layers, or a note on how to read it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode,
)]
#[serde(rename_all = "snake_case")]
pub enum LayersRemark {
    /// A transform of the program (`torch.func.grad`) forbids hooks on saved tensors.
    SavedForbidden,
    /// The program has hooks on saved tensors of its own.
    OwnHooks,
    /// `torch.compile`: a compiled module is one row.
    Compiled,
    /// FSDP or tensor parallelism: figures are this rank's part.
    Sharded,
    /// `DistributedDataParallel`.
    Replicated,
    /// The optimizer's state is this rank's part (ZeRO).
    Zero,
    /// Quantized weights; some of them are no parameters.
    Quantized,
    /// Sparse weights or gradients: their indices and values count.
    Sparse,
    /// A model ran in inference mode.
    Inference,
    /// There are several models with weights.
    SeveralModels,
    /// No optimizer stepped.
    NoOptimizer,
    /// Several optimizers stepped.
    SeveralOptimizers,
    /// Several forward and backward passes within the step: of each layer the pass with the most counts.
    SeveralPasses,
    /// Modules ran in other threads; these are not seen.
    OtherThreads,
    /// Memory that the layers of the last measured step hold as the process ends.
    AtEnd,
}

/// One layer: a module of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct LayerRow {
    /// Path in its model, as `named_modules()` has it; with several models the class of its model first. Empty:
    /// of the model itself.
    pub path: String,
    /// Name of its class; empty: of no layer, or of several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub type_name: String,
    /// Shape of the first tensor that it returned; `None` if it returned none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Weights that are another layer's and count there: `weight = emb.weight`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tied: Option<String>,
    /// Device of its weights, or of its model; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Marks of the layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<LayerMark>,
    /// How often its forward ran in the step; for [`LayerMark::Rest`] the number of layers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// Memory that it holds between steps.
    #[serde(default)]
    pub held: LayerHeld,
    /// Memory that its forward made; `None` at the end of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<LayerMade>,
}

/// Memory that a layer holds between steps, in bytes, without memory that another layer has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct LayerHeld {
    /// Its own parameters.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub weights: u64,
    /// Their gradients at the end of the step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gradients: u64,
    /// Its own buffers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub buffers: u64,
    /// The optimizers' state of its parameters.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub optimizer: u64,
}

/// Memory that a layer's forward made, in bytes, in the pass that made the most. A saved output is in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct LayerMade {
    /// Storages that it returned, and no layer before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outputs: u64,
    /// Storages saved for the backward pass while it was the innermost layer that ran, without weights and
    /// buffers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saved: u64,
    /// Gradients of these outputs, as the backward pass makes them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_gradients: u64,
}

/// A property of a layer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode,
)]
#[serde(rename_all = "snake_case")]
pub enum LayerMark {
    /// None of its weights requires a gradient.
    Frozen,
    /// Its weights are on another device than most of its model's.
    Offloaded,
    /// Its forward ran again in the backward pass (checkpointing).
    Recomputed,
    /// It has weights, and its forward did not run: compiled, in a CUDA graph, or used by other code.
    NotCalled,
    /// The sum of layers that are too small for rows of their own.
    Rest,
    /// Memory that belongs to no layer.
    NoLayer,
}

/// Memory of a GPU by PyTorch's caching allocator, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LayerDevice"))]
pub struct AllocatorMemory {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
