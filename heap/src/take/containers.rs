//! Tables of dicts and sets, attributes of objects, and blocks of deques.

use crate::take::image::Image;
use crate::take::layout::{
    DEQUE_BLOCK, DEQUE_LEFT, DEQUE_LEFT_INDEX, DEQUE_RIGHT_INDEX, DICT_BEFORE, DICT_KEYS,
    DICT_VALUES, Layout, SET_MASK, SET_SMALL_TABLE, SET_TABLE, SIZE, TYPE, VALUES_BEFORE,
    VALUES_HEAD, VALUES_VALID, dict_keys, flags, type_object,
};
use crate::take::text::read_text;
use gctrace_cpython::Memory as _;

/// Most entries of one container that are read: 2^28 take 4 GiB and more.
const MOST: u64 = 1 << 28;

/// The keys of a dict, or those shared by instances of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Of the first entry.
    pub(crate) entries: u64,
    /// Distance of two entries, and of the key from the start of one; the value follows the key.
    pub(crate) stride: u64,
    key: u64,
    /// Number of entries, unused ones included.
    pub(crate) count: u64,
    /// Number of entries that it has place for without growing; at most [`MOST`].
    pub(crate) capacity: u64,
    /// Of the whole table in bytes.
    pub(crate) bytes: u64,
    /// The table of all instances of a class, or the empty one.
    pub(crate) is_shared: bool,
}

impl Keys {
    /// `PyDictKeysObject` (Objects/dict-common.h, pycore_dict.h).
    pub(crate) fn read(image: &mut Image, layout: &Layout, address: u64) -> Option<Self> {
        (address != 0).then_some(())?;
        let has_logarithms = layout.minor >= 11;
        let count = image.field(address, dict_keys::count(has_logarithms))?;
        let first = address.checked_add(dict_keys::SLOTS)?;
        let (slots, indices, stride) = if has_logarithms {
            // dk_log2_size, dk_log2_index_bytes, dk_kind
            let [size, index, kind] = image.array(first)?;
            (size < 40 && index < 43).then_some(())?;
            let stride = if kind == 0 { dict_keys::ENTRY } else { dict_keys::NAME_ENTRY };
            (1 << size, 1 << index, stride)
        } else {
            let slots = image.word(first)?;
            (slots <= MOST).then_some(())?;
            (slots, slots * dict_keys::index_bytes(slots), dict_keys::ENTRY)
        };
        let head = dict_keys::indices(has_logarithms) + indices;
        let keys = Self {
            entries: address.checked_add(head)?,
            stride,
            key: stride - 16,
            count,
            capacity: if has_logarithms {
                count.saturating_add(image.field(address, dict_keys::USABLE)?)
            } else {
                dict_keys::usable(slots)
            },
            bytes: head + dict_keys::usable(slots) * stride,
            // `dk_refcnt`
            is_shared: image.word(address)? != 1,
        };
        (keys.count <= MOST && keys.capacity <= MOST).then_some(keys)
    }

    /// The size of the table in bytes if it belongs to one dict, otherwise 0.
    fn of_one(&self) -> u64 {
        if self.is_shared { 0 } else { self.bytes }
    }

    /// The key of an entry; 0 if it was deleted.
    pub(crate) fn key(&self, image: &mut Image, index: u64) -> Option<u64> {
        let entry = index.wrapping_mul(self.stride).wrapping_add(self.key);
        image.field(self.entries, entry)
    }

    /// Whether keys may be other objects than texts.
    fn is_general(&self) -> bool {
        self.stride == dict_keys::ENTRY
    }
}

/// An entry of a dict: addresses of key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DictEntry {
    pub(crate) key: u64,
    pub(crate) value: u64,
}

/// What a dict refers to.
#[derive(Clone, Debug, Default)]
pub(crate) struct DictContents {
    pub(crate) entries: Vec<DictEntry>,
    /// Own memory beside the object, in bytes.
    pub(crate) bytes: u64,
    /// Its values are in an object, which refers to them itself (3.13 and later).
    pub(crate) is_embedded: bool,
}

/// The entries of a dict.
pub(crate) fn dict(image: &mut Image, layout: &Layout, address: u64) -> Option<DictContents> {
    let keys = image.field(address, DICT_KEYS)?;
    let values = image.field(address, DICT_VALUES)?;
    let keys = Keys::read(image, layout, keys)?;
    if values == 0 {
        let words = (keys.count * (keys.stride / 8)) as usize;
        let mut table = Vec::new();
        image.words(keys.entries, words, &mut table);
        let first = (keys.key / 8) as usize;
        let entries = table
            .chunks_exact((keys.stride / 8) as usize)
            .filter_map(|entry| {
                let (key, value) = (*entry.get(first)?, *entry.get(first + 1)?);
                (value != 0).then_some(DictEntry { key, value })
            })
            .collect();
        return Some(DictContents { entries, bytes: keys.of_one(), is_embedded: false });
    }
    let is_embedded = layout.minor >= 13 && image.byte(values.checked_add(2)?)? != 0;
    Some(DictContents {
        entries: values_of(image, &keys, value_words(layout, values)?),
        bytes: keys.of_one() + if is_embedded { 0 } else { keys.capacity * 8 },
        is_embedded,
    })
}

/// The first of a dict's or an object's values (`PyDictValues`, whose header comes first from 3.13
/// on).
pub(crate) fn value_words(layout: &Layout, values: u64) -> Option<u64> {
    values.checked_add(if layout.minor >= 13 { VALUES_HEAD } else { 0 })
}

/// Shared keys with one object's values.
pub(crate) fn values_of(image: &mut Image, keys: &Keys, values: u64) -> Vec<DictEntry> {
    let mut words = Vec::new();
    image.words(values, keys.count as usize, &mut words);
    let mut entries = Vec::new();
    for (index, value) in (0..).zip(words) {
        if value != 0 {
            entries.push(DictEntry { key: keys.key(image, index).unwrap_or(0), value });
        }
    }
    entries
}

/// The value under a text in a dict.
pub(crate) fn find_key(image: &mut Image, layout: &Layout, address: u64, key: &str) -> Option<u64> {
    (address != 0).then_some(())?;
    let contents = dict(image, layout, address)?;
    named(image, layout, &contents.entries, key)
}

/// The values in an object with [`flags::MANAGED_DICT`], and its dict; 0 for what it does not have.
pub(crate) fn managed(
    image: &mut Image,
    layout: &Layout,
    address: u64,
    basic_size: u64,
    type_flags: u64,
) -> Option<(u64, u64)> {
    let before = |distance: u64| address.checked_sub(distance);
    Some(match layout.minor {
        // Two words: values, dict (Objects/object.c of 3.11).
        ..=11 => (image.word(before(VALUES_BEFORE)?)?, image.word(before(DICT_BEFORE)?)?),
        // One word for both, its low bit set for values (pycore_object.h of 3.12).
        12 => match image.word(before(DICT_BEFORE)?)? {
            both if both & 1 == 1 => (both.wrapping_add(1), 0),
            dict => (0, dict),
        },
        // The dict before the object; valid values after it.
        _ => {
            let values = address.checked_add(basic_size)?;
            let is_valid = type_flags & flags::INLINE_VALUES != 0
                && image.byte(values.checked_add(VALUES_VALID)?)? != 0;
            (if is_valid { values } else { 0 }, image.word(before(DICT_BEFORE)?)?)
        }
    })
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
    let (values, dict) = managed(image, layout, address, basic_size, type_flags)?;
    if values == 0 {
        return find_key(image, layout, dict, name);
    }
    let keys = Keys::read(image, layout, keys)?;
    let entries = values_of(image, &keys, value_words(layout, values)?);
    named(image, layout, &entries, name)
}

/// The value of the entry whose key is a text.
fn named(image: &mut Image, layout: &Layout, entries: &[DictEntry], key: &str) -> Option<u64> {
    Some(entries.iter().find(|entry| is_text(image, layout, entry.key, key))?.value)
}

/// Whether the object at an address is this text.
pub(crate) fn is_text(image: &mut Image, layout: &Layout, address: u64, text: &str) -> bool {
    // Up to four bytes for each character, and one that is too many for another text to be cut to this one.
    let longest = 4 * (text.len() + 1);
    read_text(image, layout, address, longest).is_some_and(|read| read == text)
}

/// Whether a dict's keys may be other objects than texts.
pub(crate) fn has_general_keys(image: &mut Image, layout: &Layout, address: u64) -> bool {
    let keys = image.field(address, DICT_KEYS).unwrap_or(0);
    Keys::read(image, layout, keys).is_some_and(|keys| keys.is_general())
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
