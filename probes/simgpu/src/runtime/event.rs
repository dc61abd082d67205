//! Events.

use super::with_context;
use crate::call::exported;
use crate::link::driver;

exported! { Runtime;
    fn cudaEventCreate(event: *mut u64) [] => with_context(|| driver::cuEventCreate(event, 0));
    fn cudaEventCreateWithFlags(event: *mut u64, flags: u32) [] =>
        with_context(|| driver::cuEventCreate(event, flags));
    fn cudaEventDestroy(event: u64) [] => with_context(|| driver::cuEventDestroy_v2(event));
    fn cudaEventRecord(event: u64, stream: u64) [stream: stream, event: event] =>
        with_context(|| driver::cuEventRecord(event, stream));
    fn cudaEventRecordWithFlags(event: u64, stream: u64, flags: u32) [stream: stream, event: event] =>
        with_context(|| driver::cuEventRecordWithFlags(event, stream, flags));
    fn cudaEventSynchronize(event: u64) [event: event] => with_context(|| driver::cuEventSynchronize(event));
    fn cudaEventQuery(event: u64) [event: event] => with_context(|| driver::cuEventQuery(event));
    fn cudaEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) [] =>
        with_context(|| driver::cuEventElapsedTime(milliseconds, start, end));
}
