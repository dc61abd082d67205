//! Code objects: the file, the function and the lines of a frame.
//!
//! Owns their decoding, from bytes copied while the object was alive ([`CodeObject::from_parts`])
//! and from memory ([`CodeObject::read`]). Finding the frames is done elsewhere.

use crate::memory::Memory;
use crate::text::{decode_unicode, text};
use crate::{FrameLayout, LineTableFormat, line_table};

/// The fields of a code object that gctrace uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// `co_filename`: the path given to the compiler, maybe relative.
    pub file: String,
    /// `co_qualname` (3.11 and later), otherwise `co_name`.
    pub function: String,
    /// `co_firstlineno`: the line shown for a frame that has not started.
    pub first_line: i32,
    line_table: Vec<u8>,
    format: LineTableFormat,
}

/// Maximum length of a string in bytes: PATH_MAX of Linux.
const LONGEST_NAME: usize = 4096;

/// Maximum length of a line table in bytes: 100 000 lines of code in one function.
const LONGEST_TABLE: usize = 1 << 20;

/// `tp_name` of `PyCode_Type`, every version.
const TYPE_NAME: [u8; 5] = *b"code\0";

impl CodeObject {
    /// Decodes copies of its parts: `file` and `function` are the first bytes of `str` objects,
    /// header included, `line_table` is the contents of the `bytes` object or the first part of it.
    /// `None`: the header of a string is truncated or invalid.
    pub fn from_parts(
        first_line: i32,
        file: &[u8],
        function: &[u8],
        line_table: &[u8],
        layout: &FrameLayout,
    ) -> Option<Self> {
        Some(Self {
            file: decode_unicode(file, layout)?,
            function: decode_unicode(function, layout)?,
            first_line,
            line_table: line_table.to_owned(),
            format: layout.line_table_format,
        })
    }

    /// Reads it from memory. Names are cut after 4 KiB, line tables after 1 MiB. `None`: there is no code
    /// object at `address` (it was freed, or the layout is another), or a part of it cannot be read.
    pub fn read(memory: &mut impl Memory, address: u64, layout: &FrameLayout) -> Option<Self> {
        // By name: the type's own address differs between processes and files.
        let kind = memory.field(address, layout.object_type)?;
        let name = memory.field(kind, layout.type_name)?;
        if memory.array(name)? != TYPE_NAME {
            return None;
        }
        let mut string = |offset: u32| {
            let string = memory.field(address, offset)?;
            text(memory, string, LONGEST_NAME, layout)
        };
        Some(Self {
            file: string(layout.code_filename)?,
            function: string(layout.code_name)?,
            first_line: memory.int_field(address, layout.code_first_line)?,
            line_table: table(memory, address, layout)?,
            format: layout.line_table_format,
        })
    }

    /// The line of the instruction at that byte offset in the code; `None` if it has none.
    pub fn line(&self, byte_offset: u32) -> Option<u32> {
        line_table::line(self.format, &self.line_table, self.first_line, byte_offset)
    }

    /// The line shown for a frame: its instruction's, or the first line if it has not started.
    pub fn frame_line(&self, byte_offset: Option<u32>) -> Option<u32> {
        match byte_offset {
            Some(offset) => self.line(offset),
            None => self.first_line.try_into().ok(),
        }
    }
}

fn table(memory: &mut impl Memory, code: u64, layout: &FrameLayout) -> Option<Vec<u8>> {
    let table = memory.field(code, layout.code_line_table)?;
    let length = memory.field(table, layout.bytes_length)?.cast_signed();
    let mut bytes = vec![0; usize::try_from(length).ok()?.min(LONGEST_TABLE)];
    memory.fill(table.wrapping_add(layout.bytes_data.into()), &mut bytes)?;
    Some(bytes)
}

#[cfg(test)]
mod tests;
