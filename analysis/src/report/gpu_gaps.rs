//! The part of a report about the gaps of devices.

use super::Basis;
use super::DeviceId;
use schemars::JsonSchema;
use serde::Serialize;

/// Gaps: stretches of time between the first and the last operation of a device in which none of its
/// streams did anything.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GapsReport {
    /// Of `host`: inferred from what the launching thread did meanwhile. Counts and lengths are
    /// measured by the GPU.
    pub basis: Basis,
    /// How many, of all devices.
    pub count: u64,
    /// Their time together; a device's part is its idle time.
    pub time_ns: u64,
    /// What the host did in them.
    pub host: HostTime,
    /// The same by device.
    pub devices: Vec<DeviceGaps>,
    /// The longest, longest first, at most twenty.
    pub longest: Vec<GapReport>,
}

/// The gaps of one device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceGaps {
    /// Which.
    #[serde(flatten)]
    pub id: DeviceId,
    /// How many.
    pub count: u64,
    /// Their time together.
    pub time_ns: u64,
    /// What the host did in them.
    pub host: HostTime,
}

/// One gap.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GapReport {
    /// Of which device.
    #[serde(flatten)]
    pub id: DeviceId,
    /// When the last operation before it ended.
    pub start_ns: u64,
    /// The same, counted from the device's first operation.
    pub after_first_ns: u64,
    /// Until the next operation began.
    pub duration_ns: u64,
    /// Name of the operation that ended last before it, at most 160 characters.
    pub before: String,
    /// Name of the operation that ends it, at most 160 characters.
    pub after: String,
    /// The call that launched that operation, where the trace tells.
    pub call: Option<String>,
    /// Thread of that call.
    pub tid: Option<u32>,
    /// Name of that thread, where known.
    pub thread: Option<String>,
    /// Threads that were in a garbage collection during the gap, by thread id, the one with the most
    /// time first, at most four.
    pub collecting: Vec<u32>,
    /// What the launching thread did during the gap.
    pub host: HostTime,
}

/// What the thread did that launched the operation at the end of a gap, while the gap lasted. The
/// parts add up to the gap; where two apply the one further up counts, and `launch_under_way_ns`
/// before all. They overlap with the gap; they need not be its cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostTime {
    /// The thread was in a garbage collection.
    pub gc_ns: u64,
    /// It was in a call that waits for a stream, an event or a device.
    pub synchronising_ns: u64,
    /// It was in a call that copies or reserves memory.
    pub copy_or_allocation_ns: u64,
    /// Another thread of the process was in a garbage collection, and so, but in free-threaded builds,
    /// held the interpreter lock.
    pub gc_on_other_thread_ns: u64,
    /// It was in an annotation that names the loading of data, as torch's DataLoader writes.
    pub waiting_for_data_ns: u64,
    /// The call had begun already: what remains is the latency of the launch, or a wait of its stream
    /// for another.
    pub launch_under_way_ns: u64,
    /// It ran other code: the launch came late.
    pub launching_late_ns: u64,
    /// The trace does not tell which thread launched the operation.
    pub unknown_ns: u64,
}

impl HostTime {
    /// All parts, in the order of the fields of the text report: they add up to the gap.
    #[must_use]
    pub fn classes(&self) -> [u64; 8] {
        [
            self.gc_ns,
            self.gc_on_other_thread_ns,
            self.synchronising_ns,
            self.copy_or_allocation_ns,
            self.waiting_for_data_ns,
            self.launch_under_way_ns,
            self.launching_late_ns,
            self.unknown_ns,
        ]
    }
}
