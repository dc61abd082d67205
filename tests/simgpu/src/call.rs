//! The wrapper of every exported call: correlation id, truth log, no unwinding into C.

use crate::error::{CudaError, Status, guarded};
use crate::log::CallLine;
use crate::{clock, cupti, link, simulator, thread};

/// The library that a program calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum CalledLibrary {
    Driver = 0,
    Runtime = 1,
    Nccl = 2,
}

impl CalledLibrary {
    fn name(number: u32) -> &'static str {
        match number {
            0 => "driver",
            1 => "runtime",
            _ => "nccl",
        }
    }
}

/// Contents of a call's line in the truth log, in addition to its timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallArguments {
    /// Handle as the caller passed it.
    pub(crate) stream: u64,
    /// Handle of an event, for CUPTI.
    pub(crate) event: u64,
    pub(crate) bytes: u64,
    pub(crate) grid: [u32; 3],
}

/// A completed call, as passed from another copy of this library to the driver's copy.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CallRecord {
    function: *const u8,
    function_bytes: usize,
    layer: u32,
    correlation: u32,
    start_ns: u64,
    stream: u64,
    event: u64,
    bytes: u64,
    grid: [u32; 3],
    result: i32,
}

/// Runs an exported function. A panic in it becomes 999, `CUDA_ERROR_UNKNOWN`.
pub(crate) fn traced(
    function: &'static str,
    layer: CalledLibrary,
    arguments: CallArguments,
    body: impl FnOnce() -> Status,
) -> i32 {
    let start_ns = clock::now_ns();
    let mut correlation = 0;
    // A forked child has no driver: its calls fail below and are not logged.
    let begun = link::driver::simgpuCallBegin(layer as u32, &raw mut correlation);
    let result = guarded(body);
    if begun.is_ok() {
        let record = CallRecord {
            function: function.as_ptr(),
            function_bytes: function.len(),
            layer: layer as u32,
            correlation,
            start_ns,
            stream: arguments.stream,
            event: arguments.event,
            bytes: arguments.bytes,
            grid: arguments.grid,
            result,
        };
        let _ = link::driver::simgpuCallEnd(&raw const record);
    }
    result
}

/// A call starts on this thread: returns the outermost call's correlation id.
#[unsafe(no_mangle)]
extern "C" fn simgpuCallBegin(_layer: u32, correlation: *mut u32) -> i32 {
    guarded(|| {
        if simulator::is_forked() {
            return Err(CudaError::NOT_INITIALIZED);
        }
        let outermost = || simulator::simulator().map_or(0, simulator::Simulator::next_correlation);
        crate::c::write(correlation, thread::begin_call(outermost))
    })
}

/// The call has returned.
#[unsafe(no_mangle)]
extern "C" fn simgpuCallEnd(record: *const CallRecord) -> i32 {
    guarded(|| {
        thread::end_call();
        // SAFETY: only `traced` calls this, with a record on its stack.
        let record = unsafe { record.as_ref() }.ok_or(CudaError::INVALID_VALUE)?;
        let simulator = simulator::simulator()?;
        let line = line(record);
        cupti::call(&line);
        if let Some(log) = simulator.log() {
            log.call(line);
        }
        Ok(())
    })
}

fn line(record: &CallRecord) -> CallLine {
    // SAFETY: the name comes from a `&'static str` in a library that is never unloaded.
    let function = unsafe {
        let bytes = std::slice::from_raw_parts(record.function, record.function_bytes);
        std::str::from_utf8_unchecked(bytes)
    };
    CallLine {
        function,
        layer: CalledLibrary::name(record.layer),
        tid: thread::id(),
        start_ns: record.start_ns,
        end_ns: clock::now_ns(),
        stream: record.stream,
        event: record.event,
        bytes: record.bytes,
        grid: record.grid,
        device: thread::device().unwrap_or(0),
        correlation: record.correlation,
        result: record.result,
    }
}

/// Exported functions of one layer: `fn name(arguments) [log entry] => body`.
macro_rules! exported {
    ($layer:ident; $(
        $(#[$meta:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) [$($field:ident: $value:expr),*] => $body:expr;
    )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> i32 {
            let arguments = $crate::call::CallArguments {
                $($field: $value,)*
                ..$crate::call::CallArguments::default()
            };
            $crate::call::traced(stringify!($name), $crate::call::CalledLibrary::$layer, arguments, move || $body)
        }
    )*};
}
pub(crate) use exported;
