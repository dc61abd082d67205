//! The CUDA, NCCL and torch libraries: the probed functions and their locations.
//!
//! `cuda/table.rs` lists the functions, `cuda/find.rs` finds the files that may contain them.
//! Nothing here loads a library or calls into one.
//!
//! NVTX ranges cannot be probed. NVTX 3, used by torch and nearly everything else, is header-only: ranges are calls
//! through a pointer that is null unless a tool is injected into the process. So there is no function to probe.

mod find;
mod table;

pub use find::{CudaFile, CudaSearch, before_start, cupti_before_start, mapped};
pub use gctrace_abi::{BytesArgument, CallKind, GridArgument, StreamArgument};
pub use table::{HOST_FUNCTION, ProbedEnds, ProbedFunction, TABLE};

use crate::code::{Flow, decode};
use crate::elf::{ElfImage, ImageData, Machine, NotAnImage, open};
use crate::error::ResolveError;
use crate::placement;
use crate::placement::PreservedState;
use gctrace_event::CudaLayer;
use std::path::Path;

/// Suffixes of function variants for per-thread default streams (`cuda.h`, `cuda_runtime_api.h`).
const PER_THREAD: [&str; 3] = ["", "_ptsz", "_ptds"];

/// A library, identified by its file name, and the layer of its functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CudaLibrary {
    /// `libcuda.so`, `libcudart.so` or `libnccl.so`. cuBLAS, NCCL and others link a copy of the runtime
    /// statically, so only the driver sees their calls.
    Cuda(CudaLayer),
    /// `libc10.so`: torch's allocators.
    TorchMemory,
    /// `libtorch_cpu.so`: torch's automatic differentiation.
    TorchAutograd,
}

impl CudaLibrary {
    /// The library with this file name; `None` for any other file.
    pub fn of_file_name(name: &str) -> Option<Self> {
        // Wheels ship copies with a hash in the name: libcudart-d0da41ae.so.11.0.
        let (stem, _) = name.split_once(".so")?;
        let stem = if let Some((stem, _)) = stem.split_once('-') { stem } else { stem };
        match stem {
            "libcuda" => Some(Self::Cuda(CudaLayer::Driver)),
            "libcudart" => Some(Self::Cuda(CudaLayer::Runtime)),
            "libnccl" => Some(Self::Cuda(CudaLayer::Nccl)),
            "libc10" => Some(Self::TorchMemory),
            "libtorch_cpu" => Some(Self::TorchAutograd),
            _ => None,
        }
    }

    /// Whether functions of a layer are searched for in this library: a simulated GPU is all of CUDA
    /// in one file.
    fn may_contain(self, layer: Self) -> bool {
        self == layer || matches!((self, layer), (Self::Cuda(_), Self::Cuda(_)))
    }
}

/// A function found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaPoint {
    /// Index of the function in [`TABLE`]; its variants for per-thread streams share it.
    pub function: u16,
    /// Name of the exported symbol, with its suffix (`_ptsz`) or mangled argument types.
    pub symbol: String,
    /// File offset of an instruction where the stack pointer and the arguments are still as at the call.
    pub file_offset: u64,
    /// File offsets of the return instructions; only for functions with
    /// [`ProbedEnds::Instructions`].
    pub returns: Vec<u64>,
}

/// The functions that a library contains and lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaPoints {
    /// Functions to probe; of several names for one address the first.
    pub points: Vec<CudaPoint>,
    /// Functions that it should contain but does not (older, newer or stripped library).
    pub absent: Vec<&'static str>,
}

/// Finds the functions of a library for a machine by its exported symbols.
///
/// # Errors
/// If the file cannot be opened. A file that is not an ELF file for that machine has no functions.
pub fn resolve_library(
    file: &Path,
    library: CudaLibrary,
    machine: Machine,
) -> Result<CudaPoints, ResolveError> {
    let cache = open(file)?;
    match ElfImage::parse(ImageData::File(&cache), machine) {
        Ok(image) => Ok(points(&image, library)),
        // A linker script, or a library for another machine.
        Err(NotAnImage::NotElf | NotAnImage::Machine(_) | NotAnImage::Damaged(_)) => {
            Ok(CudaPoints::default())
        }
    }
}

fn points(image: &ElfImage<'_>, library: CudaLibrary) -> CudaPoints {
    let mut found = CudaPoints::default();
    for (index, function) in (0u16..).zip(TABLE) {
        if !library.may_contain(function.layer) {
            continue;
        }
        let before = found.points.len();
        for suffix in function.suffixes() {
            let name = format!("{}{suffix}", function.name);
            let symbols = image.dynamic_symbols_named(&name, function.is_prefix);
            for symbol in symbols {
                if symbol.is_function {
                    let range = symbol.address..symbol.address.saturating_add(symbol.size);
                    found.points.extend(point(image, index, function, symbol.name, &range));
                }
            }
        }
        if found.points.len() == before && function.layer == library {
            found.absent.push(function.name);
        }
    }
    one_probe_each(&mut found.points);
    found
}

impl ProbedFunction {
    fn suffixes(&self) -> &'static [&'static str] {
        match self.layer {
            CudaLibrary::Cuda(CudaLayer::Driver | CudaLayer::Runtime) => &PER_THREAD,
            _ => &PER_THREAD[..1],
        }
    }
}

/// Two names of one function (aliases) share an address: it is probed once.
fn one_probe_each(points: &mut Vec<CudaPoint>) {
    let mut seen = std::collections::HashSet::new();
    points.retain(|point| seen.insert(point.file_offset));
}

fn point(
    image: &ElfImage<'_>,
    index: u16,
    function: &ProbedFunction,
    symbol: &str,
    range: &std::ops::Range<u64>,
) -> Option<CudaPoint> {
    let placement = placement::place(image, range, PreservedState::Arguments)?;
    let returns = match function.ends {
        ProbedEnds::Instructions => return_instructions(image, range),
        ProbedEnds::Entry | ProbedEnds::Both => Vec::new(),
    };
    Some(CudaPoint {
        function: index,
        symbol: symbol.to_owned(),
        file_offset: image.file_offset(placement.address)?,
        returns,
    })
}

/// The return instructions of a function; empty if its end is unknown. A function that leaves by a
/// jump to another one has no return instruction on that path, so such a call has no end.
fn return_instructions(image: &ElfImage<'_>, range: &std::ops::Range<u64>) -> Vec<u64> {
    decode(image, range)
        .iter()
        .filter(|instruction| instruction.flow() == Flow::Return)
        .filter_map(|instruction| image.file_offset(instruction.address()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_names() {
        let of = CudaLibrary::of_file_name;
        assert_eq!(of("libcuda.so.1"), Some(CudaLibrary::Cuda(CudaLayer::Driver)));
        assert_eq!(of("libcuda.so.550.54.15"), Some(CudaLibrary::Cuda(CudaLayer::Driver)));
        assert_eq!(of("libcudart-d0da41ae.so.11.0"), Some(CudaLibrary::Cuda(CudaLayer::Runtime)));
        assert_eq!(of("libcudart.so.12"), Some(CudaLibrary::Cuda(CudaLayer::Runtime)));
        assert_eq!(of("libnccl.so.2"), Some(CudaLibrary::Cuda(CudaLayer::Nccl)));
        assert_eq!(of("libtorch_cpu.so"), Some(CudaLibrary::TorchAutograd));
        assert_eq!(of("libc10.so"), Some(CudaLibrary::TorchMemory));
        assert_eq!(of("libc10_cuda.so"), None);
        assert_eq!(of("libcudadebugger.so.1"), None);
        assert_eq!(of("libcuda.a"), None);
    }

    #[test]
    fn a_file_without_such_functions_has_none() {
        let program = std::env::current_exe().unwrap();
        let found =
            resolve_library(&program, CudaLibrary::Cuda(CudaLayer::Nccl), Machine::HOST).unwrap();
        assert!(found.points.is_empty());
        assert!(found.absent.contains(&"ncclAllReduce"));
    }
}
