//! Which turns of a loop are recorded one by one: the same by kernel probes and in-process. The others are only counted.

/// The shortest, in ns.
pub const LONG_TURN_NS: u64 = 1_000_000;
/// A long turn with as much time in collections is recorded in any case, as its pauses are; in ns.
pub const LONG_PAUSE_NS: u64 = 1_000_000;
/// So many are recorded of each loop, ...
pub const TURNS_RECORDED: u64 = 200;
/// ... and beyond that one of so many turns: beyond it the shortest recorded turn gets longer, by an eighth.
pub const TURNS_OF_ONE_RECORDED: u64 = 1000;
