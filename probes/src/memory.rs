//! Reads the memory of a running process, out-of-process.
//!
//! Owns how bytes are fetched, not what they mean.

use crate::proc_status::ProcessError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Memory that can be read at an address: a process's, or in tests any function with this
/// signature.
pub trait Memory {
    /// Fills `bytes` starting at `address`, or fails.
    ///
    /// # Errors
    /// If any of it is not mapped or may not be read.
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

/// `/proc/PID/mem`. It refers to the program that ran when it was opened: after an exec, reads
/// return nothing.
#[derive(Debug)]
pub struct ProcessMemory {
    file: File,
}

impl ProcessMemory {
    /// Opens it; requires permission to trace the process.
    ///
    /// # Errors
    /// If the process is gone or may not be inspected.
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

/// Why a structure could not be read, and where.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot read {what} at {address:#x}: {source}; the process has exited, changed its memory meanwhile, or may not be inspected (then: sudo gctrace)"
)]
pub struct MemoryError {
    /// The structure or field, for example `code object`.
    pub what: &'static str,
    /// Address in the process at which the read started.
    pub address: u64,
    /// The error of the read, as returned by [`Memory::read`].
    pub source: io::Error,
}

/// Reads numbers from memory; each has a name for the error message.
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
        self.memory.read(address, bytes).map_err(|source| MemoryError { what, address, source })
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
