//! Reads frames of CPython 3.11 and later without creating frame objects.
//!
//! The C API creates a frame object for every frame that is requested, which lives as long as the
//! frame: a program's `gc.get_count()` and its memory would differ from those without gctrace. So
//! frames are read from the interpreter's memory (`struct _PyInterpreterFrame`). The offsets are
//! the version's, and are trusted only if they yield what the C API returns
//! ([`RawFrameLayout::verified`], once, before the user's code).

use super::api::{Object, PythonApi};
use super::object::OwnedRef;
use std::ffi::c_void;

/// Offsets in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RawFrameLayout {
    /// In the thread state: pointer to the current frame, or to the structure that points to it.
    thread: usize,
    /// Offset in that structure, if there is one (3.11, 3.12).
    place: Option<usize>,
    code: usize,
    previous: usize,
    /// The last instruction, as an address.
    instruction: usize,
    /// The owner of the frame, one byte.
    owner: usize,
    /// In a code object: its first instruction.
    first: usize,
}

/// `FRAME_OWNED_BY_CSTACK` (3.12, 3.13), `FRAME_OWNED_BY_INTERPRETER` (3.14): from here on a frame
/// does not belong to a function.
const SHIM: u8 = 3;

/// More consecutive hidden frames than are possible: one for each call from C.
const MAX_SHIMS: u32 = 1 << 16;

const LAYOUTS: [(&str, RawFrameLayout); 5] = [
    (
        "3.11.",
        RawFrameLayout {
            thread: 56,
            place: Some(8),
            code: 32,
            previous: 48,
            instruction: 56,
            owner: 69,
            first: 184,
        },
    ),
    (
        "3.12.",
        RawFrameLayout {
            thread: 56,
            place: Some(0),
            code: 0,
            previous: 8,
            instruction: 56,
            owner: 70,
            first: 192,
        },
    ),
    (
        "3.13.",
        RawFrameLayout {
            thread: 72,
            place: None,
            code: 0,
            previous: 8,
            instruction: 56,
            owner: 70,
            first: 200,
        },
    ),
    ("3.14.", LATER),
    ("3.15.", LATER),
];

const LATER: RawFrameLayout = RawFrameLayout {
    thread: 72,
    place: None,
    code: 0,
    previous: 8,
    instruction: 56,
    owner: 74,
    first: 208,
};

/// A frame of the calling thread.
#[derive(Clone, Copy)]
pub(super) struct RawFrame {
    layout: &'static RawFrameLayout,
    address: *const c_void,
}

impl RawFrameLayout {
    /// The layout of this interpreter, if it agrees with what the C API reports about the running
    /// frames. `None` in free-threaded builds, where `gc.get_count()` is not per thread.
    pub(super) fn verified(api: &'static PythonApi) -> Option<&'static Self> {
        let version = LAYOUTS.iter().find(|(version, _)| api.is_series(version));
        let layout = version.map(|(_, layout)| layout).filter(|_| !api.is_free_threaded())?;
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
    pub(super) fn line_of(&'static self, api: &PythonApi, generator: Object, code: Object) -> u32 {
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
    pub(super) fn frame_within(&self, generator: Object, code: Object) -> Option<*const c_void> {
        /// Where it can start: `gi_iframe` is at 80 in 3.11, and at 72 in 3.12 and 3.13.
        const PLACES: [usize; 5] = [80, 72, 64, 88, 96];
        let frames = PLACES.map(|place| generator.wrapping_byte_add(place));
        // Its own code is in it, and shows where it is. All places are within a generator.
        let found = frames.into_iter().find(|frame| self.code_of(*frame) == code);
        found.map(<*mut c_void>::cast_const)
    }

    /// The code object of a frame.
    pub(super) fn code_of(&self, frame: *const c_void) -> Object {
        /// Tag bits of a reference (3.14).
        const TAG: usize = 7;
        // SAFETY: within the frame.
        let code = unsafe { frame.byte_add(self.code).cast::<Object>().read() };
        code.map_addr(|address| address & !TAG)
    }

    /// Where the variables of a frame begin (`localsplus`): after the byte with its owner.
    pub(super) fn variables(&self) -> usize {
        (self.owner + 1).next_multiple_of(8)
    }

    /// The calling thread's innermost function frame.
    pub(super) fn innermost(&'static self, api: &PythonApi) -> Option<RawFrame> {
        let get = api.PyThreadState_Get?;
        // SAFETY: the lock is held, so there is a thread state; its offsets were verified.
        let address = unsafe {
            let first = get().byte_add(self.thread).cast::<*const c_void>().read();
            match self.place {
                Some(_) if first.is_null() => first,
                Some(place) => first.byte_add(place).cast::<*const c_void>().read(),
                None => first,
            }
        };
        self.of_function(address)
    }

    /// This frame, or the nearest caller that is a function frame.
    fn of_function(&'static self, mut address: *const c_void) -> Option<RawFrame> {
        for _ in 0..MAX_SHIMS {
            if address.is_null() {
                return None;
            }
            let frame = RawFrame { layout: self, address };
            if frame.is_shown() {
                return Some(frame);
            }
            // SAFETY: a running frame of this thread; the offset is within it.
            address = unsafe { address.byte_add(self.previous).cast::<*const c_void>().read() };
        }
        None
    }
}

impl RawFrame {
    /// Whether `sys._getframe()` shows it: it is a function frame that has started
    /// (`_PyFrame_IsIncomplete`). In 3.11 a collection can run while a frame creates its cells.
    fn is_shown(&self) -> bool {
        /// `FRAME_OWNED_BY_GENERATOR`: never incomplete.
        const GENERATOR: u8 = 1;
        /// `_co_firsttraceable`, in two-byte instructions, is this far before the first
        /// instruction.
        const FIRST_TRACEABLE: usize = 16;
        let layout = self.layout;
        // SAFETY: within the frame.
        let owner = unsafe { self.address.byte_add(layout.owner).cast::<u8>().read() };
        let code = self.code_address();
        if owner >= SHIM || code.is_null() {
            return false;
        }
        // SAFETY: within the code object.
        let first = unsafe {
            let place = layout.first - FIRST_TRACEABLE;
            code.byte_add(place).cast::<i32>().read()
        };
        owner == GENERATOR || self.last_instruction() >= first.saturating_mul(2)
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
        let layout = self.layout;
        // SAFETY: within the frame.
        let at = unsafe { self.address.byte_add(layout.instruction).cast::<usize>().read() };
        let offset = at.wrapping_sub(self.code_address().addr() + layout.first);
        i32::try_from(offset.cast_signed()).unwrap_or(-1)
    }

    /// The caller's frame.
    pub(super) fn caller(&self) -> Option<Self> {
        let layout = self.layout;
        // SAFETY: within the frame, which is running.
        let caller =
            unsafe { self.address.byte_add(layout.previous).cast::<*const c_void>().read() };
        layout.of_function(caller)
    }
}
