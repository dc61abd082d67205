//! Functions that streams have the host run (`cuLaunchHostFunc`).
//!
//! As with the real driver they run on threads that the program did not start, and must not call CUDA.
//! A thread each, which costs some 50 µs but is asleep when the stream arrives there.

use crate::clock;
use crate::core::Rendezvous;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `CUhostFn`.
type HostFunction = extern "C" fn(*mut c_void);

/// A function that was launched: its address and its argument.
#[derive(Debug)]
struct HostCall {
    function: u64,
    data: u64,
    /// 0 until it has returned.
    end_ns: Arc<AtomicU64>,
}

/// What an operation of a stream waits for: the end of a function, whose address must not be 0.
pub(crate) fn call(function: u64, data: u64) -> Box<dyn Rendezvous> {
    Box::new(HostCall { function, data, end_ns: Arc::default() })
}

impl Rendezvous for HostCall {
    fn arrive(&mut self, start_ns: u64) {
        let (function, data, end_ns) = (self.function, self.data, Arc::clone(&self.end_ns));
        let run = move || {
            clock::wait_until(start_ns);
            let address = std::ptr::with_exposed_provenance::<c_void>(function as usize);
            // SAFETY: the caller of cuLaunchHostFunc says that a function of this type is there.
            let function = unsafe { std::mem::transmute::<*const c_void, HostFunction>(address) };
            function(std::ptr::with_exposed_provenance_mut(data as usize));
            end_ns.store(clock::now_ns(), Ordering::Release);
        };
        let thread = std::thread::Builder::new().name("simgpu-host".into());
        if thread.spawn(run).is_err() {
            // Without a thread the stream goes on.
            self.end_ns.store(start_ns.max(1), Ordering::Release);
        }
    }

    fn last_start_ns(&mut self) -> Option<u64> {
        Some(self.end_ns.load(Ordering::Acquire)).filter(|end_ns| *end_ns > 0)
    }

    fn identity(&self) -> (Arc<str>, u64) {
        (Arc::from(""), 0)
    }
}
