//! When a heap is taken: between collections, or in a callback at the end of one.

/// A program that waits in a callback of `gc.callbacks`, at the end of a collection.
pub trait HeapCallback: Sync {
    /// Whether it still does; asked while all its threads are stopped.
    fn is_there(&self) -> bool;

    /// It may go on: its heap was copied.
    fn leave(&self);
}

/// When the program is stopped.
pub(crate) enum HeapMoment<'callback> {
    /// While no collection runs.
    BetweenCollections,
    /// At the end of one.
    InCallback(&'callback dyn HeapCallback),
}

impl HeapMoment<'_> {
    /// Whether a collection is in the way.
    pub(crate) fn is_disturbed(&self, is_collecting: impl FnOnce() -> bool) -> bool {
        matches!(self, Self::BetweenCollections) && is_collecting()
    }
}

/// What is in the way of a heap in a callback, if the program has left it.
pub(crate) const NOT_THERE: &str = "was not in the callback";
