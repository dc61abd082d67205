//! Streams.

use super::with_context;
use crate::call::exported;
use crate::link::driver;

exported! { Runtime;
    fn cudaStreamCreate(stream: *mut u64) [] =>
        with_context(|| driver::cuStreamCreateWithPriority(stream, 0, 0));
    fn cudaStreamCreateWithFlags(stream: *mut u64, flags: u32) [] =>
        with_context(|| driver::cuStreamCreateWithPriority(stream, flags, 0));
    fn cudaStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) [] =>
        with_context(|| driver::cuStreamCreateWithPriority(stream, flags, priority));
    fn cudaStreamDestroy(stream: u64) [stream: stream] => with_context(|| driver::cuStreamDestroy_v2(stream));
    fn cudaStreamSynchronize(stream: u64) [stream: stream] =>
        with_context(|| driver::cuStreamSynchronize(stream));
    fn cudaStreamSynchronize_ptsz(stream: u64) [stream: stream] =>
        with_context(|| driver::cuStreamSynchronize_ptsz(stream));
    fn cudaStreamQuery(stream: u64) [stream: stream] => with_context(|| driver::cuStreamQuery(stream));
    fn cudaStreamWaitEvent(stream: u64, event: u64, flags: u32) [stream: stream, event: event] =>
        with_context(|| driver::cuStreamWaitEvent(stream, event, flags));
}
