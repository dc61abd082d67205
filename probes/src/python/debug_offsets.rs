//! `_Py_DebugOffsets`: the description of its own memory that CPython 3.13 and later put at the
//! start of `_PyRuntime` (Include/internal/pycore_debug_offsets.h, in 3.13 pycore_runtime.h).

use crate::elf::Image;

/// What the structure starts with.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Words to read: past the end of the `gc` group of every version known.
const WORDS: u64 = 100;

/// The parts of `_Py_DebugOffsets` that tell where the collector's state is. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DebugOffsets {
    /// `PY_VERSION_HEX`.
    pub(crate) version: u32,
    pub(crate) free_threaded: bool,
    /// Size of `_PyRuntime`.
    pub(crate) runtime_size: u32,
    pub(crate) finalizing: u32,
    pub(crate) interpreters_head: u32,
    pub(crate) interpreter_id: u32,
    pub(crate) interpreter_next: u32,
    pub(crate) interpreter_gc: u32,
    pub(crate) thread_interpreter: u32,
    /// Size of the collector's state, which tells the collectors of one minor version apart.
    pub(crate) gc_size: u32,
    pub(crate) gc_collecting: u32,
    /// 3.15 and later: size of the statistics and where the pointer to them is.
    pub(crate) generation_stats: Option<(u32, u32)>,
}

/// Where the members lie in one minor version, as indices of 64-bit words, counted in the headers.
struct Positions {
    interpreter_gc: usize,
    thread_interpreter: usize,
    gc: usize,
    generation_stats: Option<usize>,
}

impl Positions {
    fn of(minor: u8) -> Option<Self> {
        let (interpreter_gc, thread_interpreter, gc, generation_stats) = match minor {
            13 => (10, 22, 71, None),
            14 => (11, 25, 81, None),
            15 => (11, 25, 94, Some(97)),
            _ => return None,
        };
        Some(Self {
            interpreter_gc,
            thread_interpreter,
            gc,
            generation_stats,
        })
    }
}

impl DebugOffsets {
    /// Reads them from the file's initial `_PyRuntime`; `None` before 3.13, for unknown versions
    /// and where something in them makes no sense.
    pub(crate) fn read(image: &Image<'_>, runtime: u64) -> Option<Self> {
        Self::parse(image.bytes_at(runtime, WORDS * 8)?)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.starts_with(COOKIE).then_some(())?;
        let word = |index: usize| -> Option<u64> {
            let bytes = bytes.get(index * 8..index * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        // No structure of CPython is larger than 2 MiB (`_PyRuntime` has up to 400 KiB).
        let offset = |index| {
            word(index)
                .filter(|value| *value < 1 << 21)?
                .try_into()
                .ok()
        };
        let version = u32::try_from(word(1)?).ok()?;
        let [3, minor, ..] = version.to_be_bytes() else {
            return None;
        };
        let at = Positions::of(minor)?;
        let stats = |index| Some((offset(index)?, offset(index + 1)?));
        let found = Self {
            version,
            free_threaded: word(2)? != 0,
            runtime_size: offset(3)?,
            finalizing: offset(4)?,
            interpreters_head: offset(5)?,
            interpreter_id: offset(7)?,
            interpreter_next: offset(8)?,
            interpreter_gc: offset(at.interpreter_gc)?,
            thread_interpreter: offset(at.thread_interpreter)?,
            gc_size: offset(at.gc)?,
            gc_collecting: offset(at.gc + 1)?,
            generation_stats: at.generation_stats.and_then(stats),
        };
        let fits = found.gc_collecting < found.gc_size
            && found.interpreter_gc.checked_add(found.gc_size)? <= offset(6)?
            && found.interpreters_head < found.runtime_size;
        fits.then_some(found)
    }
}
