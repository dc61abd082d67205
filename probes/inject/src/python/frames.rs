//! Which lines of Python were executing, and the numbers of their frames in the ring.
//!
//! Code objects are told by their addresses, so those that are remembered are held: a bounded number, each in
//! the one place that its address gives it. Frames are read by `raw_frame` where that is possible, else by the C
//! API, which does not say in 3.8 which code a frame runs.

use super::api::Object;
use super::api::PythonApi;
use super::object::OwnedRef;
use super::raw_frame::RawFrame;
use super::raw_frame::RawFrameLayout;
use crate::process_ring::ProcessRing;
use gctrace_ring::TextId;

/// Places for lines, and for code objects.
const PLACES: usize = 64;

/// Frames of one stack at most, whatever is asked for.
const DEEPEST: u32 = 1024;

/// Offsets in `PyFrameObject` of 3.8 (Include/frameobject.h), which ends with that series.
const BACK_3_8: usize = 24;
const CODE_3_8: usize = 32;

struct CachedLine {
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

/// What is remembered of one interpreter's code, for one ring.
pub(crate) struct FrameCache {
    ring: u32,
    lines: Vec<Option<CachedLine>>,
    codes: Vec<Option<CachedCode>>,
    /// How frames are read without making objects of them; `None`: the C API is asked.
    layout: Option<&'static RawFrameLayout>,
}

impl FrameCache {
    /// Nothing is remembered. The lock must be held.
    pub(crate) fn new(api: &'static PythonApi) -> Self {
        let mut frames = Self {
            layout: RawFrameLayout::verified(api),
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
    pub(crate) fn innermost(&mut self, api: &'static PythonApi, ring: &ProcessRing) -> u32 {
        self.belong_to(ring);
        let Some(frame) = self.running(api) else {
            return 0;
        };
        let Some(code) = frame.code(api) else {
            return 0;
        };
        let at = frame.last_instruction(api);
        let place = ((code.object().addr() / 16) ^ at.cast_unsigned() as usize) % PLACES;
        match self.lines.get(place) {
            Some(Some(line)) if line.code.object() == code.object() && line.at == at => {
                return line.frame;
            }
            _ => {}
        }
        let (function, file) = self.names(api, ring, &code);
        let frame = ring.frame(0, function, file, frame.line(api, &code));
        if frame != 0 {
            let previous = self
                .lines
                .get_mut(place)
                .map(|line| line.replace(CachedLine { code, at, frame }));
            drop(previous);
        }
        frame
    }

    /// The same, with up to so many frames in all.
    pub(crate) fn stack(&mut self, api: &'static PythonApi, ring: &ProcessRing, depth: u32) -> u32 {
        self.belong_to(ring);
        let mut inner_first = Vec::new();
        let mut next = self.running(api);
        while let Some(frame) = next.take() {
            if inner_first.len() as u32 >= depth.min(DEEPEST) {
                break;
            }
            let Some(code) = frame.code(api) else {
                break;
            };
            let line = frame.line(api, &code);
            inner_first.push((code, line));
            next = frame.caller(api);
        }
        inner_first
            .into_iter()
            .rev()
            .fold(0, |parent, (code, line)| {
                let (function, file) = self.names(api, ring, &code);
                ring.frame(parent, function, file, line)
            })
    }

    /// The innermost frame of this thread.
    fn running(&self, api: &'static PythonApi) -> Option<ThreadFrame> {
        if let Some(layout) = self.layout {
            return layout.innermost(api).map(ThreadFrame::Raw);
        }
        // SAFETY: the lock is held; the frame is borrowed and runs on this thread.
        let frame = unsafe { (api.PyEval_GetFrame)() };
        // SAFETY: as above.
        (!frame.is_null()).then(|| ThreadFrame::Object(unsafe { OwnedRef::share(api, frame) }))
    }

    /// Numbers are of one ring: a forked child has another.
    fn belong_to(&mut self, ring: &ProcessRing) {
        if self.ring != ring.number() {
            self.ring = ring.number();
            self.forget();
        }
    }

    /// Function and file of a code object.
    fn names(
        &mut self,
        api: &'static PythonApi,
        ring: &ProcessRing,
        code: &OwnedRef,
    ) -> (TextId, TextId) {
        let place = code.object().addr() / 16 % PLACES;
        if let Some(Some(known)) = self.codes.get(place)
            && known.code.object() == code.object()
        {
            return (known.function, known.file);
        }
        let text = |name| {
            let text = code.attribute(name);
            ring.text(text.as_ref().and_then(OwnedRef::text).unwrap_or("?"))
        };
        // Qualified names: 3.11.
        let qualified = api.PyFrame_GetLasti.is_some();
        let function = text(if qualified {
            c"co_qualname"
        } else {
            c"co_name"
        });
        let file = text(c"co_filename");
        let kept = CachedCode {
            // SAFETY: alive, the caller holds it.
            code: unsafe { OwnedRef::share(api, code.object()) },
            function,
            file,
        };
        let previous = self.codes.get_mut(place).map(|place| place.replace(kept));
        drop(previous);
        (function, file)
    }
}

/// A frame of this thread, which runs. The lock must be held.
enum ThreadFrame {
    /// By the C API.
    Object(OwnedRef),
    /// Where the interpreter keeps it.
    Raw(RawFrame),
}

impl ThreadFrame {
    fn code(&self, api: &'static PythonApi) -> Option<OwnedRef> {
        match (self, api.PyFrame_GetCode) {
            (Self::Raw(frame), _) => frame.code(api),
            // SAFETY: the lock is held, the frame alive.
            (Self::Object(frame), Some(code)) => unsafe {
                OwnedRef::new(api, code(frame.object()))
            },
            // SAFETY: as above.
            (Self::Object(frame), None) => unsafe { field(api, frame.object(), CODE_3_8) },
        }
    }

    /// The last instruction within the code object. (Its line would do as well, but is found by a walk through the
    /// code's table of lines.)
    fn last_instruction(&self, api: &'static PythonApi) -> i32 {
        match (self, api.PyFrame_GetLasti) {
            (Self::Raw(frame), _) => frame.last_instruction(),
            // SAFETY: the lock is held, the frame alive.
            (Self::Object(frame), Some(last)) => unsafe { last(frame.object()) },
            // The attribute exists in all versions.
            (Self::Object(frame), None) => frame
                .attribute(c"f_lasti")
                .map_or(-1, |last| last.number() as i32),
        }
    }

    fn line(&self, api: &PythonApi, code: &OwnedRef) -> u32 {
        // SAFETY: the lock is held, frame and code are alive.
        let line = unsafe {
            match (self, api.PyCode_Addr2Line) {
                (Self::Object(frame), _) => (api.PyFrame_GetLineNumber)(frame.object()),
                (Self::Raw(frame), Some(line)) => line(code.object(), frame.last_instruction()),
                (Self::Raw(_), None) => 0,
            }
        };
        u32::try_from(line).unwrap_or(0)
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
                    (!caller.is_null()).then(|| OwnedRef::new(api, caller))?
                }
                None => field(api, frame, BACK_3_8),
            }
        };
        caller.map(Self::Object)
    }
}

/// An object that a frame of 3.8 holds.
///
/// # Safety
/// The lock is held, the frame alive.
unsafe fn field(api: &'static PythonApi, frame: Object, offset: usize) -> Option<OwnedRef> {
    if !api.is_series("3.8.") {
        return None;
    }
    // SAFETY: as the caller promises; the offset is within the structure and aligned.
    unsafe {
        let object = frame.byte_add(offset).cast::<Object>().read();
        (!object.is_null()).then(|| OwnedRef::share(api, object))
    }
}
