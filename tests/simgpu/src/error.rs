//! The result codes of the driver and the runtime that the simulator returns. Both layers share
//! these numbers (`cuda.h` and `driver_types.h` of CUDA 12).

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CudaError(pub(crate) i32);

impl CudaError {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// The driver's name of a code.
    pub(crate) fn name(code: i32) -> Option<&'static std::ffi::CStr> {
        Some(match code {
            0 => c"CUDA_SUCCESS",
            1 => c"CUDA_ERROR_INVALID_VALUE",
            2 => c"CUDA_ERROR_OUT_OF_MEMORY",
            3 => c"CUDA_ERROR_NOT_INITIALIZED",
            101 => c"CUDA_ERROR_INVALID_DEVICE",
            201 => c"CUDA_ERROR_INVALID_CONTEXT",
            400 => c"CUDA_ERROR_INVALID_HANDLE",
            500 => c"CUDA_ERROR_NOT_FOUND",
            600 => c"CUDA_ERROR_NOT_READY",
            999 => c"CUDA_ERROR_UNKNOWN",
            _ => return None,
        })
    }
}

/// Result of a call.
pub(crate) type Status = Result<(), CudaError>;

/// The C result of a call.
pub(crate) fn code(status: Status) -> i32 {
    match status {
        Ok(()) => 0,
        Err(error) => error.0,
    }
}

/// A C result as [`Status`].
pub(crate) fn status(code: i32) -> Status {
    if code == 0 { Ok(()) } else { Err(CudaError(code)) }
}

/// Runs code that must not unwind into C.
pub(crate) fn guarded(body: impl FnOnce() -> Status) -> i32 {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    code(caught.unwrap_or(Err(CudaError::UNKNOWN)))
}
