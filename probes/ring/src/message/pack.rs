//! The bytes of messages: fields in order, without gaps or names.
//!
//! A number below [`WIDE`] is one byte. A larger one is a byte that has the number of its bytes, then these, lowest
//! first: unlike LEB128, they are written and read at once, not one by one. Signed ones are in zigzag.

use super::{LONGEST_TEXT, TimeInterval};
use zerocopy::{IntoBytes as _, TryFromBytes as _};

/// The smallest number that needs more than one byte.
const WIDE: u8 = 248;

/// Maximum length of a list: more than any list of the library. A value can take a hundred times as much memory as its
/// bytes, and a program could send bytes without end.
const LONGEST_LIST: usize = 1 << 12;

/// Where the bytes of a message go.
pub trait Pack {
    /// Appends the lowest `count` bytes of a word, 1 to 8; its others are zero.
    fn word(&mut self, word: u64, count: usize);
}

/// The bytes of a message that have not been read, and how far the clock of their writer is ahead, in ns.
#[derive(Debug)]
pub struct Unpack<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) ahead_ns: i64,
}

/// A value in a message.
pub(crate) trait Packed: Sized {
    /// Appends its bytes.
    fn pack(&self, to: &mut impl Pack);

    /// Takes it from the front; `None` if there is none.
    fn unpack(from: &mut Unpack<'_>) -> Option<Self>;
}

impl Unpack<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        self.bytes.split_off_first().copied()
    }

    /// The next bytes as a word, at most 8.
    #[inline]
    fn word(&mut self, count: usize) -> Option<u64> {
        let others = u64::BITS.checked_sub(8 * count as u32)?;
        // Most often there are eight, and no loop is needed.
        if let Some(eight) = self.bytes.first_chunk() {
            self.bytes = self.bytes.get(count..)?;
            return Some(u64::from_le_bytes(*eight) & u64::MAX.checked_shr(others)?);
        }
        let bytes = self.bytes.split_off(..count)?;
        Some(bytes.iter().rfold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// A time, on the reader's clock.
    pub(super) fn time(&mut self) -> Option<u64> {
        Some(moved(u64::unpack(self)?, self.ahead_ns))
    }

    /// A number of values; each has a byte at least.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(u64::unpack(self)?).ok()?;
        if count <= self.bytes.len() { Some(count) } else { None }
    }
}

/// A timestamp on a clock that is `ahead_ns` behind its own; 0 stands for an unknown one.
pub(crate) fn moved(at_ns: u64, ahead_ns: i64) -> u64 {
    match at_ns {
        0 => 0,
        at_ns => at_ns.saturating_add_signed(ahead_ns.saturating_neg()),
    }
}

impl Packed for u64 {
    #[inline]
    fn pack(&self, to: &mut impl Pack) {
        if *self < WIDE.into() {
            return to.word(*self, 1);
        }
        let count = 8 - self.leading_zeros() / 8;
        let first = Self::from(WIDE - 1) + Self::from(count);
        if count < 8 {
            to.word(first | *self << 8, count as usize + 1);
        } else {
            to.word(first, 1);
            to.word(*self, 8);
        }
    }

    #[inline]
    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let first = from.byte()?;
        if first < WIDE {
            return Some(first.into());
        }
        let count = first - WIDE + 1;
        let number = from.word(count.into())?;
        // Of no more bytes than it needs.
        let is_shortest = number >= WIDE.into() && number >> (8 * (count - 1)) > 0;
        if is_shortest { Some(number) } else { None }
    }
}

impl Packed for i64 {
    #[inline]
    fn pack(&self, to: &mut impl Pack) {
        ((*self << 1) ^ (*self >> 63)).cast_unsigned().pack(to);
    }

    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let number = u64::unpack(from)?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

/// Numbers as others that hold all of theirs.
macro_rules! packed_as {
    ($($type:ty as $wide:ty),*) => {$(
        impl Packed for $type {
            #[inline]
            fn pack(&self, to: &mut impl Pack) {
                <$wide>::from(*self).pack(to);
            }

            #[inline]
            fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
                Self::try_from(<$wide>::unpack(from)?).ok()
            }
        }
    )*};
}
packed_as!(u16 as u64, u32 as u64, i32 as i64);

/// Types of one byte; only some values are valid.
macro_rules! packed_bytes {
    ($($type:ty),*) => {$(
        impl Packed for $type {
            #[inline]
            fn pack(&self, to: &mut impl Pack) {
                self.as_bytes().iter().for_each(|byte| to.word(u64::from(*byte), 1));
            }

            #[inline]
            fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
                Self::try_read_from_bytes(&[from.byte()?]).ok()
            }
        }
    )*};
}
packed_bytes!(
    u8,
    bool,
    super::HookState,
    super::StepMarker,
    super::RingReason,
    super::CuptiState,
    super::GpuRecord,
    super::ApiLayer,
    super::WaitCall
);

/// As start and length. The end precedes the start in damaged memory only.
impl Packed for TimeInterval {
    #[inline]
    fn pack(&self, to: &mut impl Pack) {
        self.start_ns.pack(to);
        self.end_ns.wrapping_sub(self.start_ns).pack(to);
    }

    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let start_ns = u64::unpack(from)?;
        let end_ns = start_ns.wrapping_add(u64::unpack(from)?);
        let ahead_ns = from.ahead_ns;
        Some(Self { start_ns: moved(start_ns, ahead_ns), end_ns: moved(end_ns, ahead_ns) })
    }
}

impl<T: Packed> Packed for Option<T> {
    #[inline]
    fn pack(&self, to: &mut impl Pack) {
        self.is_some().pack(to);
        if let Some(value) = self {
            value.pack(to);
        }
    }

    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        if bool::unpack(from)? { T::unpack(from).map(Some) } else { Some(None) }
    }
}

impl<T: Packed + Copy + Default, const N: usize> Packed for [T; N] {
    fn pack(&self, to: &mut impl Pack) {
        self.iter().for_each(|value| value.pack(to));
    }

    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::unpack(from)?;
        }
        Some(values)
    }
}

/// Takes no memory for values that do not come, whatever count the bytes claim.
impl<T: Packed> Packed for Vec<T> {
    fn pack(&self, to: &mut impl Pack) {
        (self.len() as u64).pack(to);
        self.iter().for_each(|value| value.pack(to));
    }

    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let count = from.count()?;
        if count > LONGEST_LIST {
            return None;
        }
        (0..count).map(|_| T::unpack(from)).collect()
    }
}

impl Packed for Box<str> {
    fn pack(&self, to: &mut impl Pack) {
        (self.len() as u64).pack(to);
        let (words, rest) = self.as_bytes().as_chunks();
        words.iter().for_each(|word| to.word(u64::from_le_bytes(*word), 8));
        rest.iter().for_each(|byte| to.word(u64::from(*byte), 1));
    }

    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let length = from.count()?;
        if length > LONGEST_TEXT {
            return None;
        }
        let text = from.bytes.split_off(..length)?;
        Some(str::from_utf8(text).ok()?.into())
    }
}
