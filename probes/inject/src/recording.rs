//! Keeps faults of this library from the program: broken invariants and panics switch recording off in the process, and
//! gctrace reports it.

use crate::process_ring::switch_off;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, Location};
use std::sync::Mutex;

/// Has panics switch recording off, and print nothing: the program's terminal is not ours. Sets the
/// hook of the standard library copy inside this file.
pub(crate) fn begin() {
    std::panic::set_hook(Box::new(|panic| {
        if let Some(place) = panic.location() {
            end_at(place);
        }
    }));
}

/// Where the first fault was: at most this many bytes of `file:line`.
static FAULT: Mutex<([u8; 100], usize)> = Mutex::new(([0; 100], 0));

/// Where the first fault of this library in the process was, as `file:line`; `None`: there was none.
pub(crate) fn fault() -> Option<String> {
    let fault = FAULT.try_lock().ok()?;
    let place = fault.0.get(..fault.1)?;
    if place.is_empty() {
        return None;
    }
    Some(String::from_utf8_lossy(place).into_owned())
}

/// Like [`switch_off`], allocates nothing and waits for nothing.
fn end_at(place: &Location<'_>) {
    if let Ok(mut fault) = FAULT.try_lock()
        && fault.1 == 0
    {
        let mut rest = &mut fault.0[..];
        // A longer one is cut.
        let _ = write!(rest, "{}:{}", place.file(), place.line());
        fault.1 = 100 - rest.len();
    }
    switch_off(place);
}

/// Runs code that must not unwind into C; `None` if it panicked. Around every function that the
/// program, CPython, CUPTI or the loader calls, and every thread.
#[track_caller]
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    let result = std::panic::catch_unwind(AssertUnwindSafe(work)).ok();
    expected(result)
}

/// A value that an invariant of this library, and nothing else, ensures: without it recording is
/// switched off.
#[track_caller]
#[inline]
pub(crate) fn expected<T>(value: Option<T>) -> Option<T> {
    if value.is_none() {
        end_at(Location::caller());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_ring::is_off;

    #[test]
    fn a_panic_switches_recording_off() {
        assert_eq!((guarded(|| 3), is_off()), (Some(3), false));
        assert_eq!(guarded(|| panic!("expected by the test")), None::<()>);
        assert!(is_off());
    }
}
