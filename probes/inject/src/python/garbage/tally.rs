//! Counts the objects of one walk by kind.

use super::births;
use super::bytes::Size;
use super::kinds::{CodePath, KindReader, ObjectKey};
use super::layout::{TypeView, type_of};
use crate::memory::Map;
use crate::process_ring::PythonRing;
use crate::python::api::{NULL, Object};
use gctrace_ring::{RingBirthCount, RingKindCount};

/// Maximum number of kinds per collection; objects of more are only in its sum. All of them new take some 4,300 of the
/// ring's 16,384 slots: each a slot, and three for its texts, if these are short.
const MAX_KINDS: usize = 1 << 10;

/// Maximum number of lines of births per collection.
const MAX_BIRTHS: usize = 1 << 8;

/// A sum of sizes with one more; `None`: one of them is unknown.
pub(super) fn sum(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    Some(sum? + more?)
}

/// Counts of one kind. In the first one of a type, without code, also how its objects are read.
struct CountedKind {
    key: ObjectKey,
    path: CodePath,
    size: Size,
    /// From an object's block to the object, if it can be found by that ([`births`]).
    distance: Option<usize>,
    objects: u64,
    /// Of objects with different sizes; `None`: at least one size is unknown.
    bytes: Option<u64>,
}

impl CountedKind {
    /// Their memory in bytes.
    fn bytes(&self) -> Option<u64> {
        match (self.path, self.size) {
            (CodePath::None, Size::Fixed(each)) => Some(each * self.objects),
            _ => self.bytes,
        }
    }
}

/// The objects seen so far, by kind.
pub(super) struct Tally {
    /// Places in `kinds`, counted from 1, by the hash of their keys; a power of two of them, at most
    /// half of them in use.
    places: Box<[u16]>,
    kinds: Vec<CountedKind>,
    objects: u64,
    /// Samples of births, of objects that stand for them, by place of the kind and number of the line.
    births: Map<(usize, u32), u32>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { places: vec![0; 64].into(), kinds: Vec::new(), objects: 0, births: Map::default() }
    }

    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.kinds.clear();
        self.places.fill(0);
        self.objects = 0;
        self.births.clear();
    }

    /// Number of objects counted.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Counts an object; returns the place of its kind, or `None` if there are too many.
    ///
    /// # Safety
    /// The lock is held; the object is on the collector's list.
    #[inline]
    pub(super) unsafe fn count(&mut self, reader: &KindReader, object: Object) -> Option<usize> {
        self.objects += 1;
        // SAFETY: as the caller promises.
        let class = unsafe { type_of(object) };
        let plain = ObjectKey { class, code: NULL, line: 0 };
        let at = self.place(plain, |tally| tally.first(reader, class))?;
        let first = &mut self.kinds[at];
        let (path, size) = (first.path, first.size);
        if let Some(distance) = first.distance
            && let Some((line, samples)) = births::birth(births::block_of(object, distance))
        {
            let sum = self.births.entry((at, line)).or_insert(0);
            *sum = sum.saturating_add(samples);
        }
        if let (CodePath::None, Size::Fixed(_)) = (path, size) {
            first.objects += 1;
            return Some(at);
        }
        // SAFETY: as the caller promises; both belong to its type.
        let (bytes, (code, line)) = unsafe { (size.of(object), reader.code(object, path)) };
        let at = if code.is_null() {
            at
        } else {
            let key = ObjectKey { class, code, line };
            self.place(key, |_| CountedKind {
                key,
                path,
                size,
                distance: None,
                objects: 0,
                bytes: Some(0),
            })?
        };
        let counted = &mut self.kinds[at];
        counted.objects += 1;
        counted.bytes = sum(counted.bytes, bytes);
        Some(at)
    }

    /// The size of an object of the kind at that place in bytes; `None` if unknown.
    ///
    /// # Safety
    /// The object is alive, and was counted there.
    pub(super) unsafe fn bytes(&self, kind: usize, object: Object) -> Option<u64> {
        let kind = self.kinds.get(kind)?;
        // SAFETY: as the caller promises.
        unsafe { kind.size.of(object) }
    }

    fn first(&self, reader: &KindReader, class: Object) -> CountedKind {
        let key = ObjectKey { class, code: NULL, line: 0 };
        // SAFETY: the type of an object that is alive.
        let class = unsafe { TypeView::new(class) };
        CountedKind {
            key,
            path: reader.path(class),
            size: reader.size(class),
            distance: reader.distance(class),
            objects: 0,
            bytes: Some(0),
        }
    }

    /// Index of a kind, added if it is new; `None` if there are too many.
    #[inline]
    fn place(&mut self, key: ObjectKey, add: impl FnOnce(&Self) -> CountedKind) -> Option<usize> {
        let mut at = self.start(key);
        loop {
            match self.places[at] {
                0 => break,
                kind if self.kinds[usize::from(kind) - 1].key == key => {
                    return Some(usize::from(kind) - 1);
                }
                _ => at = (at + 1) & (self.places.len() - 1),
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

    /// The kinds' numbers in a ring, by their places; 0: there is no room, or no object.
    ///
    /// # Safety
    /// The lock is held; the objects are still on the collector's list.
    pub(super) unsafe fn numbers(&self, reader: &mut KindReader, ring: &PythonRing) -> Vec<u32> {
        let number = |counted: &CountedKind| match counted.objects {
            0 => 0,
            // SAFETY: as the caller promises.
            _ => unsafe { reader.kind(ring, counted.key) },
        };
        self.kinds.iter().map(number).collect()
    }

    /// The lines that allocated sampled objects, as kinds with numbers in a ring, and the number of objects of each,
    /// most first.
    ///
    /// # Safety
    /// As for [`Tally::numbers`].
    pub(super) unsafe fn births(
        &self,
        reader: &mut KindReader,
        ring: &PythonRing,
    ) -> Vec<RingBirthCount> {
        let number = |(&(place, line), &samples): (&(usize, u32), &u32)| {
            let (class, line) = (self.kinds.get(place)?.key.class, births::line(line)?);
            // SAFETY: as the caller promises.
            let kind = unsafe { reader.born(ring, class, &line) };
            if kind != 0 { Some(RingBirthCount { kind, samples }) } else { None }
        };
        let mut births: Vec<RingBirthCount> = self.births.iter().filter_map(number).collect();
        births.sort_unstable_by_key(|birth| (std::cmp::Reverse(birth.samples), birth.kind));
        births.truncate(MAX_BIRTHS);
        births
    }

    /// The counts by these numbers, most objects first.
    pub(super) fn by_kind(&self, numbers: &[u32]) -> Vec<RingKindCount> {
        // Classes of the same name, for example, are one kind.
        let mut sums = Map::default();
        let kinds = self.kinds.iter().zip(numbers);
        for (counted, number) in kinds.filter(|(_, number)| **number != 0) {
            let (objects, bytes) = sums.entry(*number).or_insert((0, Some(0)));
            *objects += counted.objects;
            *bytes = sum(*bytes, counted.bytes());
        }
        let counts = sums.into_iter();
        let mut counts: Vec<RingKindCount> =
            counts.map(|(kind, (objects, bytes))| RingKindCount { objects, bytes, kind }).collect();
        counts.sort_unstable_by_key(|count| (std::cmp::Reverse(count.objects), count.kind));
        counts
    }
}
