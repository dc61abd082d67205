//! Finds markers: the variables and iterators in a thread's frames.

use super::remote::RemoteProcess;
use super::{
    GLOBALS, Marker, MarkerKey, MarkerKind, MarkerLocation, OBJECT_BYTES, ProgressLayout, integer,
    word,
};
use crate::arch::USER_ADDRESSES;
use gctrace_cpython::offsets::DICT_KEYS;
use gctrace_cpython::{Memory, StackLayout, frames};
use std::collections::HashSet;

/// Maximum number of frames searched, innermost first.
const FRAMES: usize = 64;

/// Maximum number of fast locals and evaluation stack words searched per frame.
const SLOTS: usize = 48;

/// Maximum number of bytes searched of a module's dictionary of globals.
const GLOBALS_BYTES: usize = 4096;

/// Markers found by one search of a thread's frames ([`find`]).
#[derive(Clone, Debug, Default)]
pub struct MarkerScan {
    /// Numbers that may show progress; whether one does is seen in how it changes.
    pub markers: Vec<Marker>,
    /// Whether the walk reached the outermost frame: frames that come and go meanwhile may cut it
    /// short.
    pub is_whole: bool,
}

/// The innermost frames of the thread with this thread state, in a process that may keep running:
/// data may be torn, but torn data does not stay a marker for long.
pub fn find(
    pid: u32,
    memory: &mut impl Memory,
    tstate: u64,
    stack: &StackLayout,
    layout: &ProgressLayout,
) -> MarkerScan {
    let remote = RemoteProcess::new(pid);
    let (slots, is_whole) = slots(memory, tstate, stack, layout);
    let mut objects = vec![[0; OBJECT_BYTES]; slots.len()];
    let addresses: Vec<u64> = slots.iter().map(|slot| slot.object).collect();
    let read = remote.read(&addresses, &mut objects);
    let mut markers = Vec::new();
    for ((slot, object), is_read) in slots.iter().zip(&objects).zip(read) {
        if is_read {
            markers.extend(slot.marker(object, layout));
        }
    }
    if let Some(address) = layout.young_count {
        let key = MarkerKey { code: 0, slot: 0, kind: MarkerKind::YoungCount };
        markers.push(Marker { key, place: MarkerLocation::Word(address), frame: 0 });
    }
    MarkerScan { markers, is_whole }
}

impl Marker {
    /// Whether the frame that the marker belongs to still executes the same code.
    pub fn is_there(&self, memory: &mut impl Memory, stack: &StackLayout) -> bool {
        self.frame == 0 || frames::code(memory, self.frame, stack).unwrap_or(0) == self.key.code
    }
}

/// A word that may be the address of an object.
struct ObjectSlot {
    frame: u64,
    code: u64,
    number: u32,
    address: u64,
    object: u64,
}

impl ObjectSlot {
    fn marker(&self, object: &[u8; OBJECT_BYTES], layout: &ProgressLayout) -> Option<Marker> {
        let kind = word(object, 8);
        let kind = if kind == layout.types.integer {
            integer(object, layout)?;
            MarkerKind::Integer
        } else {
            layout.counting_word(kind)?;
            MarkerKind::Iterator
        };
        let key = MarkerKey { code: self.code, slot: self.number, kind };
        Some(Marker { key, place: MarkerLocation::Object(self.address), frame: self.frame })
    }
}

/// The words of the frames, and whether the walk reached the outermost frame.
fn slots(
    memory: &mut impl Memory,
    tstate: u64,
    stack: &StackLayout,
    layout: &ProgressLayout,
) -> (Vec<ObjectSlot>, bool) {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut frame = frames::innermost(memory, tstate, stack).unwrap_or(0);
    let mut is_whole = false;
    for _ in 0..FRAMES {
        if frame == 0 || !seen.insert(frame) {
            break;
        }
        let mut bytes = vec![0; layout.locals as usize + 8 * SLOTS];
        let Some(bytes) = read_some(memory, frame, &mut bytes) else {
            break;
        };
        of_frame(&mut found, frame, bytes, stack, layout);
        let globals = word(bytes, layout.globals as usize);
        if seen.insert(globals) {
            let keys = memory.pointer(globals, DICT_KEYS);
            let code = word(bytes, stack.frame_code as usize) & !stack.code_tag_mask;
            let mut bytes = vec![0; GLOBALS_BYTES];
            if let Some(bytes) = read_some(memory, keys, &mut bytes) {
                push_words(&mut found, (frame, code), GLOBALS, keys, bytes);
            }
        }
        frame = word(bytes, stack.frame_back as usize);
        is_whole = frame == 0;
    }
    // Words read beyond the end of a frame belong to the frame it called; that frame came earlier.
    let mut places = HashSet::new();
    found.retain(|slot| places.insert(slot.address));
    (found, is_whole)
}

/// The variables and the evaluation stack of one frame.
fn of_frame(
    found: &mut Vec<ObjectSlot>,
    frame: u64,
    bytes: &[u8],
    stack: &StackLayout,
    layout: &ProgressLayout,
) {
    let code = word(bytes, stack.frame_code as usize) & !stack.code_tag_mask;
    let locals = gctrace_units::part(bytes, layout.locals as usize..);
    let address = frame + u64::from(layout.locals);
    push_words(found, (frame, code), 0, address, locals);
}

fn push_words(
    found: &mut Vec<ObjectSlot>,
    (frame, code): (u64, u64),
    first: u32,
    address: u64,
    bytes: &[u8],
) {
    for (number, bytes) in (0u32..).zip(bytes.chunks_exact(8)) {
        // 3.14 and later use two tag bits in a reference.
        let object = word(bytes, 0) & !3;
        if USER_ADDRESSES.contains(&object) && object.is_multiple_of(8) {
            found.push(ObjectSlot {
                frame,
                code,
                number: first + number,
                address: address + 8 * u64::from(number),
                object,
            });
        }
    }
}

/// Reads up to the end of the page if the whole cannot be read.
fn read_some<'bytes>(
    memory: &mut impl Memory,
    address: u64,
    bytes: &'bytes mut [u8],
) -> Option<&'bytes [u8]> {
    if memory.fill(address, bytes).is_some() {
        return Some(bytes);
    }
    let rest = usize::try_from(4096 - address % 4096).ok()?;
    let part = bytes.get_mut(..rest)?;
    memory.fill(address, part)?;
    Some(part)
}
