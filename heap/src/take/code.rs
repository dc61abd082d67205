//! Code objects: file, function, lines, names of variables.

use crate::take::image::Image;
use crate::take::layout::{Layout, SIZE, VariableNames};
use crate::take::text::read_text;
use gctrace_probes::frames::InstructionPointer;
use gctrace_probes::line_table;

/// A code object as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeInfo {
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) first_line: Option<u32>,
    lines: Vec<u8>,
    /// Names of its variables, in the order of a frame's.
    pub(crate) variables: Vec<Option<String>>,
    /// How many of them, at the end, are free.
    pub(crate) free: usize,
}

/// PATH_MAX of Linux.
const LONGEST_NAME: usize = 4096;
/// As in `gctrace_probes::CodeObject`.
const LONGEST_TABLE: usize = 1 << 20;
const MOST_VARIABLES: u64 = 1 << 16;

/// Reads the code object at an address.
pub(crate) fn read_code(image: &mut Image, layout: &Layout, address: u64) -> CodeInfo {
    let frame = &layout.frame;
    let text = |image: &mut Image, offset: u32| {
        let text = image.word(address.wrapping_add(offset.into()))?;
        read_text(image, layout, text, LONGEST_NAME)
    };
    let (variables, free) = variables(image, layout, address).unwrap_or_default();
    let first_line = image.int(address.wrapping_add(frame.code_first_line.into()));
    CodeInfo {
        function: text(image, frame.code_name),
        file: text(image, frame.code_filename),
        first_line: first_line.and_then(|line| line.try_into().ok()),
        lines: table(image, layout, address).unwrap_or_default(),
        variables,
        free,
    }
}

fn table(image: &mut Image, layout: &Layout, address: u64) -> Option<Vec<u8>> {
    let frame = &layout.frame;
    let table = image.word(address.checked_add(frame.code_line_table.into())?)?;
    let length = image.word(table.checked_add(frame.bytes_length.into())?)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?.min(LONGEST_TABLE)];
    image.fill(table.checked_add(frame.bytes_data.into())?, &mut bytes)?;
    Some(bytes)
}

fn variables(
    image: &mut Image,
    layout: &Layout,
    address: u64,
) -> Option<(Vec<Option<String>>, usize)> {
    match layout.variables {
        VariableNames::Joined { names, free_count } => {
            let names = texts(image, layout, address.checked_add(names)?)?;
            let free = image.int(address.checked_add(free_count)?)?;
            Some((names, usize::try_from(free).ok()?))
        }
        VariableNames::Tuples { locals, cells, free } => {
            let mut all = texts(image, layout, address.checked_add(locals)?)?;
            all.extend(texts(image, layout, address.checked_add(cells)?)?);
            let free = texts(image, layout, address.checked_add(free)?)?;
            let count = free.len();
            all.extend(free);
            Some((all, count))
        }
    }
}

/// The texts of the tuple that the word at `place` refers to.
fn texts(image: &mut Image, layout: &Layout, place: u64) -> Option<Vec<Option<String>>> {
    let tuple = image.word(place)?;
    let count = image.word(tuple.checked_add(SIZE)?)?;
    (count <= MOST_VARIABLES).then_some(())?;
    let mut items = Vec::new();
    let first = tuple.checked_add(layout.tuple_items)?;
    image.words(first, count as usize, &mut items);
    let text = |item: &u64| read_text(image, layout, *item, LONGEST_NAME);
    Some(items.iter().map(text).collect())
}

impl CodeInfo {
    /// The line of the instruction at this byte offset, or the first line before the first one.
    pub(crate) fn line(&self, layout: &Layout, byte_offset: i64) -> Option<u32> {
        let Ok(offset) = u32::try_from(byte_offset) else {
            return self.first_line;
        };
        let first = i32::try_from(self.first_line?).ok()?;
        line_table::line(layout.frame.line_table_format, &self.lines, first, offset)
    }

    pub(crate) fn variable(&self, index: usize) -> Option<&str> {
        self.variables.get(index)?.as_deref()
    }

    /// The names of its free variables, in the order of `__closure__`.
    pub(crate) fn free_variables(&self) -> &[Option<String>] {
        let first = self.variables.len().saturating_sub(self.free);
        self.variables.get(first..).unwrap_or_default()
    }
}

/// Byte offset of the instruction that a frame executes; negative before the first.
pub(crate) fn instruction(
    image: &mut Image,
    layout: &Layout,
    frame: u64,
    code: u64,
) -> Option<i64> {
    match layout.frame.instruction {
        InstructionPointer::Index { offset, scale } => {
            let index = image.int(frame.checked_add(offset.into())?)?;
            Some(i64::from(index) * i64::from(scale))
        }
        InstructionPointer::Pointer { offset } => {
            let instruction = image.word(frame.checked_add(offset.into())?)?;
            let start = code.checked_add(layout.frame.code_bytes.into())?;
            Some(instruction.wrapping_sub(start).cast_signed())
        }
    }
}
