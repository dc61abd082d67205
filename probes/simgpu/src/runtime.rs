//! libcudart: each function calls the driver through its exported functions, as the real one does,
//! so that probes on both layers fire.

mod copy;
mod device;
mod event;
mod graph;
mod launch;
mod memory;
mod stream;

use crate::error::{CudaError, Status};
use crate::link::driver;
use std::cell::Cell;

thread_local! {
    /// Whether this thread has a current context.
    static READY: Cell<bool> = const { Cell::new(false) };
    /// The result of `cudaGetLastError`.
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// Runs a call's body with a current context, that of device 0 unless the thread selected another,
/// and remembers its error.
fn with_context(body: impl FnOnce() -> Status) -> Status {
    remembered(ready().and_then(|()| body()))
}

fn remembered(status: Status) -> Status {
    if let Err(CudaError(code)) = status {
        LAST_ERROR.set(code);
    }
    status
}

fn ready() -> Status {
    if READY.get() {
        return Ok(());
    }
    driver::cuInit(0)?;
    let mut context = 0;
    driver::cuCtxGetCurrent(&raw mut context)?;
    if context == 0 {
        use_device(0)?;
    }
    READY.set(true);
    Ok(())
}

/// Makes a device's primary context current.
fn use_device(device: i32) -> Status {
    let mut context = 0;
    driver::cuDevicePrimaryCtxRetain(&raw mut context, device)?;
    driver::cuCtxSetCurrent(context)
}
