//! The memory of a running process, read from outside.
//!
//! Owns how bytes are fetched. What they mean is not known here.

use crate::proc_status::ProcessError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Memory that can be read at an address: a process's, or in tests any function of this shape.
pub trait Memory {
    /// Fills `bytes` from `address` on, or fails.
    ///
    /// # Errors
    /// When any of it is not there or may not be read.
    fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()>;
}

impl<F> Memory for F
where
    F: Fn(u64, &mut [u8]) -> io::Result<()>,
{
    fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self(address, bytes)
    }
}

/// `/proc/PID/mem`. It stays the memory of the program that ran when it was opened: after an exec, reads
/// find nothing.
#[derive(Debug)]
pub struct ProcessMemory {
    file: File,
}

impl ProcessMemory {
    /// Opens it; needs the right to trace the process.
    ///
    /// # Errors
    /// When the process is gone or may not be inspected.
    pub fn open(pid: u32) -> Result<Self, ProcessError> {
        let file = File::open(format!("/proc/{pid}/mem"))
            .map_err(|error| ProcessError::new(pid, "mem", error))?;
        Ok(Self { file })
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, address)
    }
}

/// What is read while a structure is followed, and that error's place.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot read {what} at {address:#x}: {source}; the process has ended, moved on, or may not be inspected (then: sudo gctrace)"
)]
pub struct MemoryError {
    /// The structure or field, for example `code object`.
    pub what: &'static str,
    /// Where it should be.
    pub address: u64,
    /// What the system said.
    pub source: io::Error,
}

/// Numbers out of a memory, each with its name for the error.
pub(crate) struct MemoryReader<'memory, M: ?Sized> {
    memory: &'memory M,
}

impl<'memory, M: Memory + ?Sized> MemoryReader<'memory, M> {
    pub(crate) fn new(memory: &'memory M) -> Self {
        Self { memory }
    }

    pub(crate) fn fill(
        &self,
        what: &'static str,
        address: u64,
        bytes: &mut [u8],
    ) -> Result<(), MemoryError> {
        self.memory
            .read(address, bytes)
            .map_err(|source| MemoryError {
                what,
                address,
                source,
            })
    }

    fn array<const SIZE: usize>(
        &self,
        what: &'static str,
        base: u64,
        offset: u32,
    ) -> Result<[u8; SIZE], MemoryError> {
        let mut bytes = [0; SIZE];
        self.fill(what, base.wrapping_add(offset.into()), &mut bytes)?;
        Ok(bytes)
    }

    /// The 64-bit word at `base + offset`.
    pub(crate) fn word(
        &self,
        what: &'static str,
        base: u64,
        offset: u32,
    ) -> Result<u64, MemoryError> {
        self.array(what, base, offset).map(u64::from_le_bytes)
    }

    /// The 32-bit number at `base + offset`.
    pub(crate) fn int(
        &self,
        what: &'static str,
        base: u64,
        offset: u32,
    ) -> Result<i32, MemoryError> {
        self.array(what, base, offset).map(i32::from_le_bytes)
    }

    /// The byte at `base + offset`.
    pub(crate) fn byte(
        &self,
        what: &'static str,
        base: u64,
        offset: u32,
    ) -> Result<u8, MemoryError> {
        self.array(what, base, offset).map(|[byte]| byte)
    }
}
