//! Activity records as bytes. Offsets hold for all versions from 11.8 to 13.2, sizes for each
//! (measured by compiling against `cupti_activity.h` of 11.8.87, 12.4.127, 13.0.85 and 13.2). Bytes
//! outside our fields are poisoned, so that a reader that uses too much finds garbage.

/// Value of meaningless bytes.
const POISON: u8 = 0xa5;

// `CUpti_ActivityKind`.
pub(super) const MEMCPY: u32 = 1;
pub(super) const MEMSET: u32 = 2;
pub(super) const DRIVER: u32 = 4;
pub(super) const RUNTIME: u32 = 5;
pub(super) const KERNEL: u32 = 10;
pub(super) const OVERHEAD: u32 = 17;
pub(super) const PEER_MEMCPY: u32 = 22;
pub(super) const EVENT: u32 = 36;
pub(super) const SYNCHRONIZATION: u32 = 38;
/// Since CUDA 13.1.
pub(super) const HOST_LAUNCH: u32 = 58;

/// The CUPTI version that the simulator imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CuptiVersion {
    V11_8,
    V12_4,
    V13_0,
    V13_2,
    /// Not released: all records are longer.
    Future,
}

impl CuptiVersion {
    /// The version in `SIMGPU_CUPTI`.
    pub(super) fn from_name(name: &str) -> Self {
        match name {
            "11.8" => Self::V11_8,
            "13.0" => Self::V13_0,
            "13.2" => Self::V13_2,
            "future" => Self::Future,
            _ => Self::V12_4,
        }
    }

    /// `CUPTI_API_VERSION`.
    pub(super) fn api(self) -> u32 {
        match self {
            Self::V11_8 => 18,
            Self::V12_4 => 22,
            Self::V13_0 => 130_001,
            Self::V13_2 => 130_202,
            Self::Future => 990_000,
        }
    }

    /// Size of a record in bytes; `None` for kinds that the simulator does not write.
    pub(super) fn size(self, kind: u32) -> Option<usize> {
        let sizes = match kind {
            KERNEL => [200, 208, 216, 224],
            MEMCPY => [88, 88, 96, 96],
            MEMSET => [88; 4],
            PEER_MEMCPY => [96; 4],
            DRIVER | RUNTIME => [40; 4],
            SYNCHRONIZATION => [40, 40, 56, 56],
            EVENT => [24, 24, 56, 56],
            OVERHEAD => [40, 56, 56, 56],
            HOST_LAUNCH if matches!(self, Self::V13_2 | Self::Future) => [48; 4],
            _ => return None,
        };
        Some(match self {
            Self::V11_8 => sizes[0],
            Self::V12_4 => sizes[1],
            Self::V13_0 => sizes[2],
            Self::V13_2 => sizes[3],
            Self::Future => sizes[3] + 32,
        })
    }

    /// Whether a full launch queue is reported as overhead.
    pub(super) fn reports_full_queues(self) -> bool {
        self != Self::V11_8
    }
}

/// A record under construction.
#[derive(Clone, Debug)]
pub(super) struct RecordBuilder(Vec<u8>);

impl RecordBuilder {
    /// Poisoned except for its kind; `None` for kinds that the simulator does not write.
    pub(super) fn new(version: CuptiVersion, kind: u32) -> Option<Self> {
        Some(Self(vec![POISON; version.size(kind)?]).u32(0, kind))
    }

    pub(super) fn u8(self, at: usize, value: u8) -> Self {
        self.put(at, &[value])
    }

    pub(super) fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_ne_bytes())
    }

    pub(super) fn u64(self, at: usize, value: u64) -> Self {
        self.put(at, &value.to_ne_bytes())
    }

    /// Three consecutive numbers.
    pub(super) fn triple(self, at: usize, values: [u32; 3]) -> Self {
        let [x, y, z] = values;
        self.u32(at, x).u32(at + 4, y).u32(at + 8, z)
    }

    /// As CUPTI delivers an unfinished operation when forced: the end is 0.
    pub(super) fn without_end(self) -> Self {
        let is_kernel = self.0.starts_with(&KERNEL.to_ne_bytes());
        let record = self.u64(24, 0);
        if is_kernel { record.u64(32, 0) } else { record }
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_poisoned() {
        let record =
            RecordBuilder::new(CuptiVersion::V13_0, KERNEL).expect("known kind").u64(16, 5);
        let bytes = record.as_slice();
        assert_eq!(bytes.len(), 216);
        assert_eq!(bytes[..4], KERNEL.to_ne_bytes());
        assert_eq!(bytes[16..24], 5_u64.to_ne_bytes());
        assert!(bytes[160..].iter().all(|byte| *byte == POISON));
    }
}
