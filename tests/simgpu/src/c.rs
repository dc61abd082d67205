//! Reads and writes through the pointers that C callers pass. Null is an error; other invalid
//! pointers crash here as they would in the real libraries.

use crate::error::{CudaError, Status};
use std::ffi::{CStr, c_char};

/// Writes through an out parameter.
pub(crate) fn write<T>(target: *mut T, value: T) -> Status {
    if target.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: by the C API the caller passes a writable variable of this type; it may be unaligned
    // in memory allocated by a script.
    unsafe { target.write_unaligned(value) };
    Ok(())
}

/// Reads a value at an address.
pub(crate) fn read<T: Copy>(source: *const T) -> Result<T, CudaError> {
    if source.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: as above, readable.
    Ok(unsafe { source.read_unaligned() })
}

/// A C string as text.
pub(crate) fn text(source: *const c_char) -> Result<String, CudaError> {
    if source.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: by the C API it is a C string.
    let text = unsafe { CStr::from_ptr(source) };
    Ok(text.to_string_lossy().into_owned())
}

/// Copies text into a C buffer of `length` bytes, terminated; returns whether it fitted.
pub(crate) fn write_text(target: *mut c_char, length: usize, text: &str) -> bool {
    if target.is_null() || text.len() >= length {
        return false;
    }
    // SAFETY: the caller passes a buffer of `length` bytes, and text and terminator fit into it.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), target, text.len());
        target.add(text.len()).write(0);
    }
    true
}
