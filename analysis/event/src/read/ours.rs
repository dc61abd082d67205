//! Whether a file is a trace that gctrace wrote, seen in its first bytes.

use super::TraceInput;
use super::error::ReadError;
use crate::line::FIRST_BYTES;
use std::io::Read;

/// Whether these bytes begin as gctrace's own traces do, compressed or not. Reads no more than the beginning.
///
/// # Errors
/// [`ReadError::Io`] when not even the first bytes can be read. What is compressed and damaged is not ours.
pub fn is_gctrace(name: &str, bytes: impl Read + Send + 'static) -> Result<bool, ReadError> {
    let input = TraceInput::new(name, bytes)?;
    let compressed = input.compressed();
    let mut first = Vec::with_capacity(FIRST_BYTES.len());
    match input.take(FIRST_BYTES.len() as u64).read_to_end(&mut first) {
        Ok(_) => Ok(first == FIRST_BYTES),
        Err(_) if compressed => Ok(false),
        Err(source) => Err(ReadError::Io {
            file: name.to_owned(),
            byte: first.len() as u64,
            source,
        }),
    }
}
