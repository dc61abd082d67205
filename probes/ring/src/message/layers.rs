//! PyTorch's memory by layer, of one measured step.

use super::TextId;
use super::messages::packed;

packed! {
    /// A layer of a model.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingLayer {
        /// Its properties: bits by [`RingLayer::marks`].
        pub flags: u8,
        /// Its path in the model, as `named_modules()` has it; [`NO_TEXT`](super::NO_TEXT): of the model itself.
        pub path: TextId,
        /// Name of its class.
        pub type_name: TextId,
        /// Shape of the first tensor that it returned.
        pub shape: TextId,
        /// Its weights that belong to other layers: `weight = emb.weight`.
        pub tied: TextId,
        /// Its device.
        pub device: TextId,
        /// How often its forward ran; of the mark `rest` the number of layers.
        pub calls: u32,
        /// Sizes in bytes.
        pub held: HeldBytes,
        /// Bytes made by its forward, in the pass that made most.
        pub made: MadeBytes,
    }

    /// Bytes that a layer holds between steps, without bytes counted for another layer.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HeldBytes {
        /// Its own parameters.
        pub weights: u64,
        /// Their gradients.
        pub gradients: u64,
        /// Its own buffers.
        pub buffers: u64,
        /// The optimizers' state of its parameters.
        pub optimizer: u64,
    }

    /// Bytes made by a layer's forward.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MadeBytes {
        /// Storages that it returned and no layer before it.
        pub outputs: u64,
        /// Storages saved for the backward pass while it was the innermost layer, without weights and buffers.
        pub saved: u64,
        /// Gradients of these outputs in the backward pass.
        pub output_gradients: u64,
    }

    /// Memory of a GPU by the caching allocator.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingDeviceMemory {
        /// Its number, as the process counts them.
        pub device: u32,
        /// Bytes of tensors.
        pub allocated: u64,
        /// The most so far.
        pub peak_allocated: u64,
        /// Bytes that the allocator has obtained.
        pub reserved: u64,
        /// The most so far.
        pub peak_reserved: u64,
        /// Bytes of free parts of blocks that are in use.
        pub split: u64,
    }

    /// A measured step.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct RingLayers {
        /// When it was measured: at its end.
        pub at_ns: u64 as time,
        /// Number of the step, from 1.
        pub step: u64,
        /// Each how many-th step is measured, as of now; 0: none follows.
        pub every: u32,
        /// Number of the epoch, as the program counts them; `None` if no variable of that name is known.
        pub epoch: Option<u32>,
        /// Bits by [`RingLayers::remarks`].
        pub remarks: u32,
        /// The most that was saved for a backward pass at once, in bytes.
        pub saved: u64,
        /// Time that measuring took, in ns.
        pub cost_ns: u64,
        /// GPUs.
        pub devices: Vec<RingDeviceMemory>,
        /// Number of the table that the rows are or, without any, that they would repeat: it may have been lost.
        pub table: u32,
        /// Layers; none: as in the table of that number.
        pub rows: Vec<RingLayer>,
    }
}

/// Properties of a layer and, in the second line, remarks on a table. These are the words of traces, by bit; in
/// capitals, the names of the bits in the agent.
const WORDS: &str = include_str!("layer_words.txt");

fn words(line: usize) -> impl Iterator<Item = &'static str> {
    WORDS.lines().nth(line).unwrap_or_default().split(' ')
}

impl RingLayer {
    /// Properties of a layer, by the bits of `flags`.
    pub fn marks() -> impl Iterator<Item = &'static str> {
        words(0)
    }
}

impl RingLayers {
    /// Most rows of a table; smaller layers are summed up in one more.
    pub const MOST_ROWS: usize = 1000;

    /// Remarks on a table, by the bits of `remarks`.
    pub fn remarks() -> impl Iterator<Item = &'static str> {
        words(1)
    }
}
