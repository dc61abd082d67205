//! Which lines of Python were executing, and the numbers of their frames in the ring.
//!
//! Code objects are told by their addresses, so those that are remembered are held: a bounded number, each in
//! the one place that its address gives it. Nothing of a frame is known but what the API says, except in 3.8,
//! whose API does not say which code a frame runs.

use super::api::Api;
use super::api::Object;
use super::object::Owned;
use crate::process::Ring;
use gctrace_ring::TextId;

/// Places for lines, and for code objects.
const PLACES: usize = 64;

/// Frames of one stack at most, whatever is asked for.
const DEEPEST: u32 = 1024;

/// Offsets in `PyFrameObject` of 3.8 (Include/frameobject.h), which ends with that series.
const BACK_3_8: usize = 24;
const CODE_3_8: usize = 32;

struct Line {
    code: Owned,
    /// Last instruction.
    at: i32,
    frame: u32,
}

struct Code {
    code: Owned,
    function: TextId,
    file: TextId,
}

/// What is remembered of one interpreter's code, for one ring.
pub(crate) struct Frames {
    ring: u32,
    lines: Vec<Option<Line>>,
    codes: Vec<Option<Code>>,
}

impl Frames {
    pub(crate) fn new() -> Self {
        let mut frames = Self {
            ring: 0,
            lines: Vec::new(),
            codes: Vec::new(),
        };
        frames.forget();
        frames
    }

    /// Gives all code objects back. The lock must be held.
    pub(crate) fn forget(&mut self) {
        self.lines.clear();
        self.codes.clear();
        self.lines.resize_with(PLACES, || None);
        self.codes.resize_with(PLACES, || None);
    }

    /// The number of the innermost frame of this thread, its callers left out; 0: there is none. The lock must
    /// be held.
    pub(crate) fn innermost(&mut self, api: &'static Api, ring: &Ring) -> u32 {
        self.belong_to(ring);
        // SAFETY: the lock is held; the frame is borrowed and runs on this thread.
        let frame = unsafe { (api.PyEval_GetFrame)() };
        if frame.is_null() {
            return 0;
        }
        let Some(code) = code_of(api, frame) else {
            return 0;
        };
        let at = position(api, frame);
        let place = ((code.object().addr() / 16) ^ at.cast_unsigned() as usize) % PLACES;
        match self.lines.get(place) {
            Some(Some(line)) if line.code.object() == code.object() && line.at == at => {
                return line.frame;
            }
            _ => {}
        }
        let (function, file) = self.names(api, ring, &code);
        let frame = ring.frame(0, function, file, line_of(api, frame));
        if frame != 0 {
            let previous = self
                .lines
                .get_mut(place)
                .map(|line| line.replace(Line { code, at, frame }));
            drop(previous);
        }
        frame
    }

    /// The same, with up to so many frames in all.
    pub(crate) fn stack(&mut self, api: &'static Api, ring: &Ring, depth: u32) -> u32 {
        self.belong_to(ring);
        let mut inner_first = Vec::new();
        // SAFETY: the lock is held; the frame is borrowed and runs on this thread.
        let mut next = unsafe {
            let frame = (api.PyEval_GetFrame)();
            (!frame.is_null()).then(|| Owned::share(api, frame))
        };
        while let Some(frame) = next.take() {
            if inner_first.len() as u32 >= depth.min(DEEPEST) {
                break;
            }
            let Some(code) = code_of(api, frame.object()) else {
                break;
            };
            inner_first.push((code, line_of(api, frame.object())));
            next = caller_of(api, frame.object());
        }
        inner_first
            .into_iter()
            .rev()
            .fold(0, |parent, (code, line)| {
                let (function, file) = self.names(api, ring, &code);
                ring.frame(parent, function, file, line)
            })
    }

    /// Numbers are of one ring: a forked child has another.
    fn belong_to(&mut self, ring: &Ring) {
        if self.ring != ring.number() {
            self.ring = ring.number();
            self.forget();
        }
    }

    /// Function and file of a code object.
    fn names(&mut self, api: &'static Api, ring: &Ring, code: &Owned) -> (TextId, TextId) {
        let place = code.object().addr() / 16 % PLACES;
        if let Some(Some(known)) = self.codes.get(place)
            && known.code.object() == code.object()
        {
            return (known.function, known.file);
        }
        let text = |name| {
            let text = code.attribute(name);
            ring.text(text.as_ref().and_then(Owned::text).unwrap_or("?"))
        };
        // Qualified names: 3.11.
        let qualified = api.PyFrame_GetLasti.is_some();
        let function = text(if qualified {
            c"co_qualname"
        } else {
            c"co_name"
        });
        let file = text(c"co_filename");
        let kept = Code {
            // SAFETY: alive, the caller holds it.
            code: unsafe { Owned::share(api, code.object()) },
            function,
            file,
        };
        let previous = self.codes.get_mut(place).map(|place| place.replace(kept));
        drop(previous);
        (function, file)
    }
}

/// The last instruction within the code object. (Its line would do as well, but is found by a walk through the
/// code's table of lines.)
fn position(api: &'static Api, frame: Object) -> i32 {
    // SAFETY: the lock is held, the frame alive; the attribute exists in all versions.
    unsafe {
        match api.PyFrame_GetLasti {
            Some(last) => last(frame),
            None => {
                let last = (api.PyObject_GetAttrString)(frame, c"f_lasti".as_ptr());
                Owned::new(api, last).map_or(-1, |last| last.number() as i32)
            }
        }
    }
}

fn line_of(api: &Api, frame: Object) -> u32 {
    // SAFETY: the lock is held, the frame alive.
    let line = unsafe { (api.PyFrame_GetLineNumber)(frame) };
    u32::try_from(line).unwrap_or(0)
}

fn code_of(api: &'static Api, frame: Object) -> Option<Owned> {
    // SAFETY: the lock is held, the frame alive.
    unsafe {
        match api.PyFrame_GetCode {
            Some(code) => Owned::new(api, code(frame)),
            None => field(api, frame, CODE_3_8),
        }
    }
}

fn caller_of(api: &'static Api, frame: Object) -> Option<Owned> {
    // SAFETY: the lock is held, the frame alive; null, without exception, where there is no caller.
    unsafe {
        match api.PyFrame_GetBack {
            Some(back) => {
                let caller = back(frame);
                (!caller.is_null()).then(|| Owned::new(api, caller))?
            }
            None => field(api, frame, BACK_3_8),
        }
    }
}

/// An object that a frame of 3.8 holds.
///
/// # Safety
/// The lock is held, the frame alive.
unsafe fn field(api: &'static Api, frame: Object, offset: usize) -> Option<Owned> {
    if !api.is_series("3.8.") {
        return None;
    }
    // SAFETY: as the caller promises; the offset is within the structure and aligned.
    unsafe {
        let object = frame.byte_add(offset).cast::<Object>().read();
        (!object.is_null()).then(|| Owned::share(api, object))
    }
}
