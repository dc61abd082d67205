//! From `_PyRuntime` to interpreters and thread states. `runtime` is its address.

use crate::memory::Memory;
use crate::{CollectorLayout, FrameLayout, GcBase};

/// Maximum number of interpreters; a longer list changed while it was walked.
const MOST_INTERPRETERS: usize = 10_000;
/// Maximum number of threads, likewise.
const MOST_THREADS: usize = 100_000;

/// One interpreter's state in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundInterpreter {
    /// Address of its `PyInterpreterState`.
    pub address: u64,
    /// 0 is the main interpreter.
    pub id: i64,
    /// Address of the collector's state.
    pub collector: u64,
}

/// The interpreters of a process, newest first.
pub fn interpreters(
    memory: &mut impl Memory,
    layout: &CollectorLayout,
    runtime: u64,
) -> Vec<FoundInterpreter> {
    let mut all = Vec::new();
    let mut next = memory.field(runtime, layout.interpreters_head);
    while let Some(address @ 1..) = next {
        let id = match layout.interpreter_id {
            Some(offset) => memory.field(address, offset).map(u64::cast_signed),
            // 3.8: the main interpreter is the oldest.
            None => Some(0),
        };
        all.extend(id.map(|id| FoundInterpreter {
            address,
            id,
            collector: match layout.gc {
                GcBase::InRuntime(offset) => runtime.wrapping_add(offset.into()),
                GcBase::InInterpreter(offset) => address.wrapping_add(offset.into()),
            },
        }));
        if all.len() >= MOST_INTERPRETERS {
            break;
        }
        next = memory.field(address, layout.interpreter_next);
    }
    if layout.interpreter_id.is_none() {
        let older = all.len();
        for (index, one) in all.iter_mut().enumerate() {
            one.id = (older - 1 - index) as i64;
        }
    }
    all
}

/// The thread state that holds the GIL or, from 3.12 on, the last that held it in the newest
/// interpreter. `None`: the GIL is free, the build is free-threaded, or something on the way cannot be read.
pub fn current_thread(
    memory: &mut impl Memory,
    runtime: u64,
    layout: &CollectorLayout,
    frames: &FrameLayout,
) -> Option<u64> {
    let thread = match frames.runtime_tstate_current {
        Some(offset) => memory.field(runtime, offset)?,
        None => {
            let gil = frames.interpreter_gil?;
            let interpreter = memory.field(runtime, layout.interpreters_head)?;
            let state = memory.field(interpreter, gil.pointer)?;
            memory.field(state, gil.holder)?
        }
    };
    if thread != 0 { Some(thread) } else { None }
}

/// The thread state of the thread with `thread_id` as its `pthread_self`, in any interpreter. `None` if it has none, or
/// something on the way cannot be read.
pub fn thread_by_id(
    memory: &mut impl Memory,
    runtime: u64,
    layout: &CollectorLayout,
    frames: &FrameLayout,
    thread_id: u64,
) -> Option<u64> {
    let mut left = MOST_THREADS;
    for interpreter in interpreters(memory, layout, runtime) {
        let mut thread = memory.field(interpreter.address, frames.interpreter_threads_head)?;
        while thread != 0 {
            if memory.field(thread, frames.tstate_thread_id)? == thread_id {
                return Some(thread);
            }
            thread = memory.field(thread, frames.tstate_next)?;
            left = left.checked_sub(1)?;
        }
    }
    None
}
