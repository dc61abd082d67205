//! The devices and their identities.

use super::session::{current, device, device_handle, text};
use super::{NOT_FOUND, NOT_SUPPORTED, exported};
use crate::error::Status;
use crate::{c, driver};
use std::ffi::c_char;

/// `nvmlPciInfo_t`.
#[repr(C)]
struct PciInfo {
    legacy_bus_id: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    bus_id: [u8; 32],
}

/// `GPU-` and the UUID in its usual form.
fn uuid_text(device: u32) -> String {
    let hex: String = driver::uuid(device).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[0..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
}

fn bytes<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    // Terminated: no text here fills it.
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

fn pci_info(handle: u64, target: *mut PciInfo) -> Status {
    let (device, _) = device(handle)?;
    let bus_id = driver::bus_id(device);
    let info = PciInfo {
        legacy_bus_id: bytes(&bus_id[4..]),
        domain: 0,
        bus: device + 1,
        device: 0,
        device_id: 0x0000_10de,
        subsystem_id: 0,
        bus_id: bytes(&bus_id),
    };
    c::write(target, info)
}

/// The handle of the first device for which some form of its name equals the given one.
fn find(name: *const c_char, target: *mut u64, form: fn(u32) -> String) -> Status {
    let name = c::text(name)?;
    let devices = current()?.devices;
    let found = (0..devices).find(|device| form(*device).eq_ignore_ascii_case(&name));
    c::write(target, device_handle(found.ok_or(NOT_FOUND)?))
}

fn by_index(index: u32, target: *mut u64) -> Status {
    device(device_handle(index))?;
    c::write(target, device_handle(index))
}

exported! {
    fn nvmlDeviceGetCount(count: *mut u32) => c::write(count, current()?.devices);
    fn nvmlDeviceGetCount_v2(count: *mut u32) => c::write(count, current()?.devices);
    fn nvmlDeviceGetHandleByIndex(index: u32, handle: *mut u64) => by_index(index, handle);
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, handle: *mut u64) => by_index(index, handle);
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, handle: *mut u64) => find(uuid, handle, uuid_text);
    fn nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char, handle: *mut u64) =>
        find(bus_id, handle, driver::bus_id);
    fn nvmlDeviceGetIndex(handle: u64, index: *mut u32) => c::write(index, device(handle)?.0);
    fn nvmlDeviceGetMinorNumber(handle: u64, number: *mut u32) => c::write(number, device(handle)?.0);
    fn nvmlDeviceGetName(handle: u64, name: *mut c_char, length: u32) => {
        device(handle)?;
        text(name, length, driver::NAME)
    };
    fn nvmlDeviceGetUUID(handle: u64, name: *mut c_char, length: u32) =>
        text(name, length, &uuid_text(device(handle)?.0));
    fn nvmlDeviceGetPciInfo_v3(handle: u64, info: *mut PciInfo) => pci_info(handle, info);
    // `nvmlDeviceArchitecture_t` of Ampere.
    fn nvmlDeviceGetArchitecture(handle: u64, architecture: *mut u32) => {
        device(handle)?;
        c::write(architecture, 7)
    };
    fn nvmlDeviceGetCudaComputeCapability(handle: u64, major: *mut i32, minor: *mut i32) => {
        device(handle)?;
        c::write(major, 8)?;
        c::write(minor, 0)
    };
    fn nvmlDeviceGetMigMode(handle: u64, _current: *mut u32, _pending: *mut u32) =>
        device(handle).and(Err(NOT_SUPPORTED));
    fn nvmlDeviceGetMaxMigDeviceCount(handle: u64, count: *mut u32) => {
        device(handle)?;
        c::write(count, 0)
    };
    fn nvmlDeviceGetMigDeviceHandleByIndex(handle: u64, _index: u32, _mig: *mut u64) =>
        device(handle).and(Err(NOT_FOUND));
    fn nvmlDeviceIsMigDeviceHandle(handle: u64, is_mig: *mut u32) => {
        device(handle)?;
        c::write(is_mig, 0)
    };
}
