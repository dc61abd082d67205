//! The memory guard: garbage that waits must not take the memory that the program, or its machine, needs.
//!
//! Resident memory is the alarm. It is no proof: allocators keep freed memory, and heaps grow without any garbage. So
//! an alarm is answered by a collection, and the freed memory decides. With a GPU's memory this decides nothing: freed
//! memory goes back to the framework's allocator, and a program that finds none left fails. So settings are given back
//! as soon as more is in use than is allowed.

use super::gauge::{DeviceMemory, Gauge};
use super::price::MeasuredFull;
use gctrace_settings::AutoDecision;
use gctrace_stats::{float, whole};
use gctrace_units::{beyond, duration_ns, sum, times};

/// More resident memory that is always allowed, in bytes: below it thresholds make no difference.
const SPARE: u64 = 64 << 20;
/// Less than this is hardly any memory, in bytes.
const TIGHT: u64 = 32 << 20;
/// Between two looks, in ns: a look takes some microseconds, and garbage grows by 2 MB in a ms at most.
/// Longer steps are followed by a look each.
const EVERY_NS: u64 = 5_000_000;
/// Between two looks at a GPU's memory, in ns: the driver takes some microseconds for one, and steps that
/// fill a GPU take longer.
const DEVICE_EVERY_NS: u64 = 20_000_000;
/// Looks at the process between two looks at the machine's free memory: these take ten times as long.
const EVERY: u64 = 16;

/// The limits of one process.
#[derive(Debug)]
pub(super) struct MemoryGuard {
    /// As a share of the resident memory.
    allowed: f64,
    pub(super) base: Option<u64>,
    pub(super) most: u64,
    limit: u64,
    looks: u64,
    looked_ns: u64,
    /// Resident at the last look at the free memory.
    looked: u64,
    /// The most of the GPU's memory that may be in use; `None`: there is none, or it is unknown.
    device_limit: Option<u64>,
    looked_at_device_ns: u64,
    pub(super) alarms: u64,
    /// Resident, and full collections, when the limit was set.
    began: u64,
    fulls: u64,
}

/// Result of a look.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemoryLook {
    Well,
    /// Memory cannot be read.
    Unknown,
    Alarm(MemoryAlarm),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryAlarm {
    /// Resident, or in use of the GPU's memory.
    used_bytes: u64,
    limit_bytes: u64,
    of_device: bool,
    /// Hardly any memory is left, whoever has it.
    pub(super) is_tight: bool,
    /// Since the limit was set.
    grown: u64,
    /// In use of the C library's memory.
    malloc_bytes: Option<u64>,
}

impl MemoryGuard {
    pub(super) fn new(allowed: f64) -> Self {
        Self {
            allowed,
            base: None,
            most: 0,
            limit: u64::MAX,
            looks: 0,
            looked_ns: 0,
            looked: 0,
            device_limit: None,
            looked_at_device_ns: 0,
            alarms: 0,
            began: 0,
            fulls: 0,
        }
    }

    /// Makes the resident memory of now the new measure. `None`: it is unknown.
    pub(super) fn begin(&mut self, gauge: &mut dyn Gauge) -> Option<()> {
        let now = gauge.rss_bytes()?;
        self.limit = self.most_of(now, gauge.headroom_bytes().unwrap_or(u64::MAX));
        self.device_limit =
            gauge.device_memory(true).map(|device| self.most_of(device.used, device.left));
        self.base.get_or_insert(now);
        self.most = self.most.max(now);
        self.began = now;
        self.fulls = gauge.fulls();
        Some(())
    }

    /// The most bytes that may be in use, from the bytes in use `now` and `left`.
    fn most_of(&self, now: u64, left: u64) -> u64 {
        let more = sum([whole(float(now) * self.allowed), SPARE]);
        sum([now, more.min(left / 2)])
    }

    /// A look at a step's end. It is well too if a full collection has run since the limit was set: the resident memory
    /// was mostly alive then, and is the new measure.
    pub(super) fn look(&mut self, gauge: &mut dyn Gauge) -> MemoryLook {
        let now_ns = gauge.now_ns();
        if duration_ns(self.looked_ns, now_ns) < EVERY_NS {
            return MemoryLook::Well;
        }
        self.looked_ns = now_ns;
        let Some(rss_bytes) = gauge.rss_bytes() else { return MemoryLook::Unknown };
        if let Some(alarm) = self.look_at_device(now_ns, gauge) {
            return MemoryLook::Alarm(alarm);
        }
        self.most = self.most.max(rss_bytes);
        self.looks += 1;
        let (is_due, is_over) = (self.looks.is_multiple_of(EVERY), rss_bytes > self.limit);
        if !is_due && !is_over {
            return MemoryLook::Well;
        }
        let left = gauge.headroom_bytes();
        let mut is_tight = is_over && matches!(left, Some(left) if left < TIGHT);
        if is_due {
            // As much again twice over before the look after the next.
            let grown = beyond(rss_bytes, std::mem::replace(&mut self.looked, rss_bytes));
            is_tight |= grown > 0 && matches!(left, Some(left) if left < times(grown, 2));
        }
        if !is_tight && (!is_over || gauge.fulls() > self.fulls) {
            if is_over {
                self.begin(gauge);
            }
            return MemoryLook::Well;
        }
        MemoryLook::Alarm(MemoryAlarm {
            used_bytes: rss_bytes,
            limit_bytes: self.limit,
            of_device: false,
            is_tight,
            grown: beyond(rss_bytes, self.began),
            malloc_bytes: gauge.malloc_bytes(),
        })
    }

    fn look_at_device(&mut self, now_ns: u64, gauge: &mut dyn Gauge) -> Option<MemoryAlarm> {
        if duration_ns(self.looked_at_device_ns, now_ns) < DEVICE_EVERY_NS {
            return None;
        }
        self.looked_at_device_ns = now_ns;
        let DeviceMemory { used, left } = gauge.device_memory(false)?;
        // Not yet known: the program has just begun to use it.
        let limit_bytes = self.device_limit.unwrap_or_else(|| self.most_of(used, left));
        self.device_limit = Some(limit_bytes);
        if used <= limit_bytes {
            return None;
        }
        Some(MemoryAlarm {
            used_bytes: used,
            limit_bytes,
            of_device: true,
            is_tight: true,
            grown: 0,
            malloc_bytes: None,
        })
    }
}

impl MemoryAlarm {
    /// The decision if everything is to be given back.
    pub(super) fn decision(&self) -> AutoDecision {
        let Self { used_bytes, limit_bytes, .. } = *self;
        if self.of_device {
            return AutoDecision::DeviceMemory { used_bytes, limit_bytes };
        }
        AutoDecision::Memory { rss_bytes: used_bytes, limit_bytes }
    }

    /// Whether the collection that answered it found garbage, by objects or by bytes.
    pub(super) fn was_garbage(&self, full: MeasuredFull, gauge: &mut dyn Gauge) -> bool {
        // Small objects are given back to the system, large ones to the C library only.
        let now = gauge.rss_bytes().unwrap_or(self.used_bytes);
        let mut less = beyond(self.used_bytes, now);
        if let (Some(before), Some(now)) = (self.malloc_bytes, gauge.malloc_bytes()) {
            less += beyond(before, now);
        }
        full.freed > full.left / 10 || less > self.grown / 2
    }
}
