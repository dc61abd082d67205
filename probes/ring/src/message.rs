//! Messages from the library to gctrace: each kind is declared once, with its bytes.
//!
//! Timestamps are nanoseconds of CLOCK_MONOTONIC, threads are kernel ids as seen by the process. A
//! text is sent once, and referenced by a number from then on.

mod cache;
mod garbage;
mod gpu;
mod layers;
mod messages;
mod pack;
mod python;
mod turns;

pub use cache::*;
pub use garbage::*;
pub use gpu::*;
pub use layers::*;
pub use pack::*;
pub use python::*;
pub use turns::*;

use crate::{LostKind, RingRole};

/// Number of a text of this ring.
pub type TextId = u32;

/// The [`TextId`] that stands for no text; texts' ids start at 1.
pub const NO_TEXT: TextId = 0;

/// Maximum length of a text in bytes: names of templated kernels can be kilobytes long.
pub(crate) const LONGEST_TEXT: usize = 2000;

/// An interval; `end_ns` precedes `start_ns` in a damaged ring only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeInterval {
    /// Start of the interval, in ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End of the interval, in ns of CLOCK_MONOTONIC.
    pub end_ns: u64,
}

/// All declarations.
pub(crate) const DECLARED: [&str; 8] = [
    cache::STRUCTS,
    garbage::STRUCTS,
    gpu::STRUCTS,
    gpu::KINDS,
    layers::STRUCTS,
    python::STRUCTS,
    python::KINDS,
    turns::STRUCTS,
];

/// The messages of a ring: one enum for each ring, so that a message in the wrong ring does not compile.
pub trait Message: Sized {
    /// The ring.
    const ROLE: RingRole;
    /// Numbers of the kinds, from 1.
    const NUMBERS: &'static [u8];

    /// The message that is a text.
    fn text(id: TextId, text: Box<str>) -> Self;

    /// Number of the kind of message.
    fn number(&self) -> u8;

    /// The kind that counts the loss of such a message; `None` if it is not counted.
    fn lost_kind(number: u8) -> Option<LostKind>;

    /// Appends the bytes of its fields.
    fn pack(&self, to: &mut impl Pack);

    /// Takes the fields of a message of this kind from the front; `None` if they are invalid.
    fn take(number: u8, from: &mut Unpack<'_>) -> Option<Self>;

    /// The message of this kind with these bytes, on a clock that is `ahead_ns` behind its process's; `None` if no
    /// producer of this version would have written these bytes.
    fn unpack(number: u8, bytes: &[u8], ahead_ns: i64) -> Option<Self> {
        let mut from = Unpack { bytes, ahead_ns };
        let message = Self::take(number, &mut from)?;
        if from.bytes.is_empty() { Some(message) } else { None }
    }
}

/// A text as it is sent: if it is too long, it is cut at a character boundary.
#[must_use]
pub fn sent_text(text: &str) -> &str {
    let end = (0..=text.len().min(LONGEST_TEXT)).rfind(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
