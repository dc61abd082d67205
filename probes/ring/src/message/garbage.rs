//! The garbage of collections.

use super::TextId;
use super::messages::packed;

packed! {
    /// Objects that a collection found unreachable.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct RingGarbage {
        /// When the list of unreachable objects was read.
        pub at_ns: u64 as time,
        /// Kernel id of the collecting thread, as the process sees it.
        pub tid: u32,
        /// Id of the interpreter.
        pub interpreter: i64,
        /// Length of the list.
        pub objects: u64,
        /// Time that examining it took, in ns.
        pub cost_ns: u64,
        /// The objects by kind, most objects first.
        pub kinds: Vec<RingKindCount>,
        /// Objects with a sampled allocation, by the line that allocated them.
        pub births: Vec<RingBirthCount>,
        /// Cycles in it, most objects first; `None` if they were not examined.
        pub cycles: Option<Vec<RingCycleCount>>,
    }

    /// Objects of one kind in the garbage of one collection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingKindCount {
        /// Number of the [`PythonMessage::ObjectKind`](super::PythonMessage::ObjectKind).
        pub kind: u32,
        /// Number of objects.
        pub objects: u64,
        /// Their own memory in bytes; `None` if it is unknown.
        pub bytes: Option<u64>,
    }

    /// Objects in the garbage of one collection that were allocated at one line.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingBirthCount {
        /// The [`PythonMessage::ObjectKind`](super::PythonMessage::ObjectKind) with their type, and with the function, file and line that
        /// allocated them.
        pub kind: u32,
        /// Number of sampled objects.
        pub samples: u32,
    }

    /// Cycles of one signature in the garbage of one collection, as strongly connected components.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingCycleCount {
        /// Number of the [`PythonMessage::Cycle`](super::PythonMessage::Cycle).
        pub cycle: u32,
        /// Number of components.
        pub count: u32,
        /// Objects in them.
        pub objects: u64,
        /// Objects that only they refer to.
        pub held_objects: u64,
        /// Own memory of all these in bytes; `None` if it is unknown.
        pub bytes: Option<u64>,
    }

    /// An object of a cycle and its reference to the next.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct RingCycleEdge {
        /// The object's [`PythonMessage::ObjectKind`](super::PythonMessage::ObjectKind).
        pub kind: u32,
        /// The reference as Python writes it; [`NO_TEXT`](super::NO_TEXT): it has no name.
        pub name: TextId,
    }

    /// Live objects among all objects allocated at a line.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RingAliveLine {
        /// Number of the frame that is the line; 0: there was no room for it.
        pub frame: u32,
        /// Number of objects.
        pub objects: u64,
        /// Their blocks, in bytes.
        pub bytes: u64,
    }
}
