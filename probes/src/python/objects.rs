//! The layout of types and of objects that lead to code, by version, as data.
//!
//! Sources: the headers of each version (cpython/object.h, cpython/funcobject.h, cpython/genobject.h,
//! frameobject.h, pycore_frame.h), compared with running interpreters (`tests/plain/garbage.rs`).

use super::facts::InterpreterFacts;
use crate::elf::ElfImage;
use gctrace_abi::{KnownType, ObjectLayout};

/// The layout of a build with the GIL; `None` if unknown.
pub(super) fn layout(image: &ElfImage<'_>, facts: &InterpreterFacts) -> Option<ObjectLayout> {
    (!facts.free_threaded).then_some(())?;
    let minor = facts.version.minor;
    // ht_qualname follows ht_name and ht_slots. PyTypeObject is longer in 3.8 (tp_print) and from
    // 3.12 on (tp_watched), PyAsyncMethods from 3.10 on (am_send); 3.15 inserted a slot.
    let type_qualname = match minor {
        8 | 10 | 11 => 864,
        9 => 856,
        12..=14 => 872,
        15 => 880,
        _ => return None,
    };
    let (generator_code, generator_frame) = match minor {
        8 | 9 => (Some(32), 16),
        // without gi_running
        10 => (Some(24), 16),
        11 => (None, 80),
        // without gi_code
        _ => (None, 72),
    };
    let address = |known: KnownType| {
        let symbol = image.dynamic_symbol(known.symbol())?;
        Some(symbol.address.wrapping_sub(facts.runtime).cast_signed())
    };
    Some(ObjectLayout {
        types: KnownType::ALL.map(address),
        type_qualname,
        // After globals, builtins, name and qualified name from 3.10 on.
        function_code: if minor < 10 { 16 } else { 48 },
        generator_code,
        generator_frame,
        frame_object_frame: (minor >= 11).then_some(24),
        has_compact_keys: minor >= 11,
    })
}
