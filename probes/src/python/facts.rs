//! Facts about a file's interpreter, known before any function is searched for.

use super::debug_offsets::DebugOffsets;
use crate::elf::ElfImage;
use crate::version;
use crate::version::PythonVersion;
use gctrace_event::CollectorKind;

/// The interpreter in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterpreterFacts {
    /// Address of `_PyRuntime`.
    pub(crate) runtime: u64,
    pub(crate) version: PythonVersion,
    pub(crate) free_threaded: bool,
    pub(crate) collector: CollectorKind,
    pub(crate) debug: Option<DebugOffsets>,
}

/// Size of the collector's state of 3.14.0 - 3.14.4, see `layout.rs`.
const INCREMENTAL_STATE: u32 = 240;

impl InterpreterFacts {
    /// Examines the file with `_PyRuntime` at that address. `None` if no version was found.
    pub(crate) fn read(image: &ElfImage<'_>, runtime: u64) -> Option<Self> {
        let debug = DebugOffsets::read(image, runtime);
        let version = version::find(image, debug.map(|debug| debug.version))?;
        let free_threaded = matches!(debug, Some(debug) if debug.free_threaded);
        Some(Self {
            runtime,
            collector: collector(&version, free_threaded, debug.as_ref()),
            version,
            free_threaded,
            debug,
        })
    }
}

fn collector(
    version: &PythonVersion,
    free_threaded: bool,
    debug: Option<&DebugOffsets>,
) -> CollectorKind {
    let incremental = match debug {
        Some(debug) => debug.gc_size == INCREMENTAL_STATE,
        None => matches!(version.micro, Some(..5)),
    };
    match version.minor {
        _ if free_threaded => CollectorKind::FreeThreaded,
        14 if incremental => CollectorKind::Incremental,
        _ => CollectorKind::Generational,
    }
}
