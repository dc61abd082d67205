//! Facts about a file from instructions and unwind tables: functions, references, calls.
//!
//! `instruction.rs` is what the algorithms ask of an instruction; `x86_64.rs` and `aarch64.rs`
//! answer it, chosen by the file's machine. Nothing here knows Python.

pub(crate) mod aarch64;
mod flow;
mod functions;
mod graph;
mod instruction;
pub(crate) mod loops;
mod references;
mod x86_64;

pub(crate) use flow::{Flow, Registers};
pub(crate) use functions::FunctionTable;
pub(crate) use graph::CodeGraph;
#[cfg(test)]
pub(crate) use instruction::decode_bytes;
pub(crate) use instruction::{
    Instruction, RegisterUses, decode, moved_argument, of_aarch64, of_x86_64,
};
pub(crate) use references::near_loads;
