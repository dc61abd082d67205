//! Reads frames of CPython 3.11 and later without creating frame objects.
//!
//! The C API creates a frame object for every frame that is requested, which lives as long as the
//! frame: a program's `gc.get_count()` and its memory would differ from those without gctrace. So
//! frames are read from the interpreter's memory (`struct _PyInterpreterFrame`). The offsets are
//! the version's, and are trusted only if they yield what the C API returns
//! ([`RawFrameLayout::verified`], once, before the user's code).

use super::api::{Object, PythonApi};
use super::object::OwnedRef;
use gctrace_cpython::FrameLayout;
use gctrace_cpython::offsets::{FIRST_TRACEABLE_BEFORE, InterpreterFrame};
use std::ffi::c_void;

/// Where frames are, in an interpreter that was seen to have them there.
#[derive(Clone, Copy)]
pub(super) struct RawFrameLayout(&'static InterpreterFrame);

/// More consecutive hidden frames than are possible: one for each call from C.
const MAX_SHIMS: u32 = 1 << 16;

/// A frame of the calling thread.
#[derive(Clone, Copy)]
pub(super) struct RawFrame {
    layout: RawFrameLayout,
    address: *const c_void,
}

impl RawFrameLayout {
    /// The layout of this interpreter, if it agrees with what the C API reports about the running
    /// frames. `None` in free-threaded builds, where `gc.get_count()` is not per thread.
    pub(super) fn verified(api: &'static PythonApi) -> Option<Self> {
        let minor = api.minor().filter(|_| !api.is_free_threaded())?;
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
            if code.object() != raw.code_address() || last != raw.last_instruction() {
                return None;
            }
            compared += 1;
            // SAFETY: as above; null, without exception, where there is no caller.
            let back = unsafe { get_back(frame.object()) };
            match (back.is_null(), raw.caller()) {
                (true, None) => return (compared > 1).then_some(layout),
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

    /// The line at which a generator, coroutine or asynchronous generator is suspended or has ended;
    /// 0 if unknown. `code`: its code object.
    pub(super) fn line_of(self, api: &PythonApi, generator: Object, code: Object) -> u32 {
        let Some(line) = api.PyCode_Addr2Line else {
            return 0;
        };
        let Some(address) = self.frame_within(generator, code) else {
            return 0;
        };
        let frame = RawFrame { layout: self, address };
        // SAFETY: the lock is held, the code object alive.
        u32::try_from(unsafe { line(code, frame.last_instruction()) }).unwrap_or(0)
    }

    /// The frame in a generator, coroutine or asynchronous generator with this code.
    pub(super) fn frame_within(self, generator: Object, code: Object) -> Option<*const c_void> {
        let frame = generator.wrapping_byte_add(self.0.in_generator as usize).cast_const();
        // Its code shows that it is there.
        (self.code_of(frame) == code).then_some(frame)
    }

    /// The code object of a frame.
    pub(super) fn code_of(self, frame: *const c_void) -> Object {
        // SAFETY: within the frame.
        let code = unsafe { field::<Object>(frame, self.0.code) };
        code.map_addr(|address| address & !(InterpreterFrame::TAG as usize))
    }

    /// Where the variables of a frame begin.
    pub(super) fn variables(self) -> u64 {
        self.0.locals
    }

    /// The calling thread's innermost function frame.
    pub(super) fn innermost(self, api: &PythonApi) -> Option<RawFrame> {
        let get = api.PyThreadState_Get?;
        // SAFETY: the lock is held, so there is a thread state; its offsets were verified.
        let address = unsafe {
            let first = field::<*const c_void>(get(), self.0.in_thread);
            match self.0.in_cframe {
                Some(_) if first.is_null() => first,
                Some(place) => field(first, place),
                None => first,
            }
        };
        self.of_function(address)
    }

    /// This frame, or the nearest caller that is a function frame.
    fn of_function(self, mut address: *const c_void) -> Option<RawFrame> {
        for _ in 0..MAX_SHIMS {
            if address.is_null() {
                return None;
            }
            let frame = RawFrame { layout: self, address };
            if frame.is_shown() {
                return Some(frame);
            }
            // SAFETY: a running frame of this thread; the offset is within it.
            address = unsafe { field(address, self.0.previous) };
        }
        None
    }
}

impl RawFrame {
    /// Whether `sys._getframe()` shows it: it is a function frame that has started
    /// (`_PyFrame_IsIncomplete`). In 3.11 a collection can run while a frame creates its cells.
    fn is_shown(&self) -> bool {
        let layout = self.layout.0;
        // SAFETY: within the frame.
        let owner = unsafe { field::<u8>(self.address, layout.owner) };
        let code = self.code_address();
        if owner >= FrameLayout::OWNER_SHIM || code.is_null() {
            return false;
        }
        // SAFETY: within the code object.
        let first =
            unsafe { field::<i32>(code, layout.code_instructions - FIRST_TRACEABLE_BEFORE) };
        owner == FrameLayout::OWNER_GENERATOR || self.last_instruction() >= first.saturating_mul(2)
    }

    /// Its code object, as a new reference.
    pub(super) fn code(&self, api: &'static PythonApi) -> Option<OwnedRef> {
        let code = self.code_address();
        // SAFETY: a frame references its code; the lock is held.
        (!code.is_null()).then(|| unsafe { OwnedRef::share(api, code) })
    }

    fn code_address(&self) -> Object {
        self.layout.code_of(self.address)
    }

    /// Byte offset of the current instruction.
    pub(super) fn last_instruction(&self) -> i32 {
        let layout = self.layout.0;
        // SAFETY: within the frame.
        let at = unsafe { field::<usize>(self.address, layout.instruction) };
        let first = self.code_address().addr() + layout.code_instructions as usize;
        let offset = at.wrapping_sub(first);
        i32::try_from(offset.cast_signed()).unwrap_or(-1)
    }

    /// The caller's frame.
    pub(super) fn caller(&self) -> Option<Self> {
        // SAFETY: within the frame, which is running.
        let caller = unsafe { field(self.address, self.layout.0.previous) };
        self.layout.of_function(caller)
    }
}

/// A field of a structure.
///
/// # Safety
/// It is there, aligned.
#[inline]
unsafe fn field<T>(structure: *const c_void, offset: u64) -> T {
    // SAFETY: as the caller promises.
    unsafe { structure.byte_add(offset as usize).cast::<T>().read() }
}
