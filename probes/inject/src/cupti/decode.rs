//! Decodes the bytes of activity records, using the prefix that all versions share (11.8 - 13.5, as
//! compiled against their headers: later ones only append). Pure: follows no pointer, calls
//! nothing.

use gctrace_ring::{
    ApiLayer, GpuMessage, GpuRecord, NO_TEXT, RingCall, RingGpuOp, RingSync, TimeInterval,
};

/// `CUpti_ActivityKind`, in the order in which gctrace enables them. Kernels as 10 (concurrent): 3 would serialize
/// them.
pub(super) const KINDS: [(u32, &str); 10] = [
    (KERNEL, "kernels"),
    (MEMCPY, "copies"),
    (PEER_MEMCPY, "copies between devices"),
    (MEMSET, "fills"),
    (SYNCHRONIZATION, "synchronizations"),
    (EVENT, "events"),
    (RUNTIME, "runtime calls"),
    (DRIVER, "driver calls"),
    (OVERHEAD, "overhead"),
    (HOST_LAUNCH, "host functions"),
];

const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
const DRIVER: u32 = 4;
pub(super) const RUNTIME: u32 = 5;
const KERNEL: u32 = 10;
const OVERHEAD: u32 = 17;
const PEER_MEMCPY: u32 = 22;
const EVENT: u32 = 36;
const SYNCHRONIZATION: u32 = 38;
/// `CUPTI_ACTIVITY_KIND_HOST_LAUNCH`: functions of `cuLaunchHostFunc`.
const HOST_LAUNCH: u32 = 58;
/// `CUPTI_API_VERSION` of CUDA 13.1, the first with them.
const HOST_LAUNCH_SINCE: u32 = 130_100;

/// Whether records of a kind are known to CUPTI of this version; 0: of an unknown one.
pub(super) fn is_known(kind: u32, version: u32) -> bool {
    kind != HOST_LAUNCH || version >= HOST_LAUNCH_SINCE
}

/// A decoded record, as the ring has it but for three things: its times are CUPTI's, 0 if not measured
/// or not ended; its thread is CUPTI's; and texts have no numbers yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActivityRecord {
    pub(super) record: GpuMessage,
    /// Address of a kernel's name, a C string owned by CUPTI; 0: none.
    pub(super) name: u64,
}

/// Bytes from the start of a record to the end of its buffer.
#[derive(Clone, Copy)]
struct RecordBytes<'a>(&'a [u8]);

impl RecordBytes<'_> {
    fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn u32(self, at: usize) -> Option<u32> {
        let (bytes, _) = self.0.get(at..)?.split_first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    }

    fn u64(self, at: usize) -> Option<u64> {
        let (bytes, _) = self.0.get(at..)?.split_first_chunk()?;
        Some(u64::from_ne_bytes(*bytes))
    }

    fn interval(self, at: usize) -> Option<TimeInterval> {
        Some(TimeInterval { start_ns: self.u64(at)?, end_ns: self.u64(at + 8)? })
    }
}

/// The record at the start of `bytes`; `bytes` extend to the end of its buffer. `None` for kinds that were not enabled,
/// and if the buffer ends within the fields.
pub(super) fn decode(bytes: &[u8]) -> Option<ActivityRecord> {
    let bytes = RecordBytes(bytes);
    let kind = bytes.u32(0)?;
    let record = match kind {
        KERNEL => kernel(bytes)?,
        MEMCPY => copy(bytes, GpuRecord::Memcpy, bytes.u8(4)?, 44)?,
        MEMSET => copy(bytes, GpuRecord::Memset, 0, 44)?,
        PEER_MEMCPY => copy(bytes, GpuRecord::PeerCopy, bytes.u8(4)?, 60)?,
        HOST_LAUNCH => host_function(bytes)?,
        DRIVER => call(bytes, ApiLayer::Driver)?,
        RUNTIME => call(bytes, ApiLayer::Runtime)?,
        SYNCHRONIZATION => GpuMessage::Sync(RingSync {
            interval: bytes.interval(8)?,
            kind: u8::try_from(bytes.u32(4)?).unwrap_or(0),
            correlation: bytes.u32(24)?,
            context: bytes.u32(28)?,
            stream: bytes.u32(32)?,
            event: bytes.u32(36)?,
        }),
        EVENT => GpuMessage::Event {
            correlation: bytes.u32(4)?,
            context: bytes.u32(8)?,
            stream: bytes.u32(12)?,
            event: bytes.u32(16)?,
        },
        OVERHEAD => GpuMessage::Overhead { interval: bytes.interval(24)?, kind: bytes.u32(4)? },
        _ => return None,
    };
    let name = if kind == KERNEL { bytes.u64(104)? } else { 0 };
    Some(ActivityRecord { record, name })
}

fn kernel(bytes: RecordBytes) -> Option<GpuMessage> {
    Some(GpuMessage::Gpu(RingGpuOp {
        interval: bytes.interval(16)?,
        work: GpuRecord::Kernel,
        copy_kind: 0,
        device: bytes.u32(40)?,
        context: bytes.u32(44)?,
        stream: bytes.u32(48)?,
        correlation: bytes.u32(92)?,
        bytes: 0,
        name: NO_TEXT,
        graph: bytes.u32(156)?,
    }))
}

fn copy(
    bytes: RecordBytes,
    work: GpuRecord,
    copy_kind: u8,
    correlation_at: usize,
) -> Option<GpuMessage> {
    Some(GpuMessage::Gpu(RingGpuOp {
        interval: bytes.interval(16)?,
        work,
        copy_kind,
        device: bytes.u32(32)?,
        context: bytes.u32(36)?,
        stream: bytes.u32(40)?,
        correlation: bytes.u32(correlation_at)?,
        bytes: bytes.u64(8)?,
        name: NO_TEXT,
        graph: 0,
    }))
}

fn host_function(bytes: RecordBytes) -> Option<GpuMessage> {
    Some(GpuMessage::Gpu(RingGpuOp {
        interval: bytes.interval(32)?,
        work: GpuRecord::HostFunction,
        copy_kind: 0,
        device: bytes.u32(12)?,
        context: bytes.u32(8)?,
        stream: bytes.u32(4)?,
        correlation: bytes.u32(16)?,
        bytes: 0,
        name: NO_TEXT,
        graph: 0,
    }))
}

fn call(bytes: RecordBytes, layer: ApiLayer) -> Option<GpuMessage> {
    Some(GpuMessage::Api(RingCall {
        interval: bytes.interval(8)?,
        layer,
        function: bytes.u32(4)?,
        tid: bytes.u32(28)?,
        correlation: bytes.u32(32)?,
        name: NO_TEXT,
    }))
}

#[cfg(test)]
mod tests;
