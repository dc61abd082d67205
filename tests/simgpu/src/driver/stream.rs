//! Streams: their handles, synchronization, waits between them.

use crate::call::exported;
use crate::core::{Completion, Operation, OperationKind, StreamKind};
use crate::error::{CudaError, Status};
use crate::{c, clock, handles, host_function, simulator, thread};
use std::cell::Cell;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// The handle that a `_ptsz` function uses for the one it is passed.
pub(crate) fn per_thread(stream: u64) -> u64 {
    if stream == 0 { handles::THREAD_STREAM } else { stream }
}

/// The stream that a handle refers to on the current thread.
pub(crate) fn resolve(handle: u64) -> Result<u32, CudaError> {
    let device = thread::device()?;
    match handle {
        0 => Ok(simulator::default_stream(device)),
        handles::THREAD_STREAM => thread_stream(device),
        handle => simulator::simulator()?.stream(handle, device),
    }
}

/// This thread's own default stream of a device, created on first use.
fn thread_stream(device: u32) -> Result<u32, CudaError> {
    thread_local! {
        static STREAM: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
    }
    if let Some((of, stream)) = STREAM.get()
        && of == device
    {
        return Ok(stream);
    }
    let stream = simulator::simulator()?.state().add_stream(device, StreamKind::Blocking);
    STREAM.set(Some((device, stream)));
    Ok(stream)
}

fn create(target: *mut u64, flags: u32) -> Status {
    let device = thread::device()?;
    let kind =
        if flags & NON_BLOCKING != 0 { StreamKind::NonBlocking } else { StreamKind::Blocking };
    let stream = simulator::simulator()?.state().add_stream(device, kind);
    c::write(target, handles::STREAM.of(stream))
}

/// The handle is destroyed at once, the work in the stream continues.
fn destroy(handle: u64) -> Status {
    let stream = handles::STREAM.id(handle)?;
    let mut state = simulator::simulator()?.state();
    let removed = state.streams.remove(&stream);
    state.captures.remove(&stream);
    removed.map(drop).ok_or(CudaError::INVALID_HANDLE)
}

fn last(handle: u64) -> Result<Completion, CudaError> {
    let stream = resolve(handle)?;
    let state = simulator::simulator()?.state();
    state.machine.last(stream).ok_or(CudaError::INVALID_HANDLE)
}

fn synchronize(handle: u64) -> Status {
    let last = last(handle)?;
    simulator::simulator()?.wait(&last);
    Ok(())
}

fn query(handle: u64) -> Status {
    let last = last(handle)?;
    last.has_ended(clock::now_ns()).then_some(()).ok_or(CudaError::NOT_READY)
}

fn wait_event(stream: u64, event: u64) -> Status {
    let stream = resolve(stream)?;
    let simulator = simulator::simulator()?;
    let event = handles::EVENT.id(event)?;
    let recorded = simulator.state().events.get(&event).cloned();
    // Waiting for an event that was never recorded does nothing.
    let Some(recorded) = recorded.ok_or(CudaError::INVALID_HANDLE)? else {
        return Ok(());
    };
    let mut wait = Operation::mark(OperationKind::Wait, 0);
    wait.correlation = thread::correlation();
    wait.after.push(recorded.completion);
    wait.awaited = recorded.correlation;
    simulator.launch(stream, vec![wait]).map(drop)
}

/// Has the host run a function once the stream has come to it, which then waits for its end.
fn launch_host(stream: u64, function: u64, data: u64) -> Status {
    if function == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let stream = resolve(stream)?;
    let mut operation = Operation::mark(OperationKind::HostFunction, 0);
    operation.correlation = thread::correlation();
    operation.meeting = Some(host_function::call(function, data));
    simulator::simulator()?.launch(stream, vec![operation]).map(drop)
}

exported! { Driver;
    fn cuStreamCreate(stream: *mut u64, flags: u32) [] => create(stream, flags);
    fn cuStreamCreateWithPriority(stream: *mut u64, flags: u32, _priority: i32) [] => create(stream, flags);
    fn cuStreamDestroy_v2(stream: u64) [stream: stream] => destroy(stream);
    fn cuStreamSynchronize(stream: u64) [stream: stream] => synchronize(stream);
    fn cuStreamSynchronize_ptsz(stream: u64) [stream: stream] => synchronize(per_thread(stream));
    fn cuStreamQuery(stream: u64) [stream: stream] => query(stream);
    fn cuStreamQuery_ptsz(stream: u64) [stream: stream] => query(per_thread(stream));
    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) [stream: stream, event: event] => wait_event(stream, event);
    fn cuStreamWaitEvent_ptsz(stream: u64, event: u64, _flags: u32) [stream: stream, event: event] =>
        wait_event(per_thread(stream), event);
    fn cuLaunchHostFunc(stream: u64, function: u64, data: u64) [stream: stream] => launch_host(stream, function, data);
    fn cuLaunchHostFunc_ptsz(stream: u64, function: u64, data: u64) [stream: stream] =>
        launch_host(per_thread(stream), function, data);
}
