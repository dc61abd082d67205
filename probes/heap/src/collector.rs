//! The collector's lists of objects: where they are, and whether they are whole.

use crate::hash::FastSet;
use crate::image::Image;
use crate::layout::{GC_FLAGS, GC_HEAD, Layout};
use gctrace_analysis::heap::HeapPlace;
use gctrace_probes::{GcBase, StatsLocation};
use std::time::Instant;

/// Longest list that is followed: 2^31 objects are more than 64 GiB.
const LONGEST: usize = 1 << 31;
/// Most interpreters of a process that are looked through.
const MOST_INTERPRETERS: usize = 10_000;

/// One interpreter's state in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterpreterState {
    pub(crate) address: u64,
    /// 0 is the main interpreter.
    pub(crate) id: i64,
    /// The collector's state.
    pub(crate) collector: u64,
}

/// The interpreters of a process, newest first.
pub(crate) fn interpreters(
    image: &mut Image,
    layout: &Layout,
    runtime: u64,
) -> Vec<InterpreterState> {
    let collector = &layout.collector;
    let mut all = Vec::new();
    let mut next = image.word(runtime.wrapping_add(collector.interpreters_head.into()));
    while let Some(address) = next.filter(|address| *address != 0) {
        let id = match collector.interpreter_id {
            Some(offset) => image.word(address.wrapping_add(offset.into())).map(u64::cast_signed),
            // 3.8: the main interpreter is the oldest.
            None => Some(0),
        };
        all.extend(id.map(|id| InterpreterState {
            address,
            id,
            collector: match collector.gc {
                GcBase::InRuntime(offset) => runtime.wrapping_add(offset.into()),
                GcBase::InInterpreter(offset) => address.wrapping_add(offset.into()),
            },
        }));
        if all.len() >= MOST_INTERPRETERS {
            break;
        }
        next = image.word(address.wrapping_add(collector.interpreter_next.into()));
    }
    if collector.interpreter_id.is_none() {
        let older = all.len();
        for (index, one) in all.iter_mut().enumerate() {
            one.id = (older - 1 - index) as i64;
        }
    }
    all
}

/// Whether a collection is running.
pub(crate) fn is_collecting(image: &mut Image, layout: &Layout, state: &InterpreterState) -> bool {
    image.int(state.collector.wrapping_add(layout.collector.collecting.into())) != Some(0)
}

/// Whether the interpreter is being finalized: its objects are being torn down.
pub(crate) fn is_finalizing(image: &mut Image, layout: &Layout, runtime: u64) -> bool {
    image.word(runtime.wrapping_add(layout.collector.finalizing.into())) != Some(0)
}

/// Number of full collections so far (`gc.get_stats()[2]["collections"]`); `word` reads a word.
pub(crate) fn full_collections(
    mut word: impl FnMut(u64) -> Option<u64>,
    layout: &Layout,
    state: &InterpreterState,
) -> Option<u64> {
    let stats = &layout.collector.stats;
    let start = match stats.place {
        StatsLocation::Inline(offset) => state.collector.wrapping_add(offset.into()),
        StatsLocation::Behind(offset) => word(state.collector.wrapping_add(offset.into()))?,
    };
    let [.., oldest] = &stats.generations;
    let index = match oldest.index {
        Some(offset) => word(start.checked_add(offset.into())?)? & 0xff,
        None => 0,
    };
    let record = start
        .checked_add(u64::from(oldest.base))?
        .checked_add(index.checked_mul(oldest.stride.into())?)?;
    word(record.checked_add(stats.collections.into())?)
}

/// Why the tracked objects are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untracked {
    /// A list is broken, because it is being changed or because the layout is another.
    Broken,
    /// The deadline has passed.
    Late,
}

/// The tracked objects, oldest first: those of the permanent generation, then from the oldest to
/// the youngest.
pub(crate) fn tracked(
    image: &mut Image,
    layout: &Layout,
    state: &InterpreterState,
    deadline: Instant,
) -> Result<Vec<(u64, HeapPlace)>, Untracked> {
    let mut all = Vec::new();
    for (offset, generation) in &layout.lists {
        let place = generation.map_or(HeapPlace::Frozen, HeapPlace::Generation);
        let head = state.collector.checked_add(*offset);
        list(image, head.ok_or(Untracked::Broken)?, place, &mut all, deadline)?;
    }
    Ok(all)
}

/// Objects between two looks at the clock: some 10 us.
const CLOCK_INTERVAL: usize = 1 << 10;

/// Follows a list: each node must be the one before its next.
fn list(
    image: &mut Image,
    head: u64,
    place: HeapPlace,
    all: &mut Vec<(u64, HeapPlace)>,
    deadline: Instant,
) -> Result<(), Untracked> {
    let most = all.len().saturating_add(LONGEST);
    let mut at = head;
    let mut next_of = |at: u64| {
        let next = image.word(at)? & !GC_FLAGS;
        let before = image.word(next.checked_add(8)?)? & !GC_FLAGS;
        (before == at).then_some(next)
    };
    loop {
        let next = next_of(at).ok_or(Untracked::Broken)?;
        if next == head {
            return Ok(());
        }
        let object = next.checked_add(GC_HEAD).ok_or(Untracked::Broken)?;
        if object % 8 != 0 || all.len() >= most {
            return Err(Untracked::Broken);
        }
        if all.len().is_multiple_of(CLOCK_INTERVAL) && Instant::now() >= deadline {
            return Err(Untracked::Late);
        }
        all.push((object, place));
        at = next;
    }
}

/// As [`tracked`], from a running program: whatever can be read, each once.
pub(crate) fn tracked_roughly(
    image: &mut Image,
    layout: &Layout,
    state: &InterpreterState,
) -> Vec<(u64, HeapPlace)> {
    let mut seen = FastSet::default();
    let mut all = Vec::new();
    for (offset, generation) in &layout.lists {
        let place = generation.map_or(HeapPlace::Frozen, HeapPlace::Generation);
        let head = state.collector.wrapping_add(*offset);
        // Both ways: a list that is changed breaks in one place.
        for direction in [0, 8] {
            let mut at = head;
            while let Some(next) = image.word(at.wrapping_add(direction)) {
                at = next & !GC_FLAGS;
                let object = at.wrapping_add(GC_HEAD);
                if at == head || at % 8 != 0 || !seen.insert(object) {
                    break;
                }
                all.push((object, place));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::BLOCK;
    use std::time::Duration;

    fn image(words: &[(usize, u64)]) -> Image {
        let mut bytes = vec![0; 512];
        for (index, word) in words {
            bytes[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        Image::of_bytes(BLOCK, &bytes)
    }

    #[test]
    fn a_list_is_whole_or_nothing() {
        let at = |index: u64| BLOCK + index * 8;
        // Head at 0, nodes at 8 and 16, with flags in the low bits.
        let words = [
            (0, at(8)),
            (1, at(16)),
            (8, at(16) | 1),
            (9, at(0) | 2),
            (16, at(0)),
            (17, at(8) | 3),
        ];
        let mut all = Vec::new();
        let place = HeapPlace::Frozen;
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(list(&mut image(&words), at(0), place, &mut all, later), Ok(()));
        assert_eq!(all, [(at(10), place), (at(18), place)]);
        for broken in 0..words.len() {
            let mut words = words;
            words[broken].1 = at(24);
            assert_eq!(
                list(&mut image(&words), at(0), place, &mut Vec::new(), later),
                Err(Untracked::Broken)
            );
        }
        let now = Instant::now();
        let late = list(&mut image(&words), at(0), place, &mut Vec::new(), now);
        assert_eq!(late, Err(Untracked::Late));
    }
}
