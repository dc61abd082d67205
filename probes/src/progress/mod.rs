//! How far a Python program has come, read from outside without disturbing it.
//!
//! A program that does steady work counts: the iterators of its `for` loops advance, its integer
//! variables grow, its collector counts new containers. Such a number is a marker of progress that
//! costs the program nothing to read, whatever else slows it down at the moment. Which marker is worth
//! how much is not decided here.

mod find;
mod layout;
mod remote;

pub use find::MarkerScan;
pub use find::find;
pub use layout::ProgressLayout;
pub use layout::TypeAddresses;

use remote::RemoteProcess;

/// What a marker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MarkerKind {
    /// An `int` in a variable.
    Integer,
    /// The iterator of a range, list, tuple or `enumerate`.
    Iterator,
    /// Containers allocated, less freed, since the last collection.
    YoungCount,
}

/// The first number of a variable of a module.
pub const GLOBALS: u32 = 1000;

/// Names a marker over the life of a program, also when its frame is another one of the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MarkerKey {
    /// Address of the code object; 0 for what belongs to no frame.
    pub code: u64,
    /// Which variable or place on the evaluation stack; those of globals begin at [`GLOBALS`].
    pub slot: u32,
    /// What it is.
    pub kind: MarkerKind,
}

/// A number in a process that may tell its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Its name.
    pub key: MarkerKey,
    place: MarkerLocation,
    /// The frame that it belongs to; 0 for what belongs to none.
    frame: u64,
}

/// Where the number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkerLocation {
    /// The address of an integer or iterator object lies here.
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

/// Bytes of an object that are read: the longest are iterators with three words behind the header.
const OBJECT_BYTES: usize = 48;

/// Times that a marker is read which was replaced while it was read: a variable that changes every few
/// microseconds is read at one of these nearly always.
const ATTEMPTS: usize = 4;

/// The value of each marker now; `None` where it is gone, or was replaced each time while it was read.
#[must_use]
pub fn sample(pid: u32, markers: &[Marker], layout: &ProgressLayout) -> Vec<Option<i64>> {
    let remote = RemoteProcess::new(pid);
    let mut values = attempt(&remote, markers, layout);
    for _ in 1..ATTEMPTS {
        let replaced: Vec<(usize, Marker)> = (0..)
            .zip(markers.iter().copied())
            .filter(|(index, _)| values.get(*index) == Some(&MarkerValue::Replaced))
            .collect();
        if replaced.is_empty() {
            break;
        }
        let of: Vec<Marker> = replaced.iter().map(|(_, marker)| *marker).collect();
        for ((index, _), value) in replaced.iter().zip(attempt(&remote, &of, layout)) {
            if let Some(into) = values.get_mut(*index) {
                *into = value;
            }
        }
    }
    let known = |value| match value {
        MarkerValue::Is(value) => Some(value),
        MarkerValue::Gone | MarkerValue::Replaced => None,
    };
    values.into_iter().map(known).collect()
}

/// What one reading of a marker gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MarkerValue {
    Is(i64),
    /// There is no such object.
    Gone,
    /// Another object took its place while it was read.
    Replaced,
}

fn attempt(
    remote: &RemoteProcess,
    markers: &[Marker],
    layout: &ProgressLayout,
) -> Vec<MarkerValue> {
    let places: Vec<u64> = markers
        .iter()
        .map(|marker| marker.place.address())
        .collect();
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
    // An object whose place still names it was not freed and used for another in between.
    let pairs = remote.read_pairs::<OBJECT_BYTES>(&addresses, &places);
    let value = |(index, marker): (usize, &Marker)| {
        let before = words
            .get(index)
            .filter(|_| read.get(index) == Some(&true))?;
        if let MarkerLocation::Word(_) = marker.place {
            return Some(MarkerValue::Is(
                (word(before, 0) & 0xffff_ffff).cast_signed(),
            ));
        }
        let (object, again) = pairs.get(index)?.as_ref()?;
        if again != before {
            return Some(MarkerValue::Replaced);
        }
        counted(object, marker.key.kind, layout).map(MarkerValue::Is)
    };
    let all = markers.iter().enumerate();
    all.map(|one| value(one).unwrap_or(MarkerValue::Gone))
        .collect()
}

/// What an object counts, if it is of that kind.
fn counted(object: &[u8; OBJECT_BYTES], kind: MarkerKind, layout: &ProgressLayout) -> Option<i64> {
    if kind == MarkerKind::Integer {
        return integer(object, layout);
    }
    let (offset, down) = layout.counting_word(word(object, 8))?;
    let value = word(object, offset as usize).cast_signed();
    Some(if down { value.wrapping_neg() } else { value })
}

/// The value of an integer object of at most two digits of 30 bits.
fn integer(object: &[u8; OBJECT_BYTES], layout: &ProgressLayout) -> Option<i64> {
    if word(object, 8) != layout.types.integer {
        return None;
    }
    let head = word(object, 16);
    // Before 3.12 the signed number of digits; since, that number above three bits: 0 positive, 2 negative.
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
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
