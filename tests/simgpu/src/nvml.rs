//! libnvidia-ml: answers from the files in which processes record their use of the devices, so it
//! reports the same in any process.
//!
//! Utilization is the share of the last sixth of a second in which a kernel ran (copies do not
//! count; a collective that waits for its peers does), PCIe throughput covers the last 20 ms. Power
//! and clocks are derived from the utilization: made-up figures that vary.

mod device;
mod identity;
mod session;

use crate::error::{CudaError, Status, guarded};

/// `nvmlReturn_t`.
const UNINITIALIZED: CudaError = CudaError(1);
const INVALID_ARGUMENT: CudaError = CudaError(2);
const NOT_SUPPORTED: CudaError = CudaError(3);
const NOT_FOUND: CudaError = CudaError(6);
const INSUFFICIENT_SIZE: CudaError = CudaError(7);
const DRIVER_NOT_LOADED: CudaError = CudaError(9);
const GPU_IS_LOST: CudaError = CudaError(15);

/// Exported functions: `fn name(arguments) => body`.
macro_rules! exported {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) => $body:expr;)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> i32 {
            $crate::nvml::run(move || $body)
        }
    )*};
}
use exported;

fn run(body: impl FnOnce() -> Status) -> i32 {
    guarded(body)
}
