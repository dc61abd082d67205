//! Code objects: the file, the function and the lines of a frame.
//!
//! Owns their decoding, from bytes copied while the object was alive ([`CodeObject::from_parts`])
//! and from the memory of a process ([`CodeObject::read`]). Finding the frames is done elsewhere.

mod unicode;

pub use unicode::decode_unicode;

use super::line_table;
use crate::memory::{Memory, MemoryError, MemoryReader};
use gctrace_cpython::{FrameLayout, LineTableFormat};
use unicode::StringHeader;

/// The fields of a code object that gctrace uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// `co_filename`: the path given to the compiler, which may be relative.
    pub file: String,
    /// `co_qualname` (3.11 and later), otherwise `co_name`.
    pub function: String,
    /// `co_firstlineno`: the line shown for a frame that has not started.
    pub first_line: i32,
    line_table: Vec<u8>,
    format: LineTableFormat,
}

/// Why a code object could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum CodeObjectError {
    /// A part of it could not be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// There is no code object at the address, or it was freed.
    #[error(
        "there is no code object at {address:#x}: it was freed, or the interpreter differs from its version's layout; see what was found with: gctrace doctor"
    )]
    NotCode {
        /// The address that was read.
        address: u64,
    },
    /// Its file name or its name is not a valid string.
    #[error(
        "the {what} of a code object is not a valid string of this version; see what was found with: gctrace doctor"
    )]
    NotText {
        /// `file name` or `name`.
        what: &'static str,
    },
    /// The length of its line table is implausible.
    #[error(
        "the line table of the code object at {address:#x} has a length of {length} bytes; see what was found with: gctrace doctor"
    )]
    LineTable {
        /// Address of the code object.
        address: u64,
        /// The length in its header.
        length: i64,
    },
}

/// Maximum length of a string in bytes: PATH_MAX of Linux.
const LONGEST_NAME: usize = 4096;

/// Maximum length of a line table in bytes: 100 000 lines of code in one function.
const LONGEST_TABLE: usize = 1 << 20;

/// `tp_name` of `PyCode_Type`, every version.
const TYPE_NAME: &[u8; 5] = b"code\0";

impl CodeObject {
    /// Decodes copies of its parts: `file` and `function` are the first bytes of `str` objects,
    /// header included, `line_table` is the contents of the `bytes` object or the first part of it.
    ///
    /// # Errors
    /// [`CodeObjectError::NotText`] if the header of a string is truncated or invalid.
    pub fn from_parts(
        first_line: i32,
        file: &[u8],
        function: &[u8],
        line_table: &[u8],
        layout: &FrameLayout,
    ) -> Result<Self, CodeObjectError> {
        let text =
            |what, bytes| decode_unicode(bytes, layout).ok_or(CodeObjectError::NotText { what });
        Ok(Self {
            file: text("file name", file)?,
            function: text("name", function)?,
            first_line,
            line_table: line_table.to_owned(),
            format: layout.line_table_format,
        })
    }

    /// Reads it from a process's memory. Names are cut after 4 KiB, line tables after 1 MiB.
    ///
    /// # Errors
    /// If there is no code object at `address`, or if a part of it cannot be read.
    pub fn read<M: Memory + ?Sized>(
        memory: &M,
        address: u64,
        layout: &FrameLayout,
    ) -> Result<Self, CodeObjectError> {
        let reader = MemoryReader::new(memory);
        if !is_code(&reader, address, layout)? {
            return Err(CodeObjectError::NotCode { address });
        }
        let string = |what, offset| text(&reader, what, address, offset, layout);
        Ok(Self {
            first_line: reader.int("code object", address, layout.code_first_line)?,
            file: string("file name", layout.code_filename)?,
            function: string("name", layout.code_name)?,
            line_table: table(&reader, address, layout)?,
            format: layout.line_table_format,
        })
    }

    /// The line of the instruction at that byte offset in the code; `None` if it has none.
    #[must_use]
    pub fn line(&self, byte_offset: u32) -> Option<u32> {
        line_table::line(self.format, &self.line_table, self.first_line, byte_offset)
    }

    /// The line shown for a frame: its instruction's, or the first line if it has not started.
    #[must_use]
    pub fn frame_line(&self, byte_offset: Option<u32>) -> Option<u32> {
        match byte_offset {
            Some(offset) => self.line(offset),
            None => self.first_line.try_into().ok(),
        }
    }
}

/// Checks the type by name: the type's own address differs between processes and files.
fn is_code<M: Memory + ?Sized>(
    reader: &MemoryReader<'_, M>,
    address: u64,
    layout: &FrameLayout,
) -> Result<bool, MemoryError> {
    let kind = reader.word("code object", address, layout.object_type)?;
    let name = reader.word("type of a code object", kind, layout.type_name)?;
    let mut found = [0; TYPE_NAME.len()];
    reader.fill("name of a type", name, &mut found)?;
    Ok(found == *TYPE_NAME)
}

fn text<M: Memory + ?Sized>(
    reader: &MemoryReader<'_, M>,
    what: &'static str,
    code: u64,
    offset: u32,
    layout: &FrameLayout,
) -> Result<String, CodeObjectError> {
    let not_text = || CodeObjectError::NotText { what };
    let address = reader.word("code object", code, offset)?;
    let mut bytes = vec![0; StringHeader::size(layout).min(LONGEST_NAME)];
    reader.fill(what, address, &mut bytes)?;
    let header = StringHeader::read(&bytes, layout).ok_or_else(not_text)?;
    let size = header.bytes().min(LONGEST_NAME).saturating_add(header.data);
    bytes.resize(size, 0);
    reader.fill(what, address, &mut bytes)?;
    decode_unicode(&bytes, layout).ok_or_else(not_text)
}

fn table<M: Memory + ?Sized>(
    reader: &MemoryReader<'_, M>,
    code: u64,
    layout: &FrameLayout,
) -> Result<Vec<u8>, CodeObjectError> {
    let address = reader.word("code object", code, layout.code_line_table)?;
    let length = reader.word("line table", address, layout.bytes_length)?.cast_signed();
    let length = usize::try_from(length)
        .map_err(|_negative| CodeObjectError::LineTable { address: code, length })?;
    let mut bytes = vec![0; length.min(LONGEST_TABLE)];
    let start = address.wrapping_add(layout.bytes_data.into());
    reader.fill("line table", start, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
