//! Graphs.

use super::with_context;
use crate::call::exported;
use crate::link::driver;

exported! { Runtime;
    fn cudaStreamBeginCapture(stream: u64, mode: i32) [stream: stream] =>
        with_context(|| driver::cuStreamBeginCapture_v2(stream, mode));
    fn cudaStreamEndCapture(stream: u64, graph: *mut u64) [stream: stream] =>
        with_context(|| driver::cuStreamEndCapture(stream, graph));
    fn cudaStreamIsCapturing(stream: u64, status: *mut i32) [stream: stream] =>
        with_context(|| driver::cuStreamIsCapturing(stream, status));
    fn cudaGraphInstantiate(executable: *mut u64, graph: u64, flags: u64) [] =>
        with_context(|| driver::cuGraphInstantiateWithFlags(executable, graph, flags));
    fn cudaGraphExecDestroy(executable: u64) [] => with_context(|| driver::cuGraphExecDestroy(executable));
    fn cudaGraphDestroy(graph: u64) [] => with_context(|| driver::cuGraphDestroy(graph));
    fn cudaGraphLaunch(executable: u64, stream: u64) [stream: stream] =>
        with_context(|| driver::cuGraphLaunch(executable, stream));
    fn cudaGraphLaunch_ptsz(executable: u64, stream: u64) [stream: stream] =>
        with_context(|| driver::cuGraphLaunch_ptsz(executable, stream));
}
