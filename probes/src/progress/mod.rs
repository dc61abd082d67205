//! How far a Python program has come, read from outside without disturbing it.
//!
//! A program that does steady work counts: the iterators of its `for` loops advance, its integer
//! variables grow, its collector counts new containers. Such a number is a marker of progress that
//! costs the program nothing to read, whatever else slows it down at the moment. Which marker is worth
//! how much is not decided here.

mod layout;
mod remote;

pub use layout::ProgressLayout;
pub use layout::TypeAddresses;

use crate::memory::Memory;
use crate::python::frames::FrameLayout;
use remote::Remote;
use std::collections::HashSet;

/// Frames looked at, innermost first.
const FRAMES: usize = 16;

/// Fast locals and evaluation stack of a frame that are looked at.
const SLOTS: usize = 48;

/// Bytes of a module's dictionary of globals that are looked at.
const GLOBALS_BYTES: usize = 4096;

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

/// Names a marker over the life of a program, also when its frame is another one of the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MarkerKey {
    /// Address of the code object; 0 for what belongs to no frame.
    pub code: u64,
    /// Which variable or place on the evaluation stack; those of globals begin at 1,000.
    pub slot: u32,
    /// What it is.
    pub kind: MarkerKind,
}

/// A number in a process that may tell its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Its name.
    pub key: MarkerKey,
    place: Place,
}

/// Where the number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The address of an integer or iterator object lies here.
    Object(u64),
    /// A 32-bit number.
    Word(u64),
}

/// The first frames of the thread that has this state, in a process that may run on meanwhile: what is read may be
/// torn, and is then no marker for long.
pub fn find(
    pid: u32,
    memory: &(impl Memory + ?Sized),
    tstate: u64,
    frames: &FrameLayout,
    layout: &ProgressLayout,
) -> Vec<Marker> {
    let remote = Remote::new(pid);
    let slots = slots(memory, tstate, frames, layout);
    let mut objects = vec![[0; OBJECT_BYTES]; slots.len()];
    let addresses: Vec<u64> = slots.iter().map(|slot| slot.object).collect();
    let read = remote.read(&addresses, &mut objects);
    let mut markers: Vec<Marker> = slots
        .iter()
        .zip(&objects)
        .zip(read)
        .filter(|(_, read)| *read)
        .filter_map(|((slot, object), _)| slot.marker(object, layout))
        .collect();
    if let Some(address) = layout.young_count {
        markers.push(Marker {
            key: MarkerKey {
                code: 0,
                slot: 0,
                kind: MarkerKind::YoungCount,
            },
            place: Place::Word(address),
        });
    }
    markers
}

/// Bytes of an object that are read: the longest are iterators with three words behind the header.
const OBJECT_BYTES: usize = 48;

/// A word that may be the address of an object.
struct Slot {
    code: u64,
    number: u32,
    address: u64,
    object: u64,
}

impl Slot {
    fn marker(&self, object: &[u8; OBJECT_BYTES], layout: &ProgressLayout) -> Option<Marker> {
        let kind = word(object, 8);
        let kind = if kind == layout.types.integer {
            integer(object, layout)?;
            MarkerKind::Integer
        } else {
            layout.counting_word(kind)?;
            MarkerKind::Iterator
        };
        let key = MarkerKey {
            code: self.code,
            slot: self.number,
            kind,
        };
        Some(Marker {
            key,
            place: Place::Object(self.address),
        })
    }
}

fn slots(
    memory: &(impl Memory + ?Sized),
    tstate: u64,
    frames: &FrameLayout,
    layout: &ProgressLayout,
) -> Vec<Slot> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut frame = pointer(memory, tstate + u64::from(frames.tstate_frame));
    if let Some(indirection) = frames.frame_indirection {
        frame = pointer(memory, frame.wrapping_add(indirection.into()));
    }
    for _ in 0..FRAMES {
        if frame == 0 || !seen.insert(frame) {
            break;
        }
        let mut bytes = vec![0; layout.locals as usize + 8 * SLOTS];
        let Some(bytes) = read_some(memory, frame, &mut bytes) else {
            break;
        };
        let code = word(bytes, frames.frame_code as usize) & !frames.code_tag_mask;
        let locals = bytes.get(layout.locals as usize..).unwrap_or_default();
        push_words(
            &mut found,
            code,
            0,
            frame + u64::from(layout.locals),
            locals,
        );
        let globals = word(bytes, layout.globals as usize);
        if seen.insert(globals) {
            let keys = pointer(memory, globals.wrapping_add(DICTIONARY_KEYS));
            let mut bytes = vec![0; GLOBALS_BYTES];
            if let Some(bytes) = read_some(memory, keys, &mut bytes) {
                push_words(&mut found, code, 1000, keys, bytes);
            }
        }
        frame = word(bytes, frames.frame_back as usize);
    }
    // What is read behind the end of a frame belongs to the frame that it called, which came before.
    let mut places = HashSet::new();
    found.retain(|slot| places.insert(slot.address));
    found
}

/// `ma_keys` in `PyDictObject`, 3.8 - 3.15. What it points to holds the values of a module's globals.
const DICTIONARY_KEYS: u64 = 32;

/// User addresses of x86-64; below are none, by the default of vm.mmap_min_addr.
const ADDRESSES: std::ops::Range<u64> = 0x1_0000..1 << 47;

fn push_words(found: &mut Vec<Slot>, code: u64, first: u32, address: u64, bytes: &[u8]) {
    for (number, bytes) in (0u32..).zip(bytes.chunks_exact(8)) {
        // 3.14 and later keep two bits of their own in a reference.
        let object = word(bytes, 0) & !3;
        if ADDRESSES.contains(&object) && object % 8 == 0 {
            found.push(Slot {
                code,
                number: first + number,
                address: address + 8 * u64::from(number),
                object,
            });
        }
    }
}

/// The value of each marker now; `None` where it is gone, or was replaced while it was read.
#[must_use]
pub fn sample(pid: u32, markers: &[Marker], layout: &ProgressLayout) -> Vec<Option<i64>> {
    let remote = Remote::new(pid);
    let places: Vec<u64> = markers
        .iter()
        .map(|marker| match marker.place {
            Place::Object(address) | Place::Word(address) => address,
        })
        .collect();
    let mut words = vec![[0; 8]; markers.len()];
    let read = remote.read(&places, &mut words);
    let object_at = |marker: &Marker, bytes: &[u8; 8]| match marker.place {
        Place::Object(_) => word(bytes, 0) & !3,
        Place::Word(_) => 0,
    };
    let addresses: Vec<u64> = markers
        .iter()
        .zip(&words)
        .map(|(marker, bytes)| object_at(marker, bytes))
        .collect();
    let mut objects = vec![[0; OBJECT_BYTES]; markers.len()];
    let objects_read = remote.read(&addresses, &mut objects);
    // An object whose place still names it was not freed and used for another in between.
    let mut again = vec![[0; 8]; markers.len()];
    remote.read(&places, &mut again);
    let mut values = Vec::with_capacity(markers.len());
    for (index, marker) in markers.iter().enumerate() {
        let value = match marker.place {
            Place::Word(_) => words
                .get(index)
                .filter(|_| read.get(index) == Some(&true))
                .map(|bytes| (word(bytes, 0) & 0xffff_ffff).cast_signed()),
            Place::Object(_) => objects
                .get(index)
                .filter(|_| {
                    objects_read.get(index) == Some(&true) && words.get(index) == again.get(index)
                })
                .and_then(|object| counted(object, marker.key.kind, layout)),
        };
        values.push(value);
    }
    values
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

fn pointer(memory: &(impl Memory + ?Sized), address: u64) -> u64 {
    let mut bytes = [0; 8];
    match memory.read(address, &mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

/// As much as lies before the end of the page where all of it cannot be had.
fn read_some<'bytes>(
    memory: &(impl Memory + ?Sized),
    address: u64,
    bytes: &'bytes mut [u8],
) -> Option<&'bytes [u8]> {
    if memory.read(address, bytes).is_ok() {
        return Some(bytes);
    }
    let rest = usize::try_from(4096 - address % 4096).ok()?;
    let part = bytes.get_mut(..rest)?;
    memory.read(address, part).ok()?;
    Some(part)
}
