//! Devices and their attributes.

use super::context;
use crate::call::exported;
use crate::error::{CudaError, Status};
use crate::{c, simulator};
use std::ffi::c_char;

/// Name of the devices.
pub(crate) const NAME: &str = "gctrace simulated GPU";

/// UUID of a device: fixed bytes and its number.
pub(crate) fn uuid(device: u32) -> [u8; 16] {
    let mut uuid = *b"gctrace-simgpu\0\0";
    uuid[15] = device as u8;
    uuid
}

/// PCI bus id of a device.
pub(crate) fn bus_id(device: u32) -> String {
    format!("00000000:{:02X}:00.0", device + 1)
}

exported! { Driver;
    fn cuDeviceGetCount(count: *mut i32) [] => {
        let devices = simulator::simulator()?.settings.devices;
        c::write(count, devices as i32)
    };
    fn cuDeviceGet(device: *mut i32, number: i32) [] => {
        context::ordinal(number)?;
        c::write(device, number)
    };
    fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) [] => {
        context::ordinal(device)?;
        text(name, length, NAME)
    };
    fn cuDeviceGetUuid(target: *mut [u8; 16], device: i32) [] =>
        c::write(target, uuid(context::ordinal(device)?));
    fn cuDeviceGetUuid_v2(target: *mut [u8; 16], device: i32) [] =>
        c::write(target, uuid(context::ordinal(device)?));
    fn cuDeviceGetPCIBusId(name: *mut c_char, length: i32, device: i32) [] =>
        text(name, length, &bus_id(context::ordinal(device)?));
    fn cuDeviceTotalMem_v2(bytes: *mut u64, device: i32) [] => {
        context::ordinal(device)?;
        c::write(bytes, simulator::simulator()?.settings.memory)
    };
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) [] => {
        context::ordinal(device)?;
        c::write(value, self::attribute(attribute))
    };
}

fn text(target: *mut c_char, length: i32, text: &str) -> Status {
    let length = usize::try_from(length).unwrap_or(0);
    if c::write_text(target, length, text) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// `CUdevice_attribute`: of an imaginary device of compute capability 8.0.
fn attribute(number: i32) -> i32 {
    match number {
        1 => 1024,       // MAX_THREADS_PER_BLOCK
        10 => 32,        // WARP_SIZE
        13 => 1_410_000, // CLOCK_RATE, kHz
        16 => 108,       // MULTIPROCESSOR_COUNT
        39 => 2048,      // MAX_THREADS_PER_MULTIPROCESSOR
        75 => 8,         // COMPUTE_CAPABILITY_MAJOR
        _ => 0,
    }
}
