//! What a recording has of garbage.

/// What to record of the objects that collections free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageDetail {
    /// Nothing.
    Off = 0,
    /// Their types, and the lines that belong to them.
    Types = 1,
    /// Also the cycles that they form; in-process only.
    Cycles = 2,
}
