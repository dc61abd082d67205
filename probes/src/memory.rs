//! Reads the memory of a running process, out-of-process.
//!
//! Owns how bytes are fetched, not their meaning.

use crate::proc_status::ProcessError;
use gctrace_cpython::Memory;
use std::fs::File;
use std::os::unix::fs::FileExt;

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

impl Memory for &ProcessMemory {
    fn fill(&mut self, address: u64, bytes: &mut [u8]) -> Option<()> {
        self.file.read_exact_at(bytes, address).ok()
    }
}
