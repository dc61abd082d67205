//! Reads the Python stack, and gives its frames numbers in the ring.
//!
//! Code objects are identified by address, so the remembered ones are referenced: a bounded number, each in the one
//! slot for its address. Frames are read by `raw_frame` if possible, else through the C API. In 3.8 the C API does not
//! expose the code of a frame.

use super::api::{Object, PythonApi};
use super::object::OwnedRef;
use super::raw_frame::{RawFrame, RawFrameLayout, line_number};
use crate::process_ring::PythonRing;
use gctrace_cpython::offsets::FrameObject;
use gctrace_ring::{NO_TEXT, OUTER_FRAMES, TextId};

/// Number of slots for lines, and for code objects.
const PLACES: usize = 64;

/// Maximum number of frames per stack, whatever is requested.
const DEEPEST: u32 = 1024;

struct CachedLine {
    /// Number of the caller's frame; 0: none, or not asked for.
    parent: u32,
    code: OwnedRef,
    /// Last instruction.
    at: i32,
    frame: u32,
}

struct CachedCode {
    code: OwnedRef,
    function: TextId,
    file: TextId,
}

/// Reads the names of code objects, in one interpreter.
pub(crate) struct CodeNames {
    api: &'static PythonApi,
    /// Names of their attributes, interned; `None`: there was no memory for them.
    attributes: Option<[OwnedRef; 2]>,
}

impl CodeNames {
    /// The lock must be held.
    pub(crate) fn new(api: &'static PythonApi) -> Self {
        // Qualified names: 3.11.
        let name = match api.PyFrame_GetLasti {
            Some(_) => c"co_qualname",
            None => c"co_name",
        };
        let attributes = OwnedRef::interned(api, name).zip(OwnedRef::interned(api, c"co_filename"));
        Self { api, attributes: attributes.map(<[OwnedRef; 2]>::from) }
    }

    /// Returns `number` of a code object's function and of its file. The lock must be held, the code object alive.
    pub(crate) fn of<T>(&self, code: Object, number: impl Fn(&str) -> T) -> (T, T) {
        let text = |name: &OwnedRef| {
            // SAFETY: as the caller promises. Code objects have no Python code of their own.
            let text = unsafe {
                OwnedRef::new(self.api, (self.api.PyObject_GetAttr)(code, name.object()))
            };
            number(text.as_ref().and_then(OwnedRef::text).unwrap_or("?"))
        };
        match &self.attributes {
            Some([function, file]) => (text(function), text(file)),
            None => (number("?"), number("?")),
        }
    }
}

/// Cache of one interpreter's code objects, for one ring.
pub(crate) struct FrameCache {
    ring: u32,
    lines: Box<[Option<CachedLine>; PLACES]>,
    codes: Box<[Option<CachedCode>; PLACES]>,
    attributes: CodeNames,
    /// How frames are read without creating frame objects; `None`: through the C API.
    layout: Option<RawFrameLayout>,
    /// Frames of a stack that is read, with their code, the innermost first; else empty.
    walked: Vec<(ThreadFrame, Object)>,
}

impl FrameCache {
    /// An empty cache. The lock must be held.
    pub(crate) fn new(api: &'static PythonApi) -> Self {
        Self {
            layout: RawFrameLayout::verified(api),
            attributes: CodeNames::new(api),
            ring: 0,
            lines: Box::new([const { None }; PLACES]),
            codes: Box::new([const { None }; PLACES]),
            walked: Vec::new(),
        }
    }

    /// Releases all code objects. The lock must be held.
    pub(crate) fn forget(&mut self) {
        self.lines.fill_with(|| None);
        self.codes.fill_with(|| None);
    }

    /// The number of the innermost frame of this thread, without its callers; 0: there is none. The
    /// lock must be held.
    pub(crate) fn innermost(&mut self, api: &'static PythonApi, ring: &PythonRing) -> u32 {
        self.belong_to(ring);
        let Some(frame) = running(api, self.layout) else { return 0 };
        let Some(code) = frame.code(api) else { return 0 };
        self.number(api, ring, 0, &frame, code)
    }

    /// The same, with at most this many frames; [`OUTER_FRAMES`] stands for the others.
    pub(crate) fn stack(&mut self, api: &'static PythonApi, ring: &PythonRing, depth: u32) -> u32 {
        self.belong_to(ring);
        let mut walked = std::mem::take(&mut self.walked);
        let mut next = running(api, self.layout);
        let mut number = 0;
        while let Some(frame) = next.take() {
            if walked.len() as u32 >= depth.min(DEEPEST) {
                number = ring.frame(0, ring.text(OUTER_FRAMES), NO_TEXT, 0);
                break;
            }
            let Some(code) = frame.code(api) else { break };
            next = frame.caller(api);
            walked.push((frame, code));
        }
        for (frame, code) in walked.drain(..).rev() {
            number = self.number(api, ring, number, &frame, code);
        }
        self.walked = walked;
        number
    }

    /// The number of a frame below a caller's. Collections come from few lines: names and lines are read once for
    /// each of these.
    fn number(
        &mut self,
        api: &'static PythonApi,
        ring: &PythonRing,
        parent: u32,
        frame: &ThreadFrame,
        code: Object,
    ) -> u32 {
        let at = frame.last_instruction(api);
        let mixed = (code.addr() / 16) ^ at.cast_unsigned() as usize ^ parent as usize;
        let place = mixed % PLACES;
        if let Some(line) = &self.lines[place]
            && line.code.object() == code
            && (line.parent, line.at) == (parent, at)
        {
            return line.frame;
        }
        let (function, file) = self.names(api, ring, code);
        let number = ring.frame(parent, function, file, frame.line(api, code));
        if number != 0 {
            // SAFETY: alive, its frame runs.
            let code = unsafe { OwnedRef::share(api, code) };
            self.lines[place] = Some(CachedLine { parent, code, at, frame: number });
        }
        number
    }

    /// The number of a code object as a whole, by its first line. The lock must be held.
    pub(crate) fn of_code(
        &mut self,
        api: &'static PythonApi,
        ring: &PythonRing,
        code: &OwnedRef,
    ) -> u32 {
        self.belong_to(ring);
        let (function, file) = self.names(api, ring, code.object());
        let line = || code.attribute(c"co_firstlineno")?.number()?.try_into().ok();
        ring.frame(0, function, file, line().unwrap_or(0))
    }

    /// How frames are read.
    pub(super) fn layout(&self) -> Option<RawFrameLayout> {
        self.layout
    }

    /// Numbers belong to one ring: a forked child has another.
    fn belong_to(&mut self, ring: &PythonRing) {
        if self.ring != ring.number() {
            self.ring = ring.number();
            self.forget();
        }
    }

    /// Text numbers of a code object's function and file. The code is alive.
    fn names(
        &mut self,
        api: &'static PythonApi,
        ring: &PythonRing,
        code: Object,
    ) -> (TextId, TextId) {
        let place = code.addr() / 16 % PLACES;
        if let Some(known) = &self.codes[place]
            && known.code.object() == code
        {
            return (known.function, known.file);
        }
        let (function, file) = self.attributes.of(code, |text| ring.text(text));
        let kept = CachedCode {
            // SAFETY: alive, as the caller says.
            code: unsafe { OwnedRef::share(api, code) },
            function,
            file,
        };
        self.codes[place] = Some(kept);
        (function, file)
    }
}

/// The innermost frame of this thread.
fn running(api: &'static PythonApi, layout: Option<RawFrameLayout>) -> Option<ThreadFrame> {
    if let Some(layout) = layout {
        return layout.innermost(api).map(ThreadFrame::Raw);
    }
    // SAFETY: the lock is held; the frame is borrowed and runs on this thread.
    let frame = unsafe { (api.PyEval_GetFrame)() };
    if frame.is_null() {
        return None;
    }
    // SAFETY: as above.
    Some(ThreadFrame::Object(unsafe { OwnedRef::share(api, frame) }))
}

/// Where a thread executes, read without allocating anything: frames are read raw, or are objects
/// already (before 3.11). The lock must be held.
pub(crate) struct RunningLine {
    code: OwnedRef,
    /// Last instruction of a raw frame, otherwise the line.
    at: i32,
}

impl RunningLine {
    /// The line of the calling thread.
    pub(crate) fn innermost(
        api: &'static PythonApi,
        layout: Option<RawFrameLayout>,
    ) -> Option<Self> {
        let frame = running(api, layout)?;
        let code = frame.code(api)?;
        let at = match &frame {
            ThreadFrame::Raw(frame) => frame.at,
            // SAFETY: the lock is held, the frame alive.
            ThreadFrame::Object(frame) => unsafe { (api.PyFrame_GetLineNumber)(frame.object()) },
        };
        // SAFETY: alive, its frame runs.
        let code = unsafe { OwnedRef::share(api, code) };
        Some(Self { code, at })
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.code.object(), self.at) == (other.code.object(), other.at)
    }

    pub(crate) fn code(&self) -> Object {
        self.code.object()
    }

    /// The line; 0 if the code has none. `layout`: as above.
    pub(crate) fn line(&self, api: &PythonApi, layout: Option<RawFrameLayout>) -> u32 {
        let line = match (layout, api.PyCode_Addr2Line) {
            // SAFETY: the lock is held, the code alive.
            (Some(_), Some(line)) => unsafe { line(self.code.object(), self.at) },
            (Some(_), None) => 0,
            (None, _) => self.at,
        };
        line_number(line)
    }
}

/// A running frame of this thread. The lock must be held.
enum ThreadFrame {
    /// Read through the C API.
    Object(OwnedRef),
    /// Read from the interpreter's memory.
    Raw(RawFrame),
}

impl ThreadFrame {
    /// Its code object: not owned, alive as long as the frame runs.
    fn code(&self, api: &'static PythonApi) -> Option<Object> {
        let code = match (self, api.PyFrame_GetCode) {
            (Self::Raw(frame), _) => return Some(frame.code),
            // SAFETY: the lock is held, the frame alive.
            (Self::Object(frame), Some(code)) => unsafe {
                OwnedRef::new(api, code(frame.object()))
            },
            // SAFETY: as above.
            (Self::Object(frame), None) => unsafe { field(api, frame.object(), FrameObject::CODE) },
        };
        code.map(|code| code.object())
    }

    /// The last instruction within the code object. (Its line would do as well, but finding it
    /// walks the code's line table.)
    fn last_instruction(&self, api: &'static PythonApi) -> i32 {
        match (self, api.PyFrame_GetLasti) {
            (Self::Raw(frame), _) => frame.at,
            // SAFETY: the lock is held, the frame alive.
            (Self::Object(frame), Some(last)) => unsafe { last(frame.object()) },
            // The attribute exists in all versions.
            (Self::Object(frame), None) => frame
                .attribute(c"f_lasti")
                .and_then(|last| last.number()?.try_into().ok())
                .unwrap_or(-1),
        }
    }

    fn line(&self, api: &PythonApi, code: Object) -> u32 {
        // SAFETY: the lock is held, frame and code are alive.
        let line = unsafe {
            match (self, api.PyCode_Addr2Line) {
                (Self::Object(frame), _) => (api.PyFrame_GetLineNumber)(frame.object()),
                (Self::Raw(frame), Some(line)) => line(code, frame.at),
                (Self::Raw(_), None) => 0,
            }
        };
        line_number(line)
    }

    fn caller(&self, api: &'static PythonApi) -> Option<Self> {
        let frame = match self {
            Self::Raw(frame) => return frame.caller().map(Self::Raw),
            Self::Object(frame) => frame.object(),
        };
        // SAFETY: the lock is held, the frame alive; null, without exception, where there is no caller.
        let caller = unsafe {
            match api.PyFrame_GetBack {
                Some(back) => {
                    let caller = back(frame);
                    if caller.is_null() { None } else { OwnedRef::new(api, caller) }
                }
                None => field(api, frame, FrameObject::BACK),
            }
        };
        caller.map(Self::Object)
    }
}

/// An object referenced by a frame of 3.8.
///
/// # Safety
/// The lock is held, the frame alive.
unsafe fn field(api: &'static PythonApi, frame: Object, offset: u64) -> Option<OwnedRef> {
    if api.minor() != Some(8) {
        return None;
    }
    // SAFETY: as the caller promises; the offset is within the structure and aligned.
    unsafe {
        let object = frame.byte_add(offset as usize).cast::<Object>().read();
        if object.is_null() { None } else { Some(OwnedRef::share(api, object)) }
    }
}
