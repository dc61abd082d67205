//! Memory beside objects, allocated since the first pass, and copied while the program is stopped.
//!
//! The first pass knows the blocks that objects lead to. A list that has grown since has its items elsewhere, and in a
//! leaking program this list holds everything.

use crate::HeapPlace;
use crate::take::image::Image;
use crate::take::layout::{LIST_ITEMS, Layout, SET_MASK, SET_TABLE, SIZE, TYPE};
use crate::take::types::{Shape, read_type};
use crate::take::walk::Walk;
use crate::take::{FastMap, containers};
use gctrace_cpython::{Dict, Memory as _};

/// Most new objects that are visited whole: each takes about a microsecond.
const MOST_NEW: usize = 100_000;
/// Copies the tables of all tracked containers, and the memory that objects in blocks from number `known` on lead to.
pub(crate) fn copy_tables(
    image: &mut Image,
    layout: &Layout,
    tracked: &[(u64, HeapPlace)],
    known: usize,
) {
    let mut shapes: FastMap<u64, Shape> = FastMap::default();
    let mut new = Vec::new();
    for (address, place) in tracked {
        if image.exceeded().is_some() {
            return;
        }
        if image.is_in_later_block(*address, known) && new.len() < MOST_NEW {
            new.push((*address, *place));
        }
        let Some(kind) = image.field(*address, TYPE) else {
            continue;
        };
        let shape = *shapes.entry(kind).or_insert_with(|| {
            read_type(image, layout, kind).map_or(Shape::Plain, |kind| kind.shape)
        });
        let _unreadable = copy_table(image, layout, *address, shape);
    }
    Walk::new(image, layout, 0).visit_all(new);
}

/// `None` if the object cannot be read.
fn copy_table(image: &mut Image, layout: &Layout, address: u64, shape: Shape) -> Option<()> {
    let mut field = |offset: u64| image.field(address, offset);
    match shape {
        Shape::List => {
            let (table, items) = (field(LIST_ITEMS)?, field(SIZE)?);
            image.cover(table, items.checked_mul(8)?);
        }
        Shape::Dict | Shape::OrderedDict => {
            let Dict { keys, values, .. } = Dict::read(image, layout.minor, address)?;
            match values {
                None => image.cover(keys.entries, keys.count.checked_mul(keys.stride)?),
                Some(values) => image.cover(values, keys.count.checked_mul(8)?),
            }
        }
        Shape::Set => {
            let (table, mask) = (field(SET_TABLE)?, field(SET_MASK)?);
            image.cover(table, mask.checked_add(1)?.checked_mul(16)?);
        }
        Shape::Deque => {
            let _items = containers::deque(image, address)?;
        }
        _ => {}
    }
    Some(())
}
