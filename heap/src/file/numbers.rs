//! Numbers and texts in a stream of bytes: LEB128, and bytes after their number.

use super::HeapFileError;
use gctrace_event::leb128;
use std::io;
use std::io::{BufRead as _, BufReader, Read, Write};

pub(super) fn write_number(out: &mut impl Write, number: u64) -> io::Result<()> {
    leb128::encode(number).try_for_each(|byte| out.write_all(&[byte]))
}

/// Writes the number of bytes, then the bytes.
pub(super) fn write_text(out: &mut impl Write, text: &[u8]) -> io::Result<()> {
    write_number(out, text.len() as u64)?;
    out.write_all(text)
}

/// Reads what the functions above write.
pub(super) struct NumberReader<R: Read>(BufReader<R>);

impl<R: Read> NumberReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self(BufReader::new(input))
    }

    pub(super) fn byte(&mut self) -> Result<u8, HeapFileError> {
        let mut byte = [0];
        self.0.read_exact(&mut byte)?;
        let [byte] = byte;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> Result<u64, HeapFileError> {
        let number = leb128::decode(|| self.byte())?;
        number.ok_or(HeapFileError::Damaged("a number is too large"))
    }

    /// A number of up to 32 bits.
    pub(super) fn small(&mut self) -> Result<u32, HeapFileError> {
        u32::try_from(self.number()?).map_err(|_| HeapFileError::Damaged("a number is too large"))
    }

    /// Bytes after their number. The buffer grows with the bytes really read.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, HeapFileError> {
        let length = self.number()?;
        let mut bytes = Vec::new();
        (&mut self.0).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(HeapFileError::Incomplete) }
    }

    /// # Errors
    /// More bytes follow, or the end is damaged.
    pub(super) fn expect_end(mut self) -> Result<(), HeapFileError> {
        match self.0.fill_buf()? {
            [] => Ok(()),
            _ => Err(HeapFileError::Damaged("it goes on after its end")),
        }
    }
}
