//! From `_PyRuntime` to a thread state.

use crate::memory::{Memory, MemoryError, MemoryReader};
use gctrace_cpython::{CollectorLayout, FrameLayout};

/// Maximum number of interpreters or threads; a longer list changed while it was walked.
const MOST: usize = 100_000;

/// The thread state that holds the GIL or, from 3.12 on, the last that held it in the newest
/// interpreter. `runtime` is the address of `_PyRuntime`. `None`: the GIL is free, or the build is
/// free-threaded.
///
/// # Errors
/// If something on the way cannot be read.
pub fn current_thread<M: Memory + ?Sized>(
    memory: &M,
    runtime: u64,
    layout: &CollectorLayout,
    frames: &FrameLayout,
) -> Result<Option<u64>, MemoryError> {
    let reader = MemoryReader::new(memory);
    if let Some(offset) = frames.runtime_tstate_current {
        return Ok(not_null(reader.word("_PyRuntime", runtime, offset)?));
    }
    let Some(gil) = frames.interpreter_gil else {
        return Ok(None);
    };
    let interpreter = reader.word("_PyRuntime", runtime, layout.interpreters_head)?;
    let state = reader.word("interpreter", interpreter, gil.pointer)?;
    Ok(not_null(reader.word("interpreter lock", state, gil.holder)?))
}

/// The thread state of the thread for which `pthread_self` returns `thread_id`, in any interpreter.
/// `None` if it has none.
///
/// # Errors
/// If something on the way cannot be read.
pub fn thread_by_id<M: Memory + ?Sized>(
    memory: &M,
    runtime: u64,
    layout: &CollectorLayout,
    frames: &FrameLayout,
    thread_id: u64,
) -> Result<Option<u64>, MemoryError> {
    let reader = MemoryReader::new(memory);
    let mut interpreter = reader.word("_PyRuntime", runtime, layout.interpreters_head)?;
    let mut left = MOST;
    while interpreter != 0 {
        let mut thread =
            reader.word("interpreter", interpreter, frames.interpreter_threads_head)?;
        while thread != 0 {
            if reader.word("thread state", thread, frames.tstate_thread_id)? == thread_id {
                return Ok(Some(thread));
            }
            thread = reader.word("thread state", thread, frames.tstate_next)?;
            left -= 1;
            if left == 0 {
                return Ok(None);
            }
        }
        interpreter = reader.word("interpreter", interpreter, layout.interpreter_next)?;
        left -= 1;
        if left == 0 {
            return Ok(None);
        }
    }
    Ok(None)
}

fn not_null(address: u64) -> Option<u64> {
    (address != 0).then_some(address)
}
