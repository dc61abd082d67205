//! Events: markers in streams that can be waited for.

use super::stream::{per_thread, resolve};
use crate::call::exported;
use crate::core::{Operation, OperationKind};
use crate::error::{CudaError, Status};
use crate::simulator::EventRecord;
use crate::{c, clock, handles, simulator, thread};

fn create(target: *mut u64) -> Status {
    let mut state = simulator::simulator()?.state();
    let id = state.fresh_id();
    state.events.insert(id, None);
    c::write(target, handles::EVENT.of(id))
}

fn destroy(handle: u64) -> Status {
    let id = handles::EVENT.id(handle)?;
    let removed = simulator::simulator()?.state().events.remove(&id);
    removed.map(drop).ok_or(CudaError::INVALID_HANDLE)
}

/// The latest record of an event, if there was one.
fn recorded(handle: u64) -> Result<Option<EventRecord>, CudaError> {
    let id = handles::EVENT.id(handle)?;
    let state = simulator::simulator()?.state();
    state.events.get(&id).cloned().ok_or(CudaError::INVALID_HANDLE)
}

fn record(handle: u64, stream: u64) -> Status {
    recorded(handle)?;
    let id = handles::EVENT.id(handle)?;
    let stream = resolve(stream)?;
    let simulator = simulator::simulator()?;
    let mut mark = Operation::mark(OperationKind::Event, 0);
    let correlation = thread::correlation();
    mark.correlation = correlation;
    let completion = simulator.launch(stream, vec![mark])?;
    let record = EventRecord { completion, correlation };
    simulator.state().events.insert(id, Some(record));
    Ok(())
}

fn synchronize(handle: u64) -> Status {
    if let Some(record) = recorded(handle)? {
        simulator::simulator()?.wait(&record.completion);
    }
    Ok(())
}

fn query(handle: u64) -> Status {
    let ended = recorded(handle)?.is_none_or(|record| record.completion.has_ended(clock::now_ns()));
    ended.then_some(()).ok_or(CudaError::NOT_READY)
}

fn elapsed(milliseconds: *mut f32, start: u64, end: u64) -> Status {
    let now_ns = clock::now_ns();
    let timestamp = |handle| -> Result<u64, CudaError> {
        let record = recorded(handle)?.ok_or(CudaError::INVALID_HANDLE)?;
        let end_ns = record.completion.end_ns().filter(|end_ns| *end_ns <= now_ns);
        end_ns.ok_or(CudaError::NOT_READY)
    };
    let (start_ns, end_ns) = (timestamp(start)?, timestamp(end)?);
    let elapsed_ns = i128::from(end_ns) - i128::from(start_ns);
    c::write(milliseconds, (elapsed_ns as f64 / 1e6) as f32)
}

exported! { Driver;
    fn cuEventCreate(event: *mut u64, _flags: u32) [] => create(event);
    fn cuEventDestroy_v2(event: u64) [] => destroy(event);
    fn cuEventRecord(event: u64, stream: u64) [stream: stream, event: event] => record(event, stream);
    fn cuEventRecord_ptsz(event: u64, stream: u64) [stream: stream, event: event] => record(event, per_thread(stream));
    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: u32) [stream: stream, event: event] => record(event, stream);
    fn cuEventSynchronize(event: u64) [event: event] => synchronize(event);
    fn cuEventQuery(event: u64) [event: event] => query(event);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) [] => elapsed(milliseconds, start, end);
}
