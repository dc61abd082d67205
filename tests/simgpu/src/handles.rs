//! The handles that programs receive: numbers with their kind in the upper bits, never addresses.
//! An invalid one is an error instead of a crash.

use crate::error::CudaError;

/// A kind of handle: its upper bits.
#[derive(Clone, Copy)]
pub(crate) struct HandleKind(u64);

pub(crate) const STREAM: HandleKind = HandleKind(0x5100);
pub(crate) const EVENT: HandleKind = HandleKind(0x5200);
pub(crate) const CONTEXT: HandleKind = HandleKind(0x5300);
pub(crate) const FUNCTION: HandleKind = HandleKind(0x5400);
pub(crate) const GRAPH: HandleKind = HandleKind(0x5500);
pub(crate) const MODULE: HandleKind = HandleKind(0x5600);
pub(crate) const NVML_DEVICE: HandleKind = HandleKind(0x5700);

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY_STREAM: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
pub(crate) const THREAD_STREAM: u64 = 2;

impl HandleKind {
    pub(crate) fn of(self, id: u32) -> u64 {
        self.0 << 32 | u64::from(id)
    }

    /// The number of a handle of this kind.
    pub(crate) fn id(self, handle: u64) -> Result<u32, CudaError> {
        let is_mine = handle >> 32 == self.0;
        is_mine.then_some(handle as u32).ok_or(CudaError::INVALID_HANDLE)
    }
}
