//! Typed indices into the lists of a timeline, small numbers that may be unknown, and threads.
//!
//! Both take 4 bytes, as an `Option` too: a large trace has tens of millions of them.
//!
//! A list has at most `u32::MAX` entries. Whoever makes an index beyond panics: a trace would have
//! to be hundreds of gigabytes long, and the list alone would take over 60 GB of memory.

use bitcode::{Decode, Encode};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;

/// A number from 0 to `u32::MAX - 1`, such as a count or a sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct SmallNumber(
    /// One more than the number.
    NonZeroU32,
);

impl SmallNumber {
    /// The largest number: `u32::MAX - 1`.
    pub const MAX: Self = Self(NonZeroU32::MAX);

    /// A number; `None` if it is larger than [`Self::MAX`].
    pub fn new(number: u64) -> Option<Self> {
        let next = u32::try_from(number).ok()?.checked_add(1)?;
        NonZeroU32::new(next).map(Self)
    }

    /// A number, or [`Self::MAX`] if it is larger.
    pub fn at_most_max(number: u64) -> Self {
        Self::new(number).unwrap_or(Self::MAX)
    }

    /// The number as an integer, at most `u32::MAX - 1`.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get() - 1
    }
}

impl fmt::Debug for SmallNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The place of an entry in a list of `T`, from 0.
#[derive(Encode, Decode)]
pub struct Index<T>(SmallNumber, PhantomData<fn() -> T>);

impl<T> Index<T> {
    /// The index of the entry at that place.
    ///
    /// # Panics
    ///
    /// From `u32::MAX` on: no list is that long.
    #[expect(clippy::expect_used, reason = "memory runs out before")]
    pub fn new(at: usize) -> Self {
        let at = SmallNumber::new(at as u64);
        Self(at.expect("a list of fewer than 2^32 entries"), PhantomData)
    }

    /// The place in the list, from 0.
    #[must_use]
    pub fn at(self) -> usize {
        self.0.get() as usize
    }

    /// The index of an entry that is appended.
    pub fn push(list: &mut Vec<T>, entry: T) -> Self {
        let index = Self::new(list.len());
        list.push(entry);
        index
    }

    /// The indices of all entries of a list, in order.
    pub fn all(list: &[T]) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + use<T> {
        (0..list.len()).map(Self::new)
    }

    /// All entries of a list with their indices, in order.
    pub fn enumerate(
        list: &[T],
    ) -> impl DoubleEndedIterator<Item = (Self, &T)> + ExactSizeIterator {
        let entries = list.iter().enumerate();
        entries.map(|(at, entry)| (Self::new(at), entry))
    }
}

impl<T> std::ops::Index<Index<T>> for Vec<T> {
    type Output = T;

    fn index(&self, index: Index<T>) -> &T {
        &self[index.at()]
    }
}

impl<T> std::ops::IndexMut<Index<T>> for Vec<T> {
    fn index_mut(&mut self, index: Index<T>) -> &mut T {
        &mut self[index.at()]
    }
}

// Derived, these would ask the same of `T`.

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Index<T> {}

impl<T> PartialEq for Index<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Index<T> {}

impl<T> PartialOrd for Index<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Index<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T> Hash for Index<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T> fmt::Debug for Index<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const _: () = assert!(size_of::<Option<SmallNumber>>() == 4);
const _: () = assert!(size_of::<Option<Index<String>>>() == 4);

/// Place of a thread in the `threads` of its timeline.
pub type ThreadIndex = Index<Thread>;

/// A thread of the process that appears in its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Thread id as the trace states it: in gctrace's, the kernel's on the host.
    pub tid: u32,
    /// Name of the thread; `None` if unknown.
    pub name: Option<String>,
}
