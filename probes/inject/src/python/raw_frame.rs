//! Reads frames of CPython 3.11 and later without creating frame objects.
//!
//! The C API creates a frame object for every requested frame, and the object lives as long as the frame: a program's
//! `gc.get_count()` and its memory would differ from a run without gctrace. So frames are read from the interpreter's
//! memory (`struct _PyInterpreterFrame`). The offsets are the version's, and are trusted only if they yield what the C
//! API returns ([`RawFrameLayout::verified`], once, before the user's code).

use super::api::{Object, PythonApi};
use super::local_memory::{LocalMemory, address, object};
use super::object::OwnedRef;
use gctrace_cpython::offsets::InterpreterFrame;
use gctrace_cpython::{Memory as _, frames};

/// A line as a ring has it: 0 is unknown. CPython returns a negative line if it knows none; that is unknown too.
pub(super) fn line_number(line: i32) -> u32 {
    u32::try_from(line).unwrap_or(0)
}

/// Where frames are, in an interpreter that was seen to have them there.
#[derive(Clone, Copy)]
pub(super) struct RawFrameLayout(&'static InterpreterFrame);

/// More consecutive hidden frames than are possible: one for each call from C.
const MAX_SHIMS: u32 = 1 << 16;

/// A frame of the calling thread.
#[derive(Clone, Copy)]
pub(super) struct RawFrame {
    layout: RawFrameLayout,
    address: u64,
    /// Its code object, not owned: the frame references it.
    pub(super) code: Object,
    /// Byte offset of the current instruction in its code.
    pub(super) at: i32,
}

impl RawFrameLayout {
    /// The layout of this interpreter, if it agrees with what the C API reports about the running
    /// frames. `None` in free-threaded builds, where `gc.get_count()` is not per thread.
    pub(super) fn verified(api: &'static PythonApi) -> Option<Self> {
        if api.is_free_threaded() {
            return None;
        }
        let minor = api.minor()?;
        let (_, known) = InterpreterFrame::ALL.iter().find(|(version, _)| *version == minor)?;
        let layout = Self(known);
        let (get_code, get_back, get_last) =
            (api.PyFrame_GetCode?, api.PyFrame_GetBack?, api.PyFrame_GetLasti?);
        let mut raw = layout.innermost(api)?;
        // SAFETY: the lock is held; the frame is borrowed and runs on this thread.
        let mut frame = unsafe {
            OwnedRef::share(api, Some((api.PyEval_GetFrame)()).filter(|frame| !frame.is_null())?)
        };
        let mut compared = 0;
        loop {
            // SAFETY: the lock is held, the frame alive.
            let code = unsafe { OwnedRef::new(api, get_code(frame.object())) }?;
            // SAFETY: as above.
            let last = unsafe { get_last(frame.object()) };
            if code.object() != raw.code || last != raw.at {
                return None;
            }
            compared += 1;
            // SAFETY: as above; null, without exception, where there is no caller.
            let back = unsafe { get_back(frame.object()) };
            match (back.is_null(), raw.caller()) {
                (true, None) => return if compared > 1 { Some(layout) } else { None },
                (false, Some(caller)) => {
                    // SAFETY: a new reference.
                    frame = unsafe { OwnedRef::new(api, back) }?;
                    raw = caller;
                }
                (is_outermost, _) => {
                    if !is_outermost {
                        // SAFETY: a new reference, given back.
                        drop(unsafe { OwnedRef::new(api, back) });
                    }
                    return None;
                }
            }
        }
    }

    /// The line where a generator, coroutine or asynchronous generator is suspended or has ended; 0 if unknown. `code`:
    /// its code object.
    pub(super) fn line_of(self, api: &PythonApi, generator: Object, code: Object) -> u32 {
        let Some(line) = api.PyCode_Addr2Line else { return 0 };
        let Some(frame) = self.frame_within(generator, code) else { return 0 };
        let at = frames::instruction(&mut memory(), frame, address(code), &self.0.stack);
        let at = if let Some(Ok(at)) = at.map(i32::try_from) { at } else { -1 };
        // SAFETY: the lock is held, the code object alive.
        line_number(unsafe { line(code, at) })
    }

    /// The frame in a generator, coroutine or asynchronous generator with this code.
    pub(super) fn frame_within(self, generator: Object, code: Object) -> Option<u64> {
        let frame = address(generator) + self.0.in_generator;
        // Its code shows that it is there.
        if self.code_of(frame) == code { Some(frame) } else { None }
    }

    /// The code object of a frame.
    pub(super) fn code_of(self, frame: u64) -> Object {
        object(frames::code(&mut memory(), frame, &self.0.stack).unwrap_or(0))
    }

    /// Where the variables of a frame begin.
    pub(super) fn variables(self) -> u64 {
        self.0.locals
    }

    /// The calling thread's innermost function frame.
    pub(super) fn innermost(self, api: &PythonApi) -> Option<RawFrame> {
        let get = api.PyThreadState_Get?;
        // SAFETY: the lock is held, so there is a thread state.
        let thread = address(unsafe { get() });
        self.of_function(frames::innermost(&mut memory(), thread, &self.0.stack)?)
    }

    /// This frame, or the nearest caller that is a function frame, as `sys._getframe()` shows it. In 3.11 a collection
    /// can run while a frame creates its cells.
    fn of_function(self, mut address: u64) -> Option<RawFrame> {
        for _ in 0..MAX_SHIMS {
            if address == 0 {
                return None;
            }
            if let Some((code, at)) = frames::shown(&mut memory(), address, &self.0.stack)? {
                let (code, at) = (object(code), at.try_into().unwrap_or(-1));
                return Some(RawFrame { layout: self, address, code, at });
            }
            address = memory().field(address, self.0.stack.frame_back)?;
        }
        None
    }
}

impl RawFrame {
    /// The caller's frame.
    pub(super) fn caller(&self) -> Option<Self> {
        let caller = memory().field(self.address, self.layout.0.stack.frame_back)?;
        self.layout.of_function(caller)
    }
}

/// The memory that frames are read from.
#[inline]
fn memory() -> LocalMemory {
    // SAFETY: the lock is held, and a running frame and its code object are alive; their fields are read at the
    // version's offsets, and these were compared with what the C API returns.
    unsafe { LocalMemory::new() }
}
