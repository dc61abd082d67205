//! Tables of dicts, and the attributes that objects have without one.

use crate::memory::Memory;
use crate::offsets::{
    DICT_BEFORE, DICT_KEYS, DICT_VALUES, VALUES_BEFORE, VALUES_HEAD, VALUES_VALID, dict_keys,
    flags, inline_values,
};

/// Most entries of one container that are read: 2^28 take 4 GiB and more.
const MOST: u64 = 1 << 28;

/// The keys of a dict, or those shared by instances of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Address of the first entry.
    pub entries: u64,
    /// Distance of two entries, and of the key from the start of one; the value follows the key.
    pub stride: u64,
    key: u64,
    /// Number of entries, unused ones included; at most 2^28.
    pub count: u64,
    /// Number of entries that it has place for without growing; at most 2^28.
    pub capacity: u64,
    /// Size of the whole table in bytes.
    pub bytes: u64,
    /// The table of all instances of a class, or the empty one.
    pub is_shared: bool,
}

impl Keys {
    /// Reads `PyDictKeysObject` (Objects/dict-common.h, pycore_dict.h) of a version with this second
    /// number. `None`: it cannot be read, or is too large.
    pub fn read(memory: &mut impl Memory, minor: u8, address: u64) -> Option<Self> {
        if address == 0 {
            return None;
        }
        let has_logarithms = minor >= 11;
        let count = memory.field(address, dict_keys::count(has_logarithms))?;
        let (slots, indices, stride) = if has_logarithms {
            // dk_log2_size, dk_log2_index_bytes, dk_kind
            let [size, index, kind] = memory.array(address.wrapping_add(dict_keys::SLOTS))?;
            if size >= 40 || index >= 43 {
                return None;
            }
            let stride = if kind == 0 { dict_keys::ENTRY } else { dict_keys::NAME_ENTRY };
            (1 << size, 1 << index, stride)
        } else {
            let slots = memory.field(address, dict_keys::SLOTS)?;
            if slots > MOST {
                return None;
            }
            (slots, slots * dict_keys::index_bytes(slots), dict_keys::ENTRY)
        };
        let head = dict_keys::indices(has_logarithms) + indices;
        let keys = Self {
            entries: address.checked_add(head)?,
            stride,
            key: stride - 16,
            count,
            capacity: if has_logarithms {
                count.saturating_add(memory.field(address, dict_keys::USABLE)?)
            } else {
                dict_keys::usable(slots)
            },
            bytes: head + dict_keys::usable(slots) * stride,
            // `dk_refcnt`
            is_shared: memory.word(address)? != 1,
        };
        if keys.count <= MOST && keys.capacity <= MOST { Some(keys) } else { None }
    }

    /// The key of an entry; 0 if it was deleted.
    pub fn key(&self, memory: &mut impl Memory, index: u64) -> Option<u64> {
        let entry = index.wrapping_mul(self.stride).wrapping_add(self.key);
        memory.field(self.entries, entry)
    }

    /// Whether keys may be other objects than texts.
    pub fn is_general(&self) -> bool {
        self.stride == dict_keys::ENTRY
    }
}

/// An entry of a dict: addresses of key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictEntry {
    /// 0: unknown.
    pub key: u64,
    /// Never 0.
    pub value: u64,
}

/// A dict: its table, and its values if they are in one of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dict {
    /// Its table.
    pub keys: Keys,
    /// Address of the first value; `None`: each is in the table, after its key.
    pub values: Option<u64>,
    /// Its values are in an object, and the object itself refers to them (3.13 and later).
    pub is_embedded: bool,
}

impl Dict {
    /// Reads a dict of a version with this second number.
    pub fn read(memory: &mut impl Memory, minor: u8, address: u64) -> Option<Self> {
        let keys = memory.field(address, DICT_KEYS)?;
        let values = memory.field(address, DICT_VALUES)?;
        let keys = Keys::read(memory, minor, keys)?;
        if values == 0 {
            return Some(Self { keys, values: None, is_embedded: false });
        }
        Some(Self {
            keys,
            values: Some(first_value(minor, values)?),
            // `embedded`, the third byte of their head.
            is_embedded: minor >= 13 && memory.byte(values.checked_add(2)?)? != 0,
        })
    }

    /// Its own memory beside the object, in bytes: a shared table belongs to a class.
    #[inline]
    pub fn bytes(&self) -> u64 {
        let keys = if self.keys.is_shared { 0 } else { self.keys.bytes };
        let is_apart = self.values.is_some() && !self.is_embedded;
        keys + if is_apart { self.keys.capacity * 8 } else { 0 }
    }

    /// Its entries in order.
    pub fn entries(&self, memory: &mut impl Memory) -> Vec<DictEntry> {
        let Keys { entries, stride, key, count, .. } = self.keys;
        if let Some(values) = self.values {
            return values_of(memory, &self.keys, values);
        }
        let (words, first) = ((stride / 8) as usize, (key / 8) as usize);
        let mut table = Vec::new();
        memory.words(entries, count as usize * words, &mut table);
        let entry = |entry: &[u64]| {
            let (key, value) = (*entry.get(first)?, *entry.get(first + 1)?);
            if value != 0 { Some(DictEntry { key, value }) } else { None }
        };
        table.chunks_exact(words).filter_map(entry).collect()
    }
}

/// Address of the first value of a dict or an object (`PyDictValues`; from 3.13 on its header comes first).
#[inline]
fn first_value(minor: u8, values: u64) -> Option<u64> {
    values.checked_add(if minor >= 13 { VALUES_HEAD } else { 0 })
}

/// Shared keys with one object's values.
fn values_of(memory: &mut impl Memory, keys: &Keys, values: u64) -> Vec<DictEntry> {
    let mut words = Vec::new();
    memory.words(values, keys.count as usize, &mut words);
    let mut entries = Vec::new();
    for (index, value) in (0..).zip(words) {
        if value != 0 {
            entries.push(DictEntry { key: keys.key(memory, index).unwrap_or(0), value });
        }
    }
    entries
}

/// How a class with [`flags::MANAGED_DICT`] stores the attributes of its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceLayout {
    /// Second number of the version.
    pub minor: u8,
    /// `tp_basicsize`, in bytes.
    pub basic_size: u64,
    /// `tp_flags`.
    pub flags: u64,
    /// `ht_cached_keys`: address of the keys that instances share; 0: none.
    pub keys: u64,
}

impl InstanceLayout {
    /// Addresses of the values of an object, and of its dict; 0 if it does not have them.
    #[inline]
    pub fn places(self, memory: &mut impl Memory, object: u64) -> Option<(u64, u64)> {
        let mut before = |distance: u64| memory.word(object.wrapping_sub(distance));
        Some(match self.minor {
            // Two words: values, dict (Objects/object.c of 3.11).
            ..=11 => (before(VALUES_BEFORE)?, before(DICT_BEFORE)?),
            // One word for both, its low bit set for values (pycore_object.h of 3.12).
            12 => match before(DICT_BEFORE)? {
                both if both & 1 == 1 => (both.wrapping_add(1), 0),
                dict => (0, dict),
            },
            // The dict before the object; valid values after it.
            _ => {
                let dict = before(DICT_BEFORE)?;
                let values = object.wrapping_add(self.basic_size);
                let is_valid = self.has_inline_values()
                    && memory.byte(values.wrapping_add(VALUES_VALID))? != 0;
                (if is_valid { values } else { 0 }, dict)
            }
        })
    }

    /// Whether each instance has values behind it, in use or not.
    fn has_inline_values(self) -> bool {
        self.minor >= 13 && self.flags & flags::INLINE_VALUES != 0
    }

    /// Size of the values of an object, in bytes.
    #[inline]
    pub fn bytes(self, memory: &mut impl Memory, object: u64) -> Option<u64> {
        if self.has_inline_values() {
            return memory.byte(object.wrapping_add(self.basic_size)).map(inline_values);
        }
        let (values, _) = self.places(memory, object)?;
        if values == 0 {
            return Some(0);
        }
        // `new_values` in Objects/dictobject.c of 3.11 and 3.12: before them are two bytes and one for each value. The
        // padded size of these bytes is `values[-1]`. There were more when the class had fewer instances.
        let head = u64::from(memory.byte(values.wrapping_sub(1))?);
        let keys = Keys::read(memory, self.minor, self.keys)?;
        Some(head + keys.capacity.max(head.saturating_sub(2 + 7)) * 8)
    }

    /// The attributes at an address of values that is not 0.
    pub fn entries(self, memory: &mut impl Memory, values: u64) -> Option<Vec<DictEntry>> {
        let keys = Keys::read(memory, self.minor, self.keys)?;
        Some(values_of(memory, &keys, first_value(self.minor, values)?))
    }
}
