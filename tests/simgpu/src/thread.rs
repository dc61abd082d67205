//! This thread: its kernel id, the device of its current context, its open calls. The last two in
//! the driver's copy of this library.

use crate::error::CudaError;
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
    /// The number of open calls, and the correlation id of the outermost.
    static CALLS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// `CU_STREAM_CAPTURE_MODE_GLOBAL` is the default.
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
}

/// The device of this thread's current context.
pub(crate) fn device() -> Result<u32, CudaError> {
    CURRENT.get().ok_or(CudaError::INVALID_CONTEXT)
}

/// Makes a device's context current, or none.
pub(crate) fn set_device(device: Option<u32>) {
    CURRENT.set(device);
}

/// Sets this thread's mode of captures; returns the one before. No call is refused during a capture here.
pub(crate) fn exchange_capture_mode(mode: i32) -> i32 {
    CAPTURE_MODE.replace(mode)
}

/// The correlation id of the calls open on this thread.
pub(crate) fn correlation() -> u32 {
    CALLS.get().1
}

/// A call starts: returns the outermost call's correlation id; `new`: makes one.
pub(crate) fn begin_call(new: impl FnOnce() -> u32) -> u32 {
    let (depth, id) = CALLS.get();
    let id = if depth == 0 { new() } else { id };
    CALLS.set((depth + 1, id));
    id
}

/// The innermost call returns.
pub(crate) fn end_call() {
    let (depth, id) = CALLS.get();
    debug_assert!(depth > 0, "a call ends that has not started");
    CALLS.set((depth - 1, id));
}

/// The kernel id of this thread.
pub(crate) fn id() -> i32 {
    thread_local! {
        static ID: Cell<i32> = const { Cell::new(0) };
    }
    if ID.get() == 0 {
        ID.set(nix::unistd::gettid().as_raw());
    }
    ID.get()
}
