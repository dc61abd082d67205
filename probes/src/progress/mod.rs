//! How far a Python program has progressed, read out-of-process without disturbing it.
//!
//! A program that does steady work counts: the iterators of its `for` loops advance, its integer
//! variables grow, its collector counts net containers. Such a number is a marker of progress that
//! costs the program nothing to read. How reliable each marker is, is decided elsewhere.

mod find;
mod layout;
mod remote;

pub use find::{MarkerScan, find};
pub use layout::{ProgressLayout, TypeAddresses};

use remote::RemoteProcess;

/// Kind of a marker's number: a variable, the position of an iterator, or the collector's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MarkerKind {
    /// An `int` in a variable.
    Integer,
    /// The iterator of a range, list, tuple or `enumerate`.
    Iterator,
    /// Net containers: allocated minus freed since the last collection.
    YoungCount,
}

/// The first slot number of module variables.
pub const GLOBALS: u32 = 1000;

/// Identifies a marker over the life of a program, even if its frame is replaced by another of the
/// same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MarkerKey {
    /// Address of the code object; 0 if it does not belong to a frame.
    pub code: u64,
    /// Number of the variable or evaluation stack slot; globals start at [`GLOBALS`].
    pub slot: u32,
    /// Kind of number; a slot may contain an integer now and an iterator later.
    pub kind: MarkerKind,
}

/// A number in a process that may show its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Its identity: a later search recognizes the same marker by it.
    pub key: MarkerKey,
    place: MarkerLocation,
    /// The frame that it belongs to; 0 if none.
    frame: u64,
}

/// Where the number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkerLocation {
    /// At this address is the address of an integer or iterator object.
    Object(u64),
    /// A 32-bit number.
    Word(u64),
}

impl MarkerLocation {
    fn address(self) -> u64 {
        match self {
            Self::Object(address) | Self::Word(address) => address,
        }
    }
}

/// Number of bytes read of an object: the longest are iterators with three words after the header.
const OBJECT_BYTES: usize = 48;

/// Number of attempts to read a marker that is replaced while it is read; enough, nearly always,
/// for a variable that changes every few microseconds.
const ATTEMPTS: usize = 4;

/// Current value of each marker; `None` if it is gone, or was replaced during each attempt.
pub fn sample(pid: u32, markers: &[Marker], layout: &ProgressLayout) -> Vec<Option<i64>> {
    let remote = RemoteProcess::new(pid);
    let mut values = attempt(&remote, markers, layout);
    for _ in 1..ATTEMPTS {
        let replaced: Vec<(usize, Marker)> = (0..)
            .zip(markers.iter().copied())
            .filter(|(index, _)| values[*index] == MarkerValue::Replaced)
            .collect();
        if replaced.is_empty() {
            break;
        }
        let of: Vec<Marker> = replaced.iter().map(|(_, marker)| *marker).collect();
        for ((index, _), value) in replaced.iter().zip(attempt(&remote, &of, layout)) {
            values[*index] = value;
        }
    }
    let known = |value| match value {
        MarkerValue::Is(value) => Some(value),
        MarkerValue::Gone | MarkerValue::Replaced => None,
    };
    values.into_iter().map(known).collect()
}

/// Result of one attempt to read a marker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MarkerValue {
    Is(i64),
    /// There is no such object.
    Gone,
    /// Another object took its place during the read.
    Replaced,
}

fn attempt(
    remote: &RemoteProcess,
    markers: &[Marker],
    layout: &ProgressLayout,
) -> Vec<MarkerValue> {
    let places: Vec<u64> = markers.iter().map(|marker| marker.place.address()).collect();
    let mut words = vec![[0; 8]; markers.len()];
    let read = remote.read(&places, &mut words);
    let addresses: Vec<u64> = markers
        .iter()
        .zip(&words)
        .map(|(marker, bytes)| match marker.place {
            MarkerLocation::Object(_) => word(bytes, 0) & !3,
            MarkerLocation::Word(_) => 0,
        })
        .collect();
    // An object that its slot still points to was not freed and reused in between.
    let pairs = remote.read_pairs::<OBJECT_BYTES>(&addresses, &places);
    let value = |(index, marker): (usize, &Marker)| {
        let before = read[index].then_some(&words[index])?;
        if let MarkerLocation::Word(_) = marker.place {
            return Some(MarkerValue::Is((word(before, 0) & 0xffff_ffff).cast_signed()));
        }
        let (object, again) = pairs[index].as_ref()?;
        if again != before {
            return Some(MarkerValue::Replaced);
        }
        counted(object, marker.key.kind, layout).map(MarkerValue::Is)
    };
    let all = markers.iter().enumerate();
    all.map(|one| value(one).unwrap_or(MarkerValue::Gone)).collect()
}

/// The count of an object, if it is of that kind.
fn counted(object: &[u8; OBJECT_BYTES], kind: MarkerKind, layout: &ProgressLayout) -> Option<i64> {
    if kind == MarkerKind::Integer {
        return integer(object, layout);
    }
    let (offset, down) = layout.counting_word(word(object, 8))?;
    let value = word(object, offset as usize).cast_signed();
    Some(if down { value.wrapping_neg() } else { value })
}

/// The value of an integer object with at most two 30-bit digits.
fn integer(object: &[u8; OBJECT_BYTES], layout: &ProgressLayout) -> Option<i64> {
    if word(object, 8) != layout.types.integer {
        return None;
    }
    let head = word(object, 16);
    // Before 3.12 the signed number of digits; since then that number above three tag bits: 0
    // positive, 2 negative.
    let (digits, negative) = if layout.tagged_integers {
        (head >> 3, head & 3 == 2)
    } else {
        let size = head.cast_signed();
        (size.unsigned_abs(), size < 0)
    };
    let digit = |index: usize| i64::from(word(object, 24 + 4 * index) as u32 & 0x3fff_ffff);
    let value = match digits {
        0 => 0,
        1 => digit(0),
        2 => digit(0) | digit(1) << 30,
        _ => return None,
    };
    Some(if negative { -value } else { value })
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let Some(bytes) = bytes.get(at..) else { return 0 };
    if let Some(bytes) = bytes.first_chunk() { u64::from_le_bytes(*bytes) } else { 0 }
}
