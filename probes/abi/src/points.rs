//! Kinds of probed locations, and the registers of their arguments.

use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Purpose of probing a location in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum ProbePointKind {
    /// The collector, or one of its clones, with [`CollectorArguments`].
    Collect = 1,
    /// The C function behind `gc.collect`.
    GcCollectBuiltin = 2,
    /// The exported C function `PyGC_Collect`.
    PyGcCollect = 3,
    /// `_PyEval_StopTheWorld` (free-threaded builds).
    StopTheWorld = 4,
    /// `_PyEval_StartTheWorld` (free-threaded builds).
    StartTheWorld = 5,
    /// `python:gc__start`, a static trace point.
    UsdtStart = 6,
    /// `python:gc__done`, a static trace point.
    UsdtDone = 7,
    /// The ELF entry point of a program: the program is stopped there once. Not part of an interpreter.
    ProgramEntry = 8,
    /// The C function that frees code objects; its first argument is the code object.
    CodeDealloc = 9,
    /// The instruction that enters the collector's loop over its garbage: hit once per collection,
    /// with the head of the list of unreachable objects in a register. Not a function's entry.
    Garbage = 10,
}

impl ProbePointKind {
    /// Whether the return is probed too; for all others the entry suffices.
    #[must_use]
    pub fn has_return(self) -> bool {
        matches!(self, Self::Collect | Self::GcCollectBuiltin | Self::PyGcCollect)
    }
}

/// Where the size of an allocation is when its probe fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationSize {
    /// In a register, by its number in the machine's encodings: on x86-64 0 is `rax`, 6 `rsi`, 7
    /// `rdi`, 15 `r15`; on aarch64 0 is `x0`, 30 `x30`.
    Register(u8),
    /// Always this many bytes.
    Constant(u32),
    /// Unknown at that instruction.
    Unknown,
}

/// The arguments of a collector function with known registers.
///
/// Compilers drop arguments from clones and shift the others. An argument is listed only if the
/// function reads exactly the registers of its full signature; the thread state also if only `rdi`
/// is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorArguments {
    /// `PyThreadState *`; check it: `*(tstate + tstate_interpreter)` must be a known interpreter.
    pub tstate: Option<ArgumentRegister>,
    /// Generation, a 32-bit signed integer; -1 in 3.13 and later if the function chooses it itself.
    pub generation: Option<ArgumentRegister>,
    /// Reason, 32 bits: 0 heap, 1 shutdown, 2 manual (3.13 and later).
    pub reason: Option<ArgumentRegister>,
    /// Nonzero during finalization, 32 bits (3.8 - 3.12).
    pub no_fail: Option<ArgumentRegister>,
    /// The generation that this clone always collects, if known.
    pub fixed_generation: Option<u8>,
}

/// An argument register of the System V calling convention; its value is the number of the
/// argument, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(VariantArray)]
#[repr(u8)]
pub enum ArgumentRegister {
    /// First.
    Rdi = 1,
    /// Second.
    Rsi,
    /// Third.
    Rdx,
    /// Fourth.
    Rcx,
    /// Fifth.
    R8,
    /// Sixth.
    R9,
}

impl ArgumentRegister {
    /// All six registers, in the order of the arguments they pass.
    pub const ALL: &'static [Self] = Self::VARIANTS;
}
