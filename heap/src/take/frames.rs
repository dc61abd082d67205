//! Frames, generators and tracebacks.

use crate::take::image::Image;
use crate::take::layout::{
    FrameObject, Frames, GENERATOR_FRAME, InterpreterFrame, TRACEBACK_FRAME,
    TRACEBACK_LAST_INSTRUCTION, TRACEBACK_LINE, generator_code,
};
use crate::take::types::TypeInfo;
use crate::take::walk::{CodePlace, Walk};
use crate::{HeapEdgeName, NodeIndex};
use gctrace_cpython::{Memory as _, frames};

/// `FRAME_OWNED_BY_FRAME_OBJECT` (pycore_frame.h, pycore_interpframe_structs.h).
const OWNED_BY_OBJECT: u8 = 2;
/// Most variables and values on the stack of one frame.
const MOST_VALUES: u64 = 1 << 20;
/// Low bits of a reference in a frame ([`InterpreterFrame::TAG`]): all set is a number, 1 a reference
/// that is not counted.
const NUMBER: u64 = 3;
const NOT_COUNTED: u64 = 1;

/// A value in a frame: address, and whether the reference count counts it.
pub(crate) fn untagged(word: u64, tagged: bool) -> Option<(u64, bool)> {
    if !tagged {
        return (word != 0).then_some((word, true));
    }
    let address = word & !InterpreterFrame::TAG;
    (address != 0 && word & InterpreterFrame::TAG != NUMBER)
        .then_some((address, word & NOT_COUNTED == 0))
}

/// `f_back`, `f_trace` and, from 3.13 on, `f_extra_locals` and `f_locals_cache` (pycore_frame.h).
const OBJECT_REFERENCES: [(u64, &str, u8); 4] = [
    (InterpreterFrame::OBJECT_BACK, ".f_back", 11),
    (32, ".f_trace", 11),
    (48, ".f_locals", 13),
    (56, ".f_locals", 13),
];
/// References of frame objects before 3.11; the trace function's place differs.
const OLD_REFERENCES: [(u64, &str); 5] = [
    (FrameObject::BACK, ".f_back"),
    (FrameObject::CODE, ".f_code"),
    (FrameObject::BUILTINS, ".f_builtins"),
    (FrameObject::GLOBALS, ".f_globals"),
    (FrameObject::LOCALS, ".f_locals"),
];

impl Walk<'_> {
    pub(crate) fn frame_object(&mut self, node: NodeIndex, address: u64) -> CodePlace {
        match self.layout.frames {
            Frames::Objects(frame) => self.old_frame(node, address, frame),
            Frames::Interpreter(frame) => {
                for (offset, name, since) in OBJECT_REFERENCES {
                    if self.layout.minor >= since {
                        let target = self.image.pointer(address, offset);
                        let name = self.named(name);
                        self.refer(node, target, name);
                    }
                }
                let data = self.image.pointer(address, InterpreterFrame::OBJECT_FRAME);
                let owner = frames::owner(self.image, data, &frame.stack);
                if owner == Some(OWNED_BY_OBJECT) {
                    self.frame_data(node, data, frame);
                }
                frame_place(self, data)
            }
        }
    }

    /// Bytes of the variables and the stack behind a frame or a generator of this code, from 3.11 on: `co_nlocalsplus`
    /// and `co_stacksize`, next to `co_firstlineno` (Include/cpython/code.h).
    pub(crate) fn frame_slots(&mut self, code: u64) -> Option<u64> {
        (self.layout.minor >= 11 && code != 0).then_some(())?;
        let line = code.checked_add(u64::from(self.layout.frame.code_first_line))?;
        let mut number = |at: u64| Some(u64::from(u32::from_le_bytes(self.image.array(at)?)));
        Some((number(line.checked_sub(4)?)? + number(line.checked_add(4)?)?) * 8)
    }

    fn old_frame(&mut self, node: NodeIndex, address: u64, frame: FrameObject) -> CodePlace {
        for (offset, name) in OLD_REFERENCES.into_iter().chain([(frame.trace, ".f_trace")]) {
            let target = self.image.pointer(address, offset);
            let name = self.named(name);
            self.refer(node, target, name);
        }
        let first = address.wrapping_add(frame.locals);
        let values = old_values(self.image, address, frame, first).unwrap_or(0);
        let code = self.image.pointer(address, FrameObject::CODE);
        self.variables(node, code, first, values, false);
        frame_place(self, address)
    }

    /// `_PyFrame_Traverse`: the data of a frame that an object or a generator owns.
    fn frame_data(&mut self, node: NodeIndex, data: u64, frame: InterpreterFrame) {
        let in_code = u64::from(frame.stack.frame_code);
        for (offset, name) in [
            (frame.object, ".gi_frame"),
            (frame.locals_dict, ".f_locals"),
            (frame.function, ".(function)"),
            (in_code, ".f_code"),
        ] {
            let word = self.image.pointer(data, offset);
            // Only these two are tagged.
            let is_tagged = frame.tagged && (offset == frame.function || offset == in_code);
            if let Some((target, counted)) = untagged(word, is_tagged)
                && let Some(to) = self.target(target)
            {
                let name = self.named(name);
                self.builder.edge(node, to, name, counted);
            }
        }
        let first = data.wrapping_add(frame.locals);
        let count = stack_top(self.image, data, frame).unwrap_or(0);
        let code = frames::code(self.image, data, &frame.stack).unwrap_or(0);
        self.variables(node, code, first, count, frame.tagged);
    }

    /// Variables, then values on the stack.
    fn variables(&mut self, node: NodeIndex, code: u64, first: u64, count: u64, tagged: bool) {
        if count == 0 {
            return;
        }
        let code = self.code(code);
        let mut words = Vec::new();
        self.image.words(first, count.min(MOST_VALUES) as usize, &mut words);
        for (index, word) in words.iter().enumerate() {
            let Some((address, counted)) = untagged(*word, tagged) else {
                continue;
            };
            let Some(to) = self.target(address) else {
                continue;
            };
            let name = match code.variable(index) {
                Some(name) => HeapEdgeName::Text(self.builder.text(name)),
                None => HeapEdgeName::Unnamed,
            };
            self.builder.edge(node, to, name, counted);
        }
    }

    pub(crate) fn generator(
        &mut self,
        node: NodeIndex,
        address: u64,
        info: &TypeInfo,
    ) -> CodePlace {
        let Frames::Interpreter(frame) = self.layout.frames else {
            return self.old_generator(node, address, info);
        };
        // Name, exception, origin or finalizer. The bytes after these and before the frame are not
        // all initialized.
        let mut words = Vec::new();
        let count = (frame.previous_exception / 8) as usize;
        self.image.words(address.wrapping_add(16), count, &mut words);
        for (offset, word) in (16_u64..).step_by(8).zip(words) {
            let is_reference = match offset.checked_sub(frame.previous_exception) {
                Some(0) => false,
                Some(8) => info.name != "generator",
                _ => offset != info.weak_list,
            };
            if is_reference && let Some(to) = self.builder.node(word) {
                self.builder.edge(node, to, HeapEdgeName::Unnamed, true);
            }
        }
        let data = address.wrapping_add(frame.in_generator);
        let state = self.image.byte(address.wrapping_add(frame.state));
        if state.is_some_and(|state| state.cast_signed() < frame.cleared) {
            self.frame_data(node, data, frame);
        }
        frame_place(self, data)
    }

    fn old_generator(&mut self, node: NodeIndex, address: u64, info: &TypeInfo) -> CodePlace {
        let mut words = Vec::new();
        self.image.words(
            address.wrapping_add(16),
            (info.basic_size as usize).saturating_sub(16) / 8,
            &mut words,
        );
        // No references: gi_exc_state.previous_item; before 3.10 gi_running, one byte and uninitialized ones
        // (Include/genobject.h).
        let others = match self.layout.minor {
            10 => [80, 80],
            _ => [24, 88],
        };
        for (offset, word) in (16..).step_by(8).zip(words) {
            let is_reference = offset != info.weak_list && !others.contains(&offset);
            if is_reference && let Some(to) = self.builder.node(word) {
                let name = match offset {
                    GENERATOR_FRAME => self.named(".gi_frame"),
                    _ => HeapEdgeName::Unnamed,
                };
                self.builder.edge(node, to, name, true);
            }
        }
        let frame = self.image.pointer(address, GENERATOR_FRAME);
        let code = generator_code(self.layout.minor)
            .and_then(|code| self.image.field(address, code))
            .unwrap_or(0);
        match frame {
            0 => CodePlace { code, ..CodePlace::default() },
            frame => frame_place(self, frame),
        }
    }

    /// The place of a traceback; its references are plain.
    pub(crate) fn traceback(&mut self, address: u64) -> Option<CodePlace> {
        let object = self.image.field(address, TRACEBACK_FRAME)?;
        let frame = match self.layout.frames {
            Frames::Objects(_) => object,
            Frames::Interpreter(_) => self.image.field(object, InterpreterFrame::OBJECT_FRAME)?,
        };
        let code = frames::code(self.image, frame, &self.layout.frame.stack)?;
        let line = self.image.int_field(address, TRACEBACK_LINE)?;
        let line = match u32::try_from(line) {
            Ok(line) => Some(line),
            // Not computed yet (3.12 and later): from `tb_lasti`, in bytes.
            Err(_negative) => {
                let last = self.image.int_field(address, TRACEBACK_LAST_INSTRUCTION)?;
                self.code(code).line(last.into())
            }
        };
        Some(CodePlace { code, line, ..CodePlace::default() })
    }
}

/// Code and line of a frame, as far as they can be read.
pub(crate) fn frame_place(walk: &mut Walk<'_>, frame: u64) -> CodePlace {
    running(walk, frame).unwrap_or_default()
}

fn running(walk: &mut Walk<'_>, frame: u64) -> Option<CodePlace> {
    let layout = &walk.layout.frame.stack;
    let code = frames::code(walk.image, frame, layout)?;
    let offset = frames::instruction(walk.image, frame, code, layout)?;
    Some(CodePlace { code, line: walk.code(code).line(offset), ..CodePlace::default() })
}

/// Number of variables and values on the stack of a frame object before 3.11.
pub(crate) fn old_values(
    image: &mut Image,
    address: u64,
    frame: FrameObject,
    first: u64,
) -> Option<u64> {
    let stack = image.field(address, FrameObject::VALUE_STACK)?;
    let variables = stack.checked_sub(first)? / 8;
    let top = address.checked_add(frame.stack_top)?;
    let depth = if frame.top_is_depth {
        u64::try_from(image.int(top)?).unwrap_or(0)
    } else {
        match image.word(top)? {
            0 => 0,
            top => top.checked_sub(stack)? / 8,
        }
    };
    variables.checked_add(depth)
}

/// Number of variables and values on the stack of a suspended frame; 0 while it is executed.
fn stack_top(image: &mut Image, data: u64, frame: InterpreterFrame) -> Option<u64> {
    let place = data.checked_add(frame.stack_top)?;
    if !frame.tagged {
        return u64::try_from(image.int(place)?).ok();
    }
    let top = image.word(place)?;
    Some(top.checked_sub(data.checked_add(frame.locals)?)? / 8)
}
