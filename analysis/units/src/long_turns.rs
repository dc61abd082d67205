//! Which turns of a loop are recorded one by one: the same by kernel probes and in-process. The others are only counted.

/// The shortest, in ns.
pub const LONG_TURN_NS: u64 = 1_000_000;
/// A long turn with as much time in collections is recorded in any case, as its pauses are; in ns.
pub const LONG_PAUSE_NS: u64 = 1_000_000;
/// So many are recorded of each loop, ...
pub const TURNS_RECORDED: u64 = 200;
/// ... and beyond that one of so many turns, ...
pub const TURNS_OF_ONE_RECORDED: u64 = 1000;
/// ... and one in this time, in ns: ten a second. Whenever there are more, only turns longer by an eighth are recorded;
/// while there are fewer, each turn that is not recorded lowers that length by one part in 64.
pub const NS_OF_ONE_RECORDED: u64 = 100_000_000;
