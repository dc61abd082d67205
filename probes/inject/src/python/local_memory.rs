//! The memory of this process, for the readers of `gctrace_cpython`.

use super::api::Object;
use gctrace_cpython::Memory;

/// Reads this process's memory: each read is a load.
pub(super) struct LocalMemory(());

impl LocalMemory {
    /// # Safety
    /// As long as it is used, the lock is held, and the memory read is alive and laid out as the reader expects it.
    #[inline]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

impl Memory for LocalMemory {
    #[inline]
    fn fill(&mut self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let from = std::ptr::with_exposed_provenance(address as usize);
        // SAFETY: by the promise of `new`; the buffer is the caller's alone.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Some(())
    }

    #[inline]
    fn array<const SIZE: usize>(&mut self, address: u64) -> Option<[u8; SIZE]> {
        // SAFETY: by the promise of `new`; bytes have no alignment.
        Some(unsafe { std::ptr::with_exposed_provenance::<[u8; SIZE]>(address as usize).read() })
    }
}

/// The address of an object.
#[inline]
pub(super) fn address(object: Object) -> u64 {
    object.expose_provenance() as u64
}

/// The object at an address.
#[inline]
pub(super) fn object(address: u64) -> Object {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
