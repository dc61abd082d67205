//! Code objects, with the names of their variables.

use crate::take::image::Image;
use crate::take::layout::{Layout, SIZE, VariableNames};
use crate::take::text::read_text;
use gctrace_cpython::{CodeObject, Memory as _};

/// A code object as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeInfo {
    /// Function, file and lines; `None` if they cannot be read.
    pub(crate) object: Option<CodeObject>,
    /// Names of its variables, in the order of a frame's.
    pub(crate) variables: Vec<Option<String>>,
    /// How many of them, at the end, are free.
    pub(crate) free: usize,
}

/// PATH_MAX of Linux.
const LONGEST_NAME: usize = 4096;
const MOST_VARIABLES: u64 = 1 << 16;

/// Reads the code object at an address.
pub(crate) fn read_code(image: &mut Image, layout: &Layout, address: u64) -> CodeInfo {
    let (variables, free) = variables(image, layout, address).unwrap_or_default();
    CodeInfo { object: CodeObject::read(image, address, &layout.frame), variables, free }
}

fn variables(
    image: &mut Image,
    layout: &Layout,
    address: u64,
) -> Option<(Vec<Option<String>>, usize)> {
    match layout.variables {
        VariableNames::Joined { names, free_count } => {
            let names = texts(image, layout, address.checked_add(names)?)?;
            let free = image.int_field(address, free_count)?;
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
    let count = image.field(tuple, SIZE)?;
    (count <= MOST_VARIABLES).then_some(())?;
    let mut items = Vec::new();
    let first = tuple.checked_add(layout.tuple_items)?;
    image.words(first, count as usize, &mut items);
    let text = |item: &u64| read_text(image, layout, *item, LONGEST_NAME);
    Some(items.iter().map(text).collect())
}

impl CodeInfo {
    /// The line of the instruction at this byte offset, or the first line before the first one.
    pub(crate) fn line(&self, byte_offset: i64) -> Option<u32> {
        self.object.as_ref()?.frame_line(byte_offset.try_into().ok())
    }

    pub(crate) fn variable(&self, index: usize) -> Option<&str> {
        self.variables.get(index)?.as_deref()
    }

    /// The names of its free variables, in the order of `__closure__`.
    pub(crate) fn free_variables(&self) -> &[Option<String>] {
        let first = self.variables.len().saturating_sub(self.free);
        gctrace_units::part(&self.variables, first..)
    }
}
