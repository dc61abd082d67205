//! Whether a file is a trace that gctrace wrote, seen in its first bytes.

use super::TraceInput;
use super::error::ReadError;
use std::io::Read;

/// The first bytes of every trace: its opening and the name of the header's event.
const FIRST_BYTES: &[u8] =
    br#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","name":"gctrace_header""#;

/// Whether these bytes start like gctrace's own traces, compressed or not. Reads only the start.
///
/// # Errors
/// [`ReadError::Io`] if the first bytes cannot be read. Damaged compressed data is not a gctrace
/// trace.
pub fn is_gctrace(name: &str, bytes: impl Read + Send + 'static) -> Result<bool, ReadError> {
    let input = TraceInput::new(name, bytes)?;
    let compressed = input.compressed();
    let mut first = Vec::with_capacity(FIRST_BYTES.len());
    match input.take(FIRST_BYTES.len() as u64).read_to_end(&mut first) {
        Ok(_) => Ok(first == FIRST_BYTES),
        Err(_) if compressed => Ok(false),
        Err(source) => {
            Err(ReadError::Io { file: name.to_owned(), byte: first.len() as u64, source })
        }
    }
}
