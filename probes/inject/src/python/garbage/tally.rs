//! Counts the objects of one walk by kind.

use super::bytes::Size;
use super::kinds::CodePath;
use super::kinds::KindReader;
use super::kinds::ObjectKey;
use super::layout::TypeView;
use super::layout::type_of;
use crate::process_ring::ProcessRing;
use crate::python::api::NULL;
use crate::python::api::Object;
use gctrace_ring::RingKindCount;
use std::collections::HashMap;

/// Maximum number of kinds per collection; objects of more are only in its sum.
const MAX_KINDS: usize = 1 << 12;

/// Counts of one kind. In the first one of a type, without code, also how its objects are read.
struct Counted {
    key: ObjectKey,
    path: CodePath,
    size: Size,
    objects: u64,
    /// `None`: of at least one the size is unknown.
    bytes: Option<u64>,
}

/// The objects seen so far, by kind.
pub(super) struct Tally {
    /// Places in `kinds`, counted from 1, by the hash of their keys; a power of two of them, at most
    /// half of them in use.
    places: Box<[u16]>,
    kinds: Vec<Counted>,
    objects: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            places: vec![0; 64].into(),
            kinds: Vec::new(),
            objects: 0,
        }
    }

    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.kinds.clear();
        self.places.fill(0);
        self.objects = 0;
    }

    /// Number of objects counted.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Counts an object.
    ///
    /// # Safety
    /// The lock is held; the object is on the collector's list.
    #[inline]
    pub(super) unsafe fn count(&mut self, reader: &KindReader, object: Object) {
        self.objects += 1;
        // SAFETY: as the caller promises.
        let class = unsafe { type_of(object) };
        let plain = ObjectKey {
            class,
            code: NULL,
            line: 0,
        };
        let Some(at) = self.place(plain, |tally| tally.first(reader, class)) else {
            return;
        };
        let first = &self.kinds[at];
        let (path, size) = (first.path, first.size);
        // SAFETY: as the caller promises; both are those of its type.
        let (bytes, (code, line)) = unsafe { (size.of(object), reader.code(object, path)) };
        let at = if code.is_null() {
            Some(at)
        } else {
            let key = ObjectKey { class, code, line };
            self.place(key, |_| Counted {
                key,
                path,
                size,
                objects: 0,
                bytes: Some(0),
            })
        };
        if let Some(at) = at {
            let counted = &mut self.kinds[at];
            counted.objects += 1;
            counted.bytes = counted.bytes.zip(bytes).map(|(sum, more)| sum + more);
        }
    }

    fn first(&self, reader: &KindReader, class: Object) -> Counted {
        let key = ObjectKey {
            class,
            code: NULL,
            line: 0,
        };
        // SAFETY: the type of an object that is alive.
        let class = unsafe { TypeView::new(class) };
        Counted {
            key,
            path: reader.path(class),
            size: reader.size(class),
            objects: 0,
            bytes: Some(0),
        }
    }

    /// Index of a kind, added if it is new; `None` if there are too many.
    #[inline]
    fn place(&mut self, key: ObjectKey, add: impl FnOnce(&Self) -> Counted) -> Option<usize> {
        let mut at = self.start(key);
        loop {
            match self.places[at] {
                0 => break,
                kind if self.kinds[usize::from(kind) - 1].key == key => {
                    return Some(usize::from(kind) - 1);
                }
                _ => at = (at + 1) % self.places.len(),
            }
        }
        if self.kinds.len() == MAX_KINDS {
            return None;
        }
        let counted = add(self);
        self.kinds.push(counted);
        self.places[at] = self.kinds.len() as u16;
        if self.kinds.len() * 2 > self.places.len() {
            self.grow();
        }
        Some(self.kinds.len() - 1)
    }

    /// Where the search for a key begins.
    #[inline]
    fn start(&self, key: ObjectKey) -> usize {
        /// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
        const FIBONACCI: usize = 0x9e37_79b9_7f4a_7c15;
        let mixed = key.class.addr() ^ key.code.addr().rotate_left(20) ^ key.line as usize;
        (mixed.wrapping_mul(FIBONACCI) >> 32) & (self.places.len() - 1)
    }

    #[cold]
    fn grow(&mut self) {
        self.places = vec![0; self.places.len() * 2].into();
        for index in 0..self.kinds.len() {
            let mut at = self.start(self.kinds[index].key);
            while self.places[at] != 0 {
                at = (at + 1) % self.places.len();
            }
            self.places[at] = index as u16 + 1;
        }
    }

    /// The counts by the kinds' numbers in a ring, most objects first.
    ///
    /// # Safety
    /// The lock is held; the objects are still on the collector's list.
    pub(super) unsafe fn by_kind(
        &self,
        reader: &mut KindReader,
        ring: &ProcessRing,
    ) -> Vec<RingKindCount> {
        // Classes of the same name, for example, are one kind.
        let mut sums = HashMap::new();
        for counted in self.kinds.iter().filter(|counted| counted.objects > 0) {
            // SAFETY: as the caller promises.
            let kind = unsafe { reader.kind(ring, counted.key) };
            if kind == 0 {
                continue;
            }
            let (objects, bytes) = sums.entry(kind).or_insert((0, Some(0)));
            *objects += counted.objects;
            *bytes = bytes.zip(counted.bytes).map(|(sum, more)| sum + more);
        }
        let counts = sums.into_iter();
        let mut counts: Vec<RingKindCount> = counts
            .map(|(kind, (objects, bytes))| RingKindCount {
                objects,
                bytes: bytes.unwrap_or(RingKindCount::UNKNOWN),
                kind,
                reserved: 0,
            })
            .collect();
        counts.sort_unstable_by_key(|count| (std::cmp::Reverse(count.objects), count.kind));
        counts
    }
}
