//! Kernels: registering them and launching them.

use super::stream::{per_thread, resolve};
use crate::call::exported;
use crate::core::{Operation, OperationKind};
use crate::error::{CudaError, Status, guarded};
use crate::simulator::{KernelLaunch, SimKernel, SimulatorState};
use crate::{c, handles, simulator, thread};
use std::ffi::c_char;
use std::sync::Arc;

/// `CUlaunchConfig` up to the stream: grid, block, shared memory, stream. `cudaLaunchConfig_t` has
/// the same layout.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u64,
    pub(crate) stream: u64,
}

/// The configuration of a launch for the log; zeros for a null pointer.
pub(crate) fn config(address: u64) -> LaunchConfig {
    c::read(pointer(address)).unwrap_or(LaunchConfig {
        grid: [0; 3],
        block: [0; 3],
        shared_bytes: 0,
        stream: 0,
    })
}

fn pointer<T>(address: u64) -> *const T {
    std::ptr::with_exposed_provenance(address as usize)
}

fn register(name: *const c_char, duration_ns: Option<u64>, target: *mut u64) -> Status {
    let simulator = simulator::simulator()?;
    let name = c::text(name)?;
    let carried = name.rsplit_once('@').and_then(|(_, number)| number.parse().ok());
    let duration_ns = duration_ns.or(carried).unwrap_or(simulator.settings.kernel_ns);
    let mut state = simulator.state();
    let id = state.fresh_id();
    // The log is comma-separated.
    let name = Arc::from(name.replace([',', '\n'], ";"));
    state.kernels.insert(id, SimKernel { name, duration_ns, bytes: 0, meeting: None });
    c::write(target, handles::FUNCTION.of(id))
}

fn launch(function: u64, grid: [u32; 3], block: [u32; 3], stream: u64) -> Status {
    let stream = resolve(stream)?;
    let simulator = simulator::simulator()?;
    let function = handles::FUNCTION.id(function)?;
    let launch = KernelLaunch { function, grid, block };
    let mut state = simulator.state();
    if let Some(captured) = state.captures.get_mut(&stream) {
        captured.push(launch);
        return Ok(());
    }
    let operation = operation(&mut state, launch)?;
    drop(state);
    simulator.launch(stream, vec![operation]).map(drop)
}

/// The operation that the stream executes for a launch.
pub(crate) fn operation(
    state: &mut SimulatorState,
    launch: KernelLaunch,
) -> Result<Operation, CudaError> {
    let kernel = state.kernels.get_mut(&launch.function).ok_or(CudaError::INVALID_HANDLE)?;
    let meeting = kernel.meeting.take();
    let kind = if meeting.is_some() { OperationKind::Collective } else { OperationKind::Kernel };
    let mut operation = Operation::new(kind, Arc::clone(&kernel.name), kernel.duration_ns, 0);
    operation.bytes = kernel.bytes;
    operation.correlation = thread::correlation();
    operation.grid = launch.grid;
    operation.block = launch.block;
    operation.meeting = meeting;
    if kind == OperationKind::Collective {
        // Taken by its only launch.
        state.kernels.remove(&launch.function);
    }
    Ok(operation)
}

fn launch_config(address: u64, function: u64, stream: fn(u64) -> u64) -> Status {
    let config: LaunchConfig = c::read(pointer(address))?;
    launch(function, config.grid, config.block, stream(config.stream))
}

exported! { Driver;
    fn cuModuleLoad(module: *mut u64, _path: *const c_char) [] => load_module(module);
    fn cuModuleLoadData(module: *mut u64, _image: u64) [] => load_module(module);
    fn cuModuleUnload(module: u64) [] => known_module(module);
    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) [] => {
        known_module(module)?;
        register(name, None, function)
    };
    fn cuLaunchKernel(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: u64, _parameters: u64, _extra: u64,
    ) [stream: stream, grid: [grid_x, grid_y, grid_z]] =>
        launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream);
    fn cuLaunchKernel_ptsz(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: u64, _parameters: u64, _extra: u64,
    ) [stream: stream, grid: [grid_x, grid_y, grid_z]] =>
        launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], per_thread(stream));
    fn cuLaunchCooperativeKernel(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: u64, _parameters: u64,
    ) [stream: stream, grid: [grid_x, grid_y, grid_z]] =>
        launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream);
    fn cuLaunchCooperativeKernel_ptsz(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: u64, _parameters: u64,
    ) [stream: stream, grid: [grid_x, grid_y, grid_z]] =>
        launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], per_thread(stream));
    fn cuLaunchKernelEx(configuration: u64, function: u64, _parameters: u64, _extra: u64)
        [stream: config(configuration).stream, grid: config(configuration).grid] =>
        launch_config(configuration, function, std::convert::identity);
    fn cuLaunchKernelEx_ptsz(configuration: u64, function: u64, _parameters: u64, _extra: u64)
        [stream: config(configuration).stream, grid: config(configuration).grid] =>
        launch_config(configuration, function, per_thread);
}

/// Registers a kernel with this name and duration; the handle works in all launch functions.
#[unsafe(no_mangle)]
extern "C" fn simgpuKernel(name: *const c_char, nanoseconds: u64, function: *mut u64) -> i32 {
    guarded(|| register(name, Some(nanoseconds), function))
}

/// A module only provides functions.
fn load_module(target: *mut u64) -> Status {
    let id = simulator::simulator()?.state().fresh_id();
    c::write(target, handles::MODULE.of(id))
}

fn known_module(module: u64) -> Status {
    handles::MODULE.id(module).map(drop)
}
