//! The bytes of messages: fields in order, without gaps or names; whole numbers in LEB128, signed ones in zigzag.

use super::TimeInterval;
use zerocopy::{IntoBytes as _, TryFromBytes as _};

/// Where the bytes of a message go.
pub trait Pack {
    /// One more byte.
    fn byte(&mut self, byte: u8);
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
    fn byte(&mut self) -> Option<u8> {
        self.bytes.split_off_first().copied()
    }

    /// A time, on the reader's clock.
    pub(super) fn time(&mut self) -> Option<u64> {
        Some(moved(u64::unpack(self)?, self.ahead_ns))
    }

    /// A number of values, for each of which there is a byte at least.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(u64::unpack(self)?).ok()?;
        (count <= self.bytes.len()).then_some(count)
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
        let mut rest = *self;
        while rest >= 0x80 {
            to.byte(rest as u8 | 0x80);
            rest >>= 7;
        }
        to.byte(rest as u8);
    }

    #[inline]
    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let mut number = 0;
        for place in (0..Self::BITS).step_by(7) {
            let byte = from.byte()?;
            let bits = Self::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if bits << place >> place != bits {
                return None;
            }
            number |= bits << place;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

impl Packed for i64 {
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

/// Types of one byte, of which only some values are valid.
macro_rules! packed_bytes {
    ($($type:ty),*) => {$(
        impl Packed for $type {
            #[inline]
            fn pack(&self, to: &mut impl Pack) {
                self.as_bytes().iter().for_each(|byte| to.byte(*byte));
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
    super::ApiLayer
);

/// As start and length. The end precedes the start in damaged memory only.
impl Packed for TimeInterval {
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

/// Takes no more memory than its bytes justify, whatever count they claim.
impl<T: Packed> Packed for Vec<T> {
    fn pack(&self, to: &mut impl Pack) {
        (self.len() as u64).pack(to);
        self.iter().for_each(|value| value.pack(to));
    }

    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let count = from.count()?;
        (0..count).map(|_| T::unpack(from)).collect()
    }
}

impl Packed for Box<str> {
    fn pack(&self, to: &mut impl Pack) {
        (self.len() as u64).pack(to);
        self.bytes().for_each(|byte| to.byte(byte));
    }

    fn unpack(from: &mut Unpack<'_>) -> Option<Self> {
        let length = from.count()?;
        let text = from.bytes.split_off(..length)?;
        Some(str::from_utf8(text).ok()?.into())
    }
}
