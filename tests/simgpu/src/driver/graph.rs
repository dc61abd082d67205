//! Graphs: kernels captured from one stream, launched together one after another.

use super::launch;
use super::stream::{per_thread, resolve};
use crate::call::exported;
use crate::error::{CudaError, Status};
use crate::{c, handles, simulator, thread};

/// `CUDA_ERROR_ILLEGAL_STATE`: the stream is, or is not, under capture.
const ILLEGAL_STATE: CudaError = CudaError(401);

fn begin(stream: u64) -> Status {
    let stream = resolve(stream)?;
    let mut state = simulator::simulator()?.state();
    if state.captures.contains_key(&stream) {
        return Err(ILLEGAL_STATE);
    }
    state.captures.insert(stream, Vec::new());
    Ok(())
}

fn end(stream: u64, target: *mut u64) -> Status {
    let stream = resolve(stream)?;
    let mut state = simulator::simulator()?.state();
    let captured = state.captures.remove(&stream).ok_or(ILLEGAL_STATE)?;
    let id = state.fresh_id();
    state.graphs.insert(id, captured);
    c::write(target, handles::GRAPH.of(id))
}

/// `CU_STREAM_CAPTURE_STATUS_NONE` or `_ACTIVE`.
fn is_capturing(stream: u64, target: *mut i32) -> Status {
    let stream = resolve(stream)?;
    let capturing = simulator::simulator()?.state().captures.contains_key(&stream);
    c::write(target, i32::from(capturing))
}

fn instantiate(target: *mut u64, graph: u64) -> Status {
    let graph = handles::GRAPH.id(graph)?;
    let mut state = simulator::simulator()?.state();
    let kernels = state.graphs.get(&graph).cloned().ok_or(CudaError::INVALID_HANDLE)?;
    let id = state.fresh_id();
    state.graphs.insert(id, kernels);
    c::write(target, handles::GRAPH.of(id))
}

fn destroy(graph: u64) -> Status {
    let id = handles::GRAPH.id(graph)?;
    let removed = simulator::simulator()?.state().graphs.remove(&id);
    removed.map(drop).ok_or(CudaError::INVALID_HANDLE)
}

fn launch_graph(graph: u64, stream: u64) -> Status {
    let stream = resolve(stream)?;
    let id = handles::GRAPH.id(graph)?;
    let simulator = simulator::simulator()?;
    let mut state = simulator.state();
    let kernels = state.graphs.get(&id).cloned().ok_or(CudaError::INVALID_HANDLE)?;
    let operations = kernels
        .into_iter()
        .map(|kernel| launch::operation(&mut state, kernel))
        .collect::<Result<Vec<_>, _>>()?;
    drop(state);
    if operations.is_empty() {
        return Ok(());
    }
    simulator.launch(stream, operations).map(drop)
}

exported! { Driver;
    fn cuStreamBeginCapture_v2(stream: u64, _mode: i32) [stream: stream] => begin(stream);
    fn cuStreamEndCapture(stream: u64, graph: *mut u64) [stream: stream] => end(stream, graph);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) [] => {
        let before = thread::exchange_capture_mode(c::read(mode.cast_const())?);
        c::write(mode, before)
    };
    fn cuStreamIsCapturing(stream: u64, status: *mut i32) [stream: stream] => is_capturing(stream, status);
    fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, _flags: u64) [] =>
        instantiate(executable, graph);
    fn cuGraphExecDestroy(executable: u64) [] => destroy(executable);
    fn cuGraphDestroy(graph: u64) [] => destroy(graph);
    fn cuGraphLaunch(executable: u64, stream: u64) [stream: stream] => launch_graph(executable, stream);
    fn cuGraphLaunch_ptsz(executable: u64, stream: u64) [stream: stream] =>
        launch_graph(executable, per_thread(stream));
}
