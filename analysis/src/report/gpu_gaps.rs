//! The part of a report about idle intervals of the devices.

use super::{Basis, DeviceId};
use schemars::JsonSchema;
use serde::Serialize;

/// Gaps of the devices: idle intervals between the first and the last operation of a device, in
/// which none of its streams ran an operation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GapsReport {
    /// Basis of `host`: inferred from what the launching thread did in the gap. Counts and lengths
    /// are measured by the GPU.
    pub basis: Basis,
    /// Number of gaps, over all devices.
    pub count: u64,
    /// Sum of their lengths, in ns; the part of a device is its idle time.
    pub time_ns: u64,
    /// What the host did in the gaps.
    pub host: HostTime,
    /// Totals of the gaps, by device and process.
    pub devices: Vec<DeviceGaps>,
    /// The longest gaps, longest first, at most 20.
    pub longest: Vec<GapReport>,
}

/// Totals of the gaps of one device of one process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceGaps {
    /// The device, and the process that used it.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Number of gaps of the device.
    pub count: u64,
    /// Sum of their lengths, in ns.
    pub time_ns: u64,
    /// What the host did in these gaps.
    pub host: HostTime,
}

/// One idle interval of a device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GapReport {
    /// The device, and the process that used it.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Start of the gap: end of the last operation before it, in ns on the clock of the trace.
    pub start_ns: u64,
    /// Start of the gap, in ns after the start of the device's first operation.
    pub after_first_ns: u64,
    /// Length of the gap, in ns.
    pub duration_ns: u64,
    /// Name of the last operation before the gap, at most 160 characters.
    pub before: String,
    /// Name of the operation that ends the gap, at most 160 characters.
    pub after: String,
    /// The call that launched that operation; `null` if it is not in the trace.
    pub call: Option<String>,
    /// Thread id of that call; `null` if it is not in the trace.
    pub tid: Option<u32>,
    /// Name of that thread; `null` if unknown.
    pub thread: Option<String>,
    /// Ids of the threads that ran a collection during the gap, the one with the most time first,
    /// at most four.
    pub collecting: Vec<u32>,
    /// What the launching thread did during the gap.
    pub host: HostTime,
}

/// What the thread that launched the operation at the end of a gap did during the gap, in ns. The
/// parts add up to the length of the gap; if several apply, the first in this list counts, and
/// `launch_under_way_ns` before all others. They coincide with the gap and need not be its cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostTime {
    /// In ns: the thread ran a collection.
    pub gc_ns: u64,
    /// In ns: it was in a call that synchronizes with a stream, an event or a device.
    pub synchronizing_ns: u64,
    /// In ns: it was in a call that copies or allocates memory.
    pub copy_or_allocation_ns: u64,
    /// In ns: another thread of the process ran a collection and, except in free-threaded builds,
    /// held the GIL.
    pub gc_on_other_thread_ns: u64,
    /// In ns: it was in an annotation for data loading, such as those of PyTorch's DataLoader.
    pub waiting_for_data_ns: u64,
    /// In ns: the launch had already started; the rest is launch latency or a wait of the stream
    /// for another one.
    pub launch_under_way_ns: u64,
    /// In ns: it ran other code, so the launch was late.
    pub launching_late_ns: u64,
    /// In ns: the thread that launched the operation is not in the trace.
    pub unknown_ns: u64,
}

impl HostTime {
    /// All parts, in the order of the fields of the text report: they add up to the gap.
    #[must_use]
    pub fn classes(&self) -> [u64; 8] {
        [
            self.gc_ns,
            self.gc_on_other_thread_ns,
            self.synchronizing_ns,
            self.copy_or_allocation_ns,
            self.waiting_for_data_ns,
            self.launch_under_way_ns,
            self.launching_late_ns,
            self.unknown_ns,
        ]
    }
}
