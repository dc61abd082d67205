//! Tables of dicts and sets, attributes of objects, and blocks of deques.

use crate::take::image::Image;
use crate::take::layout::{
    DEQUE_BLOCK, DEQUE_LEFT, DEQUE_LEFT_INDEX, DEQUE_RIGHT_INDEX, Layout, SET_MASK,
    SET_SMALL_TABLE, SET_TABLE, SIZE, TYPE, flags, type_object,
};
use crate::take::text::read_text;
use gctrace_cpython::{Dict, DictEntry, InstanceLayout, Memory as _};

/// Most entries of one container that are read: 2^28 take 4 GiB and more.
const MOST: u64 = 1 << 28;

/// The entries of a dict.
pub(crate) fn dict(image: &mut Image, layout: &Layout, address: u64) -> Option<Vec<DictEntry>> {
    Some(Dict::read(image, layout.minor, address)?.entries(image))
}

/// The value under a text in a dict.
pub(crate) fn find_key(image: &mut Image, layout: &Layout, address: u64, key: &str) -> Option<u64> {
    (address != 0).then_some(())?;
    let entries = dict(image, layout, address)?;
    named(image, layout, &entries, key)
}

/// The value of an attribute that an object of a class has itself.
pub(crate) fn attribute(
    image: &mut Image,
    layout: &Layout,
    address: u64,
    name: &str,
) -> Option<u64> {
    let kind = image.field(address, TYPE)?;
    let mut field = |offset: u64| image.field(kind, offset);
    let type_flags = field(type_object::FLAGS)?;
    let basic_size = field(type_object::BASIC_SIZE)?;
    if type_flags & flags::MANAGED_DICT == 0 {
        let offset = field(type_object::DICT_OFFSET)?;
        (offset != 0 && offset < basic_size).then_some(())?;
        let dict = image.field(address, offset)?;
        return find_key(image, layout, dict, name);
    }
    let keys = field(layout.cached_keys)?;
    let instances = InstanceLayout { minor: layout.minor, basic_size, flags: type_flags, keys };
    let (values, dict) = instances.places(image, address)?;
    if values == 0 {
        return find_key(image, layout, dict, name);
    }
    let entries = instances.entries(image, values)?;
    named(image, layout, &entries, name)
}

/// The value of the entry with this text as its key.
fn named(image: &mut Image, layout: &Layout, entries: &[DictEntry], key: &str) -> Option<u64> {
    Some(entries.iter().find(|entry| is_text(image, layout, entry.key, key))?.value)
}

/// Whether the object at an address is this text.
pub(crate) fn is_text(image: &mut Image, layout: &Layout, address: u64, text: &str) -> bool {
    // Up to four bytes for each character, and one character more: a longer text must not be cut to this one.
    let longest = 4 * (text.len() + 1);
    read_text(image, layout, address, longest).is_some_and(|read| read == text)
}

/// Items of a set, and its memory beside the object in bytes.
pub(crate) fn set(image: &mut Image, address: u64) -> Option<(Vec<u64>, u64)> {
    let slots = image.field(address, SET_MASK)?.checked_add(1)?;
    (slots <= MOST).then_some(())?;
    let table = image.field(address, SET_TABLE)?;
    let mut words = Vec::new();
    image.words(table, slots as usize * 2, &mut words);
    let items = words.chunks_exact(2).filter_map(|slot| slot.first().copied());
    let items = items.filter(|item| *item != 0).collect();
    let is_inside = table == address.wrapping_add(SET_SMALL_TABLE);
    Some((items, if is_inside { 0 } else { slots * 16 }))
}

/// Items of a deque in order, and the memory of its blocks in bytes.
pub(crate) fn deque(image: &mut Image, address: u64) -> Option<(Vec<u64>, u64)> {
    let length = image.field(address, SIZE)?;
    (length <= MOST).then_some(())?;
    let mut block = image.field(address, DEQUE_LEFT)?;
    let left = image.field(address, DEQUE_LEFT_INDEX)?;
    let right = image.field(address, DEQUE_RIGHT_INDEX)?;
    let last_block = image.field(address, DEQUE_LEFT + 8)?;
    let mut items = Vec::new();
    let mut blocks = 1;
    let mut from = left;
    let mut words = Vec::new();
    while (items.len() as u64) < length {
        let to = if block == last_block { right } else { DEQUE_BLOCK - 1 };
        (from < DEQUE_BLOCK && to < DEQUE_BLOCK).then_some(())?;
        let count = to.saturating_add(1).saturating_sub(from);
        image.words(block.checked_add(8 + from * 8)?, count as usize, &mut words);
        items.extend_from_slice(&words);
        if block == last_block {
            break;
        }
        block = image.field(block, 8 + DEQUE_BLOCK * 8)?;
        blocks += 1;
        from = 0;
    }
    Some((items, blocks * (DEQUE_BLOCK + 2) * 8))
}
