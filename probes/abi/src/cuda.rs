//! CUDA, NCCL and torch calls: their kinds, and where their arguments are.

use strum::VariantArray;

/// Kind of call: what the function does. Calls are counted by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, VariantArray)]
#[repr(u8)]
pub enum CallKind {
    /// Enqueues a kernel or a graph.
    Launch = 0,
    /// Synchronizes: waits for the GPU.
    Synchronize = 1,
    /// Copies memory.
    Copy = 2,
    /// Fills memory.
    Set = 3,
    /// Allocates or maps device memory, or host memory that devices can access.
    Allocate = 4,
    /// Frees or unmaps such memory.
    Free = 5,
    /// Records an event in a stream, or makes a stream wait for one.
    Event = 6,
    /// A collective of several ranks, or a message between two.
    Collective = 7,
    /// One backward pass.
    Step = 8,
    /// Reports how much memory torch's caching allocator holds.
    Memory = 9,
}

impl CallKind {
    /// All kinds, in the order of their values.
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// Where the stream is passed; arguments are counted from 1, a `dim3` by value as two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamArgument {
    /// The function takes no stream.
    None,
    /// This argument, up to the 31st: in a register or on the stack.
    Argument(u8),
    /// In the launch configuration that the first argument points to.
    Configuration,
}

/// Where the number of bytes is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BytesArgument {
    /// The function takes no size.
    None,
    /// The value of an argument.
    Argument(u8),
    /// An argument, times two to the power of the second number, up to 3.
    Elements(u8, u8),
    /// An argument, times the size of the `ncclDataType_t` in the next argument.
    Nccl(u8),
    /// Product of an argument and the next one.
    Rows(u8),
}

/// Where the grid dimensions are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GridArgument {
    /// The function takes no grid.
    None = 0,
    /// The second to fourth arguments.
    Arguments = 1,
    /// A `dim3` by value in the second and third arguments.
    Dim3 = 2,
    /// In the launch configuration that the first argument points to.
    Configuration = 3,
}
