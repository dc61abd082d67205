//! The frame layout of a build: its version's, unless `_Py_DebugOffsets` override it.

use crate::elf::Machine;
use crate::python::debug_offsets::DebugOffsets;
use crate::version::PythonVersion;
use gctrace_cpython::FrameLayout;

/// The layout of a version; `None` if unknown.
pub(crate) fn frame_layout(
    version: &PythonVersion,
    debug: Option<&DebugOffsets>,
    machine: Machine,
) -> Option<FrameLayout> {
    let layout = match (version.minor, debug) {
        (13..=15, Some(debug)) => debug.frames?,
        (minor, None) => FrameLayout::of_version(minor)?,
        _ => return None,
    };
    let mutexes = 2 * mutex_growth(machine);
    Some(FrameLayout {
        runtime_tstate_current: layout.runtime_tstate_current.map(|at| at + mutexes),
        ..layout
    })
}

/// How much larger `pthread_mutex_t` is than the 40 bytes of x86-64 (glibc's `__SIZEOF_PTHREAD_MUTEX_T`). The GIL comes
/// before the current thread in `_PyRuntime` and has two mutexes. No other offset of the tables comes after a mutex.
fn mutex_growth(machine: Machine) -> u32 {
    match machine {
        Machine::X86_64 => 0,
        Machine::Aarch64 => 8,
    }
}
