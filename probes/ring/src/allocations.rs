//! Size classes of allocations.

/// Number of size classes: 32 of 16 bytes each, like pymalloc's for up to 512 bytes
/// (Objects/obmalloc.c, `ALIGNMENT`, since CPython 3.8), powers of two up to 512 MiB, and one for
/// everything larger.
pub const CLASSES: usize = 53;

const SMALL: usize = 32;

/// Totals of one size class, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationTotals {
    /// Number of allocations, whether freed since or not.
    pub count: u64,
    /// Sum of the requested sizes, in bytes.
    pub bytes: u64,
}

/// The class of a size in bytes: 0 for 0 - 16, 1 for 17 - 32, ...
#[must_use]
#[inline]
pub fn class_of(size: usize) -> usize {
    if size <= SMALL * 16 {
        return size.saturating_sub(1) / 16;
    }
    // 513 - 1024 is class 32.
    let class = SMALL + (size - 1).ilog2() as usize - 9;
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// The largest size of a class in bytes; `None` for the last, which is unbounded.
#[must_use]
pub fn largest_of_class(class: usize) -> Option<u64> {
    match class {
        0..SMALL => Some((class as u64 + 1) * 16),
        _ if class < CLASSES - 1 => Some(1024 << (class - SMALL)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_the_smallest_fitting_class() {
        let edges = (0..40).flat_map(|bits| [(1_usize << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for size in (0..5000).chain(edges) {
            let class = class_of(size);
            assert!(class < CLASSES);
            assert!(largest_of_class(class).is_none_or(|largest| size as u64 <= largest), "{size}");
            let below = class.checked_sub(1).and_then(largest_of_class);
            assert!(below.is_none_or(|largest| size as u64 > largest), "{size}");
        }
        assert_eq!(largest_of_class(CLASSES - 2), Some(512 << 20));
    }
}
