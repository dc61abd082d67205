//! Device memory: how much of which device is allocated. Addresses are never reused and not backed.

use crate::error::CudaError;
use std::collections::BTreeMap;

/// Alignment of `cuMemAlloc`'s addresses on current devices.
const ALIGNMENT: u64 = 512;
const FIRST_ADDRESS: u64 = 0x7000_0000_0000;

#[derive(Clone, Copy, Debug)]
struct MemoryBlock {
    device: u32,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct MemoryBlocks {
    limit: u64,
    next: u64,
    blocks: BTreeMap<u64, MemoryBlock>,
    used: BTreeMap<u32, u64>,
}

impl MemoryBlocks {
    /// `limit`: bytes of each device.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, next: FIRST_ADDRESS, blocks: BTreeMap::new(), used: BTreeMap::new() }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Device memory that this process has allocated, in bytes.
    pub(crate) fn used(&self, device: u32) -> u64 {
        self.used.get(&device).copied().unwrap_or(0)
    }

    /// Allocates; `others`: bytes of the device that other processes have allocated.
    pub(crate) fn allocate(
        &mut self,
        device: u32,
        bytes: u64,
        others: u64,
    ) -> Result<u64, CudaError> {
        let used = self.used(device) + others;
        if bytes == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        if bytes > self.limit.saturating_sub(used) {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let address = self.reserve(bytes)?;
        self.blocks.insert(address, MemoryBlock { device, bytes });
        *self.used.entry(device).or_default() += bytes;
        Ok(address)
    }

    /// Addresses without memory.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<u64, CudaError> {
        let address = self.next;
        let end = address
            .checked_add(bytes)
            .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
            .ok_or(CudaError::OUT_OF_MEMORY)?;
        self.next = end;
        Ok(address)
    }

    /// Frees; returns the device and the bytes.
    pub(crate) fn free(&mut self, address: u64) -> Result<(u32, u64), CudaError> {
        let block = self.blocks.remove(&address).ok_or(CudaError::INVALID_VALUE)?;
        *self.used.entry(block.device).or_default() -= block.bytes;
        Ok((block.device, block.bytes))
    }

    /// Size of the allocation at an address, in bytes.
    pub(crate) fn size(&self, address: u64) -> Option<u64> {
        self.blocks.get(&address).map(|block| block.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_per_device_and_counts_others() {
        let mut memory = MemoryBlocks::new(1000);
        let first = memory.allocate(0, 600, 0).expect("fits");
        assert_eq!(memory.allocate(0, 401, 0), Err(CudaError::OUT_OF_MEMORY));
        assert_eq!(memory.allocate(0, 400, 1), Err(CudaError::OUT_OF_MEMORY));
        assert!(memory.allocate(1, 1000, 0).is_ok());
        assert_eq!(memory.free(first), Ok((0, 600)));
        assert_eq!(memory.free(first), Err(CudaError::INVALID_VALUE));
        assert_eq!(memory.used(0), 0);
        assert!(memory.allocate(0, 1000, 0).is_ok());
    }
}
