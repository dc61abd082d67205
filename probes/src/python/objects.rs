//! The part of [`gctrace_cpython::offsets`] that the BPF programs need for types and for objects that lead to code.

use super::facts::InterpreterFacts;
use crate::elf::ElfImage;
use gctrace_cpython::offsets::{
    Frames, GENERATOR_FRAME, InterpreterFrame, function_code, generator_code, type_qualname,
};
use gctrace_cpython::{KnownType, ObjectLayout};

/// The layout of a build with the GIL; `None` if unknown.
pub(super) fn layout(image: &ElfImage<'_>, facts: &InterpreterFacts) -> Option<ObjectLayout> {
    if facts.free_threaded {
        return None;
    }
    let minor = facts.version.minor;
    let frames = Frames::new(minor)?;
    let address = |at: usize| {
        let symbol = image.dynamic_symbol(KnownType::ALL.get(at)?.symbol())?;
        Some(symbol.address.wrapping_sub(facts.runtime).cast_signed())
    };
    Some(ObjectLayout {
        types: std::array::from_fn(address),
        type_qualname: type_qualname(minor) as u32,
        function_code: function_code(minor) as u32,
        generator_code: match frames {
            Frames::Objects(_) => generator_code(minor).map(|offset| offset as u32),
            Frames::Interpreter(_) => None,
        },
        generator_frame: match frames {
            Frames::Objects(_) => GENERATOR_FRAME as u32,
            Frames::Interpreter(frame) => frame.in_generator as u32,
        },
        frame_object_frame: match frames {
            Frames::Objects(_) => None,
            Frames::Interpreter(_) => Some(InterpreterFrame::OBJECT_FRAME as u32),
        },
        minor,
    })
}
