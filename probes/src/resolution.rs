//! The result: the collector of one file, its functions and where their probes are placed.

use crate::elf::Machine;
use crate::version::PythonVersion;
use gctrace_abi::{CollectorArguments, ProbePointKind};
use gctrace_cpython::{CollectorLayout, FrameLayout, ObjectLayout};
use gctrace_event::CollectorKind;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use strum::{Display, VariantArray};

/// Sources for [`crate::resolve`] in addition to the file itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveOptions {
    /// Cache folder; created if missing. `None`: no cache is used.
    pub cache: Option<PathBuf>,
    /// Folders with separate debug files, for example `/usr/lib/debug`, and the same below the root
    /// of a container.
    pub debug_roots: Vec<PathBuf>,
    /// The first search strategy to try; for `gctrace doctor` and for tests.
    pub first_rung: SearchStrategy,
    /// The machine that the file must be built for.
    pub machine: Machine,
}

impl Default for ResolveOptions {
    fn default() -> Self {
        Self {
            cache: None,
            debug_roots: vec![PathBuf::from("/usr/lib/debug")],
            first_rung: SearchStrategy::SymbolTable,
            machine: Machine::HOST,
        }
    }
}

/// A method of finding functions, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(Display, VariantArray)]
pub enum SearchStrategy {
    /// `.symtab` of the file.
    #[strum(to_string = "symbol table")]
    SymbolTable,
    /// `.symtab` of the debug file with the same build id.
    #[strum(to_string = "build-id debug file")]
    BuildIdDebugFile,
    /// `.symtab` of the debug file that `.gnu_debuglink` names.
    #[strum(to_string = "debug link")]
    DebugLink,
    /// `.symtab` of the compressed ELF file inside `.gnu_debugdata`.
    #[strum(to_string = "mini debug info")]
    MiniDebugInfo,
    /// The instructions and the unwind tables.
    #[strum(to_string = "code analysis")]
    CodeAnalysis,
    /// The static trace points `python:gc__start` and `python:gc__done`.
    #[strum(to_string = "USDT")]
    Usdt,
}

impl SearchStrategy {
    /// All strategies in the order of use.
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// The result of one search strategy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyOutcome {
    /// The strategy that this is the outcome of.
    pub rung: SearchStrategy,
    /// Whether it found the collector, so that no further strategy was tried.
    pub found: bool,
    /// One phrase, for example `no .symtab`.
    pub detail: String,
}

/// The collector found in one file: its version, functions and memory layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// Path of the file that was examined.
    pub file: PathBuf,
    /// Its build id in hexadecimal, if it has one.
    pub build_id: Option<String>,
    /// Version of CPython that the file contains, as precise as could be determined.
    pub version: PythonVersion,
    /// Whether it is a build without the GIL.
    pub free_threaded: bool,
    /// Kind of collector; follows from version and build.
    pub collector: CollectorKind,
    /// The strategy that found the collector: the last of `tried`.
    pub rung: SearchStrategy,
    /// The results of all strategies up to that one, in order.
    pub tried: Vec<StrategyOutcome>,
    /// Where the probes go: one instruction for each function, clone or static trace point.
    pub points: Vec<ProbePoint>,
    /// Memory layout of the collector's state; `None` if unknown.
    pub layout: Option<CollectorLayout>,
    /// Memory layout of its threads' Python stacks; `None` if unknown.
    pub frames: Option<FrameLayout>,
    /// Layout of types and objects; `None` if unknown, as for builds without the GIL.
    pub objects: Option<ObjectLayout>,
    /// Link-time (ELF virtual) address of `_PyRuntime`.
    pub runtime: u64,
    /// Link-time start address of the file's lowest mapping. In a process, `_PyRuntime` is at the
    /// start of [`crate::maps::MappedFile::lowest`] `- lowest_address + runtime`.
    pub lowest_address: u64,
    /// Warnings for the user: parts that were not found, doubts.
    pub warnings: Vec<String>,
}

/// One instruction to probe. Addresses are link-time (ELF virtual) addresses.
///
/// Entry probe and return probe are placed on the same instruction, at [`ProbePoint::file_offset`]. Just before it
/// runs, the stack pointer is the same as at the function's first byte. So the return address is at `[rsp]`, where the
/// kernel replaces it for a return probe, and all argument registers still contain the arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbePoint {
    /// What the function at this location does.
    pub kind: ProbePointKind,
    /// Where the arguments of a [`ProbePointKind::Collect`] are; empty for all others.
    pub arguments: CollectorArguments,
    /// Name of the function; for code analysis its name in CPython's source.
    pub function: String,
    /// Link-time address of the function's first byte.
    pub address: u64,
    /// Bytes between the function's first byte and the probed instruction.
    pub offset_in_function: u64,
    /// File offset of the probed instruction: what the kernel takes, for both ends.
    pub file_offset: u64,
    /// Address of the probed instruction. When the probe fires, `_PyRuntime` is at
    /// `instruction pointer - probe_address + Resolution::runtime`.
    pub probe_address: u64,
    /// The probed instruction in Intel syntax, for people to read.
    pub instruction: String,
    /// Whether the kernel emulates it (about 0.5 us a hit) rather than single-stepping it (about 16
    /// us).
    pub emulated: bool,
    /// File offset of the semaphore that enables a static trace point.
    pub semaphore_file_offset: Option<u64>,
}
