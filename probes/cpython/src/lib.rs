//! CPython's memory: where its fields are, in each version from 3.8 to 3.15.
//!
//! Offsets are in bytes, on 64-bit machines.

mod collector;
mod frame_layout;
mod objects;
pub mod offsets;

pub use collector::{
    CollectorLayout, GcBase, GenerationStats, SelfCheck, StatsLayout, StatsLocation,
};
pub use frame_layout::{FrameLayout, GilHolder, InstructionPointer, LineTableFormat};
pub use objects::{KnownType, ObjectLayout};
