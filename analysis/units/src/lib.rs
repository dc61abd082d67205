//! Times and counts: sums and differences of them cannot overflow.
//!
//! A trace is input, and may state any number; code in a traced program must never panic. So a sum ends at the
//! largest number, and a difference at 0. A member of a struct that is summed has the type of its unit; functions
//! do the same with numbers that are not summed further.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod buckets;
mod long_turns;

pub use buckets::{LAST_BUCKET, bucket_ns, length_bucket};
pub use long_turns::*;

use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::slice::SliceIndex;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Written as a bare number. Arithmetic saturates.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "summaries", derive(bitcode::Encode, bitcode::Decode))]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl Add for $name {
            type Output = Self;
            fn add(self, more: Self) -> Self {
                Self(self.0.saturating_add(more.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, more: Self) {
                *self = *self + more;
            }
        }

        /// The excess over the other; 0 if there is none.
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self(0), Add::add)
            }
        }
    };
}

unit! {
    /// A length of time, in nanoseconds.
    Ns
}
unit! {
    /// A number of things.
    Count
}

/// The time from start to end, in ns; 0 if the end precedes the start: clocks of other tools run backwards.
pub fn duration_ns(start_ns: u64, end_ns: u64) -> u64 {
    end_ns.saturating_sub(start_ns)
}

/// The time that much after a timestamp.
pub fn after(at_ns: u64, by_ns: u64) -> u64 {
    at_ns.saturating_add(by_ns)
}

/// The excess over a part that was counted elsewhere; 0 if there is none.
pub fn beyond(whole: u64, part: u64) -> u64 {
    whole.saturating_sub(part)
}

/// A multiple.
pub fn times(value: u64, factor: u64) -> u64 {
    value.saturating_mul(factor)
}

/// The part of a list in a range; empty if the list ends before that: nothing follows its end.
#[must_use]
pub fn part<T>(of: &[T], range: impl SliceIndex<[T], Output = [T]>) -> &[T] {
    of.get(range).unwrap_or(&[])
}

/// The sum for a key in a table of sums, by `get`; a missing key means that nothing was added.
#[must_use]
pub fn met<T: Copy + Default>(sum: Option<&T>) -> T {
    sum.copied().unwrap_or_default()
}

/// A part of a text for the user; where it is unknown the text goes on without it.
#[must_use]
pub fn if_known<Text: Default>(part: Option<Text>) -> Text {
    part.unwrap_or_default()
}

macro_rules! or_most {
    ($($name:ident $type:ident,)*) => {$(
        /// The number in another type; the largest of that type if it is larger. Never of a number below 0.
        #[must_use]
        pub fn $name(number: impl TryInto<$type>) -> $type {
            number.try_into().unwrap_or($type::MAX)
        }
    )*};
}

or_most! {
    u8_or_most u8,
    u16_or_most u16,
    u32_or_most u32,
    i32_or_most i32,
    u64_or_most u64,
    i64_or_most i64,
}

/// Adds to a sum of known values.
pub fn add_if_known(sum: &mut u64, value: Option<u64>) {
    if let Some(value) = value {
        add_to(sum, value);
    }
}

/// Adds to a sum.
pub fn add_to(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

/// The sum of these numbers.
pub fn sum<T: Borrow<u64>>(numbers: impl IntoIterator<Item = T>) -> u64 {
    numbers.into_iter().fold(0, |sum, number| sum.saturating_add(*number.borrow()))
}

#[cfg(test)]
mod tests {
    use super::{Count, Ns, duration_ns, sum};

    #[test]
    fn arithmetic_ends_at_the_largest_and_smallest_number() {
        let (one, most) = (Ns(1), Ns(u64::MAX));
        assert_eq!(most + one, most);
        assert_eq!(one - most, Ns(0));
        assert_eq!([most, one].into_iter().sum::<Ns>(), most);
        assert_eq!(sum([u64::MAX, 1]), u64::MAX);
        assert_eq!(sum([1, 2]), 3);
        assert_eq!((duration_ns(2, 5), duration_ns(5, 2)), (3, 0));
    }

    #[test]
    fn units_are_written_as_bare_numbers() {
        assert_eq!(serde_json::to_string(&(Ns(1), Some(Count(3)))).unwrap(), "[1,3]");
        assert_eq!(serde_json::from_str::<Count>("7").unwrap(), Count(7));
    }
}
