//! CPython's memory, of each version from 3.8 to 3.15: the fields and their content.
//!
//! Reads from any [`Memory`]: another process, a copy, or the own process. Offsets are in bytes, on
//! 64-bit machines. Whatever is read, no reader panics, and each ends within its bounds.

mod code_object;
mod collector;
mod dicts;
mod frame_layout;
pub mod frames;
pub mod line_table;
mod memory;
mod objects;
pub mod offsets;
mod text;
mod threads;

pub use code_object::CodeObject;
pub use collector::{
    CollectorLayout, GcBase, GenerationStats, SelfCheck, StatsLayout, StatsLocation,
};
pub use dicts::{Dict, DictEntry, InstanceLayout, Keys};
pub use frame_layout::{FrameLayout, GilHolder, InstructionPointer, LineTableFormat, StackLayout};
pub use memory::Memory;
pub use objects::{KnownType, ObjectLayout};
pub use text::{decode_unicode, text};
pub use threads::{FoundInterpreter, current_thread, interpreters, thread_by_id};
