//! libnccl: communicators and collectives. Like the real library it launches its kernels through
//! the driver; the communicators themselves live in the driver's copy of this library.

use crate::call::exported;
use crate::collective::Communicator;
use crate::driver::launch::LaunchConfig;
use crate::error::{CudaError, Status, guarded};
use crate::link::driver;
use crate::simulator::SimKernel;
use crate::sync::LockExt;
use crate::{c, collective, simulator};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::{Arc, Mutex};

/// NCCL 2.27.3 in `ncclGetVersion`'s form.
const VERSION: i32 = 22_703;

/// Fixed duration of a collective, in addition to its bytes: typical of a small all-reduce within
/// one host.
const BASE_NS: u64 = 10_000;

/// Maximum time that a rank waits for the others to join.
const JOIN_NS: u64 = 60_000_000_000;

/// `ncclSystemError`.
const SYSTEM_ERROR: CudaError = CudaError(2);
/// `ncclInvalidArgument`.
const INVALID_ARGUMENT: CudaError = CudaError(4);

/// `ncclUniqueId`, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct UniqueId([u8; 128]);

/// The target of an `ncclComm_t`.
#[derive(Clone, Copy, Debug)]
struct CommHandle {
    communicator: u64,
    ranks: i32,
    rank: i32,
    device: i32,
}

static HANDLES: Mutex<BTreeMap<u64, CommHandle>> = Mutex::new(BTreeMap::new());

thread_local! {
    static GROUPS: Cell<u32> = const { Cell::new(0) };
}

fn unique_id(target: *mut UniqueId) -> Status {
    let key = collective::fresh_key()?;
    let mut id = UniqueId([0; 128]);
    id.0[..key.len()].copy_from_slice(key.as_bytes());
    c::write(target, id)
}

fn key(id: &UniqueId) -> Result<CString, CudaError> {
    let digits = id.0.into_iter().take_while(u8::is_ascii_hexdigit);
    CString::new(digits.collect::<Vec<_>>()).map_err(|_| INVALID_ARGUMENT)
}

fn open(target: *mut u64, ranks: i32, id: &UniqueId, rank: i32, wait: bool) -> Status {
    let count = u32::try_from(ranks).map_err(|_| INVALID_ARGUMENT)?;
    let number = u32::try_from(rank).map_err(|_| INVALID_ARGUMENT)?;
    if number >= count {
        return Err(INVALID_ARGUMENT);
    }
    let mut device = 0;
    driver::cuCtxGetDevice(&raw mut device)?;
    let mut communicator = 0;
    let key = key(id)?;
    driver::simgpuCommunicatorOpen(
        key.as_ptr(),
        count,
        number,
        u32::from(wait),
        &raw mut communicator,
    )?;
    HANDLES.hold().insert(communicator, CommHandle { communicator, ranks, rank, device });
    c::write(target, communicator)
}

/// All ranks in this process, one per device, as created by `ncclCommInitAll`.
fn open_all(target: *mut u64, count: i32, devices: *const i32) -> Status {
    let mut id = UniqueId([0; 128]);
    unique_id(&raw mut id)?;
    for rank in 0..count {
        let offset = usize::try_from(rank).map_err(|_| INVALID_ARGUMENT)?;
        let device = if devices.is_null() { rank } else { c::read(devices.wrapping_add(offset))? };
        let mut context = 0;
        driver::cuDevicePrimaryCtxRetain(&raw mut context, device)?;
        driver::cuCtxSetCurrent(context)?;
        open(target.wrapping_add(offset), count, &id, rank, false)?;
    }
    Ok(())
}

fn handle(communicator: u64) -> Result<CommHandle, CudaError> {
    HANDLES.hold().get(&communicator).copied().ok_or(INVALID_ARGUMENT)
}

fn close(communicator: u64) -> Status {
    let removed = HANDLES.hold().remove(&communicator).ok_or(INVALID_ARGUMENT)?;
    driver::simgpuCommunicatorClose(removed.communicator)
}

/// Size of an `ncclDataType_t` in bytes.
fn bytes(count: u64, data_type: i32) -> u64 {
    let size = match data_type {
        0 | 1 | 10 | 11 => 1,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => 2,
    };
    count.saturating_mul(size)
}

/// Launches a collective's kernel.
fn collective(name: &std::ffi::CStr, bytes: u64, communicator: u64, stream: u64) -> Status {
    let communicator = handle(communicator)?.communicator;
    let mut function = 0;
    driver::simgpuCollectiveKernel(communicator, name.as_ptr(), bytes, &raw mut function)?;
    let config = LaunchConfig { grid: [16, 1, 1], block: [512, 1, 1], shared_bytes: 0, stream };
    driver::cuLaunchKernelEx((&raw const config).expose_provenance() as u64, function, 0, 0)
}

exported! { Nccl;
    fn ncclGetVersion(version: *mut i32) [] => c::write(version, VERSION);
    fn ncclGetUniqueId(id: *mut UniqueId) [] => unique_id(id);
    fn ncclCommInitRank(communicator: *mut u64, ranks: i32, id: UniqueId, rank: i32) [] =>
        open(communicator, ranks, &id, rank, GROUPS.get() == 0);
    fn ncclCommInitAll(communicators: *mut u64, count: i32, devices: *const i32) [] =>
        open_all(communicators, count, devices);
    fn ncclCommFinalize(communicator: u64) [] => handle(communicator).map(drop);
    fn ncclCommDestroy(communicator: u64) [] => close(communicator);
    fn ncclCommAbort(communicator: u64) [] => close(communicator);
    fn ncclCommCount(communicator: u64, count: *mut i32) [] => c::write(count, handle(communicator)?.ranks);
    fn ncclCommUserRank(communicator: u64, rank: *mut i32) [] => c::write(rank, handle(communicator)?.rank);
    fn ncclCommCuDevice(communicator: u64, device: *mut i32) [] => c::write(device, handle(communicator)?.device);
    fn ncclGroupStart() [] => { GROUPS.set(GROUPS.get() + 1); Ok(()) };
    fn ncclGroupEnd() [] => { GROUPS.set(GROUPS.get().saturating_sub(1)); Ok(()) };
    fn ncclAllReduce(_send: u64, _receive: u64, count: u64, data_type: i32, _operation: i32, communicator: u64, stream: u64)
        [stream: stream, bytes: bytes(count, data_type)] =>
        collective(c"ncclDevKernel_AllReduce_Sum_f32_RING_LL", bytes(count, data_type), communicator, stream);
    fn ncclReduce(
        _send: u64, _receive: u64, count: u64, data_type: i32, _operation: i32, _root: i32, communicator: u64, stream: u64,
    ) [stream: stream, bytes: bytes(count, data_type)] =>
        collective(c"ncclDevKernel_Reduce_Sum_f32_RING_LL", bytes(count, data_type), communicator, stream);
    fn ncclBroadcast(_send: u64, _receive: u64, count: u64, data_type: i32, _root: i32, communicator: u64, stream: u64)
        [stream: stream, bytes: bytes(count, data_type)] =>
        collective(c"ncclDevKernel_Broadcast_RING_LL", bytes(count, data_type), communicator, stream);
    fn ncclBcast(_buffer: u64, count: u64, data_type: i32, _root: i32, communicator: u64, stream: u64)
        [stream: stream, bytes: bytes(count, data_type)] =>
        collective(c"ncclDevKernel_Broadcast_RING_LL", bytes(count, data_type), communicator, stream);
    fn ncclAllGather(_send: u64, _receive: u64, count: u64, data_type: i32, communicator: u64, stream: u64)
        [stream: stream, bytes: bytes(count, data_type)] =>
        collective(c"ncclDevKernel_AllGather_RING_LL", bytes(count, data_type), communicator, stream);
    fn ncclReduceScatter(
        _send: u64, _receive: u64, count: u64, data_type: i32, _operation: i32, communicator: u64, stream: u64,
    ) [stream: stream, bytes: bytes(count, data_type)] =>
        collective(c"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", bytes(count, data_type), communicator, stream);
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: i32) -> *const c_char {
    match code {
        0 => c"no error",
        2 => c"unhandled system error",
        4 => c"invalid argument",
        _ => c"unhandled cuda error",
    }
    .as_ptr()
}

// The driver's side.

static COMMUNICATORS: Mutex<BTreeMap<u64, Arc<Communicator>>> = Mutex::new(BTreeMap::new());

/// Joins a communicator; with `wait`, returns when all ranks have.
#[unsafe(no_mangle)]
extern "C" fn simgpuCommunicatorOpen(
    key: *const c_char,
    ranks: u32,
    rank: u32,
    wait: u32,
    target: *mut u64,
) -> i32 {
    guarded(|| {
        let simulator = simulator::simulator()?;
        let key = c::text(key)?;
        let opened = Communicator::open(&simulator.settings.shared, &key, ranks, rank);
        let communicator = Arc::new(opened.map_err(|_| SYSTEM_ERROR)?);
        if wait != 0 {
            wait_for_all(&communicator)?;
        }
        let id = u64::from(simulator.state().fresh_id());
        COMMUNICATORS.hold().insert(id, communicator);
        c::write(target, id)
    })
}

fn wait_for_all(communicator: &Communicator) -> Status {
    let deadline_ns = crate::clock::now_ns() + JOIN_NS;
    while !communicator.all_joined() {
        if crate::clock::now_ns() > deadline_ns {
            return Err(SYSTEM_ERROR);
        }
        crate::clock::nap();
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn simgpuCommunicatorClose(communicator: u64) -> i32 {
    guarded(|| {
        let removed = COMMUNICATORS.hold().remove(&communicator).ok_or(INVALID_ARGUMENT)?;
        removed.leave();
        Ok(())
    })
}

/// A kernel for the next collective of a communicator, to be launched once.
#[unsafe(no_mangle)]
extern "C" fn simgpuCollectiveKernel(
    communicator: u64,
    name: *const c_char,
    bytes: u64,
    function: *mut u64,
) -> i32 {
    guarded(|| {
        let simulator = simulator::simulator()?;
        let known = COMMUNICATORS.hold().get(&communicator).cloned();
        let communicator = known.ok_or(INVALID_ARGUMENT)?;
        let mut state = simulator.state();
        let id = state.fresh_id();
        let kernel = SimKernel {
            name: c::text(name)?.into(),
            duration_ns: BASE_NS + bytes / simulator.settings.link_bytes_per_ns,
            bytes,
            meeting: Some(communicator.meeting()),
        };
        state.kernels.insert(id, kernel);
        c::write(function, crate::handles::FUNCTION.of(id))
    })
}
