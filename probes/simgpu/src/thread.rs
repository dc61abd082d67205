//! This thread: its kernel id, the device of its current context, its open calls. The last two in
//! the driver's copy of this library.

use crate::error::CudaError;
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
    /// The number of open calls, and the correlation id of the outermost.
    static CALLS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// The device of this thread's current context.
pub(crate) fn device() -> Result<u32, CudaError> {
    CURRENT
        .try_with(Cell::get)
        .ok()
        .flatten()
        .ok_or(CudaError::INVALID_CONTEXT)
}

/// Makes a device's context current, or none.
pub(crate) fn set_device(device: Option<u32>) {
    let _ = CURRENT.try_with(|current| current.set(device));
}

/// The correlation id of the calls open on this thread.
pub(crate) fn correlation() -> u32 {
    CALLS
        .try_with(Cell::get)
        .map_or(0, |(_, correlation)| correlation)
}

/// A call starts: returns its correlation id, that of the outermost call; `new`: makes one.
pub(crate) fn begin_call(new: impl FnOnce() -> u32) -> u32 {
    let (depth, id) = CALLS.try_with(Cell::get).unwrap_or((0, 0));
    let id = if depth == 0 { new() } else { id };
    let _ = CALLS.try_with(|calls| calls.set((depth + 1, id)));
    id
}

/// The innermost call returns.
pub(crate) fn end_call() {
    let (depth, id) = CALLS.try_with(Cell::get).unwrap_or((1, 0));
    debug_assert!(depth > 0, "a call ends that has not started");
    let _ = CALLS.try_with(|calls| calls.set((depth.saturating_sub(1), id)));
}

/// The kernel id of this thread.
pub(crate) fn id() -> i32 {
    thread_local! {
        static ID: Cell<i32> = const { Cell::new(0) };
    }
    let known = ID.try_with(Cell::get).unwrap_or(0);
    if known != 0 {
        return known;
    }
    let id = nix::unistd::gettid().as_raw();
    let _ = ID.try_with(|cell| cell.set(id));
    id
}
