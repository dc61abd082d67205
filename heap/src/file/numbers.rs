//! Numbers and texts in a stream of bytes: LEB128, and bytes after their number.

use super::HeapFileError;
use std::io;
use std::io::{BufRead as _, BufReader, Read, Write};

/// Longest encoding of 64 bits, in 7 bits a byte.
const LONGEST: u32 = 10;

/// Writes a number as unsigned LEB128 (DWARF 5, section 7.6): 7 bits a byte, lowest first, the top
/// bit set in all but the last.
pub(super) fn write_number(out: &mut impl Write, mut number: u64) -> io::Result<()> {
    let mut bytes = [0; LONGEST as usize];
    let mut length = 0;
    for byte in &mut bytes {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        length += 1;
        *byte = match number {
            0 => low & 0x7f,
            _ => low | 0x80,
        };
        if number == 0 {
            break;
        }
    }
    out.write_all(bytes.get(..length).unwrap_or_default())
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
        let mut number = 0;
        for position in 0..LONGEST {
            let byte = self.byte()?;
            let shift = position * 7;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(HeapFileError::Damaged("a number is too large"))
    }

    /// A number of up to 32 bits.
    pub(super) fn small(&mut self) -> Result<u32, HeapFileError> {
        u32::try_from(self.number()?).map_err(|_| HeapFileError::Damaged("a number is too large"))
    }

    /// Bytes after their number. The buffer grows with what is really there.
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
