//! Offsets of variables and iterators.
//!
//! Sources: the headers and objects of each version (pycore_long.h, rangeobject.c, listobject.c,
//! enumobject.c), compared with running interpreters by `tracer/tests/kernel/alloc.rs`.

use crate::version::PythonVersion;
use gctrace_cpython::offsets::{FrameObject, Frames};

/// Addresses of type objects: in a process or, in [`crate::Allocator::types`], at link time. 0 stands for a type that
/// the file does not export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeAddresses {
    /// Address of `PyLong_Type`, the type of `int`.
    pub integer: u64,
    /// Address of `PyRangeIter_Type`, the type of iterators over a `range`.
    pub range_iterator: u64,
    /// Address of `PyListIter_Type`, the type of iterators over a `list`.
    pub list_iterator: u64,
    /// Address of `PyTupleIter_Type`, the type of iterators over a `tuple`.
    pub tuple_iterator: u64,
    /// Address of `PyEnum_Type`, the type of `enumerate` objects.
    pub enumerate: u64,
}

/// Offsets in bytes, of builds with the GIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressLayout {
    /// In a frame: its variables, followed by its evaluation stack.
    pub(crate) locals: u32,
    /// In a frame: pointer to the dictionary of globals.
    pub(crate) globals: u32,
    /// Integers store their number of digits above three tag bits (3.12 and later).
    pub(crate) tagged_integers: bool,
    /// The type objects.
    pub(crate) types: TypeAddresses,
    /// Address of the count of the youngest generation, if known.
    pub(crate) young_count: Option<u64>,
}

impl ProgressLayout {
    /// The layout of a version with the GIL; `None` if unknown.
    pub fn new(
        version: &PythonVersion,
        types: TypeAddresses,
        young_count: Option<u64>,
    ) -> Option<Self> {
        let (locals, globals) = match Frames::new(version.minor)? {
            Frames::Objects(frame) => (frame.locals, FrameObject::GLOBALS),
            Frames::Interpreter(frame) => (frame.locals, frame.globals),
        };
        if version.major != 3 {
            return None;
        }
        Some(Self {
            locals: locals as u32,
            globals: globals as u32,
            tagged_integers: version.minor >= 12,
            types,
            young_count,
        })
    }

    /// The word of an iterator that counts its steps, and whether it counts down.
    pub(crate) fn counting_word(&self, kind: u64) -> Option<(u32, bool)> {
        let types = &self.types;
        if kind == 0 {
            None
        } else if kind == types.range_iterator {
            // {index, start, step, len} before 3.12; {start, step, len} since, where len counts
            // down.
            Some(if self.tagged_integers { (32, true) } else { (16, false) })
        } else if [types.list_iterator, types.tuple_iterator, types.enumerate].contains(&kind) {
            Some((16, false))
        } else {
            None
        }
    }
}
