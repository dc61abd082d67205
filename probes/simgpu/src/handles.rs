//! The handles that programs receive: numbers with their kind in the upper bits, never addresses.
//! An invalid one is an error instead of a crash.

const STREAM: u64 = 0x5100_0000_0000;
const EVENT: u64 = 0x5200_0000_0000;
const CONTEXT: u64 = 0x5300_0000_0000;
const FUNCTION: u64 = 0x5400_0000_0000;
const GRAPH: u64 = 0x5500_0000_0000;
const MODULE: u64 = 0x5600_0000_0000;
const KIND: u64 = 0xffff_0000_0000;

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY_STREAM: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
pub(crate) const THREAD_STREAM: u64 = 2;

fn number(handle: u64, kind: u64) -> Option<u32> {
    (handle & KIND == kind)
        .then(|| u32::try_from(handle & !KIND).ok())
        .flatten()
}

pub(crate) fn stream(id: u32) -> u64 {
    STREAM | u64::from(id)
}

pub(crate) fn stream_id(handle: u64) -> Option<u32> {
    number(handle, STREAM)
}

pub(crate) fn event(id: u32) -> u64 {
    EVENT | u64::from(id)
}

pub(crate) fn event_id(handle: u64) -> Option<u32> {
    number(handle, EVENT)
}

pub(crate) fn context(device: u32) -> u64 {
    CONTEXT | u64::from(device)
}

pub(crate) fn context_device(handle: u64) -> Option<u32> {
    number(handle, CONTEXT)
}

pub(crate) fn function(id: u32) -> u64 {
    FUNCTION | u64::from(id)
}

pub(crate) fn function_id(handle: u64) -> Option<u32> {
    number(handle, FUNCTION)
}

pub(crate) fn graph(id: u32) -> u64 {
    GRAPH | u64::from(id)
}

pub(crate) fn graph_id(handle: u64) -> Option<u32> {
    number(handle, GRAPH)
}

pub(crate) fn module(id: u32) -> u64 {
    MODULE | u64::from(id)
}

pub(crate) fn is_module(handle: u64) -> bool {
    number(handle, MODULE).is_some()
}
