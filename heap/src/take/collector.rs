//! The collector's lists of objects: where they are, and whether they are whole.

use crate::HeapPlace;
use crate::state::GenerationState;
use crate::take::FastSet;
use crate::take::image::Image;
use crate::take::layout::{GC_FLAGS, GC_HEAD, Layout};
use crate::take::limits::Exceeded;
use gctrace_cpython::{CollectorLayout, FoundInterpreter, GenerationStats, Memory, StatsLocation};

/// Whether a collection is running.
pub(crate) fn is_collecting(image: &mut Image, layout: &Layout, state: &FoundInterpreter) -> bool {
    image.int_field(state.collector, layout.collector.collecting) != Some(0)
}

/// Whether the interpreter is being finalized: its objects are being torn down.
pub(crate) fn is_finalizing(image: &mut Image, layout: &Layout, runtime: u64) -> bool {
    image.field(runtime, layout.collector.finalizing) != Some(0)
}

/// Number of full collections so far (`gc.get_stats()[2]["collections"]`).
pub(crate) fn full_collections(
    memory: &mut impl Memory,
    layout: &Layout,
    state: &FoundInterpreter,
) -> Option<u64> {
    let [.., oldest] = &layout.collector.stats.generations;
    statistics(memory, &layout.collector, state, oldest).map(|oldest| oldest.collections)
}

/// Collections of a generation so far (`gc.get_stats()`).
pub(crate) fn statistics(
    memory: &mut impl Memory,
    collector: &CollectorLayout,
    state: &FoundInterpreter,
    generation: &GenerationStats,
) -> Option<GenerationState> {
    let stats = &collector.stats;
    let start = match stats.place {
        StatsLocation::Inline(offset) => state.collector.wrapping_add(offset.into()),
        StatsLocation::Behind(offset) => memory.field(state.collector, offset)?,
    };
    let index = match generation.index {
        Some(offset) => memory.field(start, offset)? & 0xff,
        None => 0,
    };
    let record = start
        .checked_add(u64::from(generation.base))?
        .checked_add(index.checked_mul(generation.stride.into())?)?;
    let mut number = |offset: u32| memory.field(record, offset);
    Some(GenerationState {
        collections: number(stats.collections)?,
        collected: number(stats.collected)?,
        uncollectable: number(stats.uncollectable)?,
    })
}

/// The tracked objects, oldest first: the permanent generation's, then from the oldest to the
/// youngest. `None`: a list is broken, because it is being changed or because the layout is
/// another.
pub(crate) fn tracked(
    image: &mut Image,
    layout: &Layout,
    state: &FoundInterpreter,
) -> Option<Vec<(u64, HeapPlace)>> {
    let mut all = Vec::new();
    for (offset, generation) in &layout.lists {
        let place = generation.map_or(HeapPlace::Frozen, HeapPlace::Generation);
        list(image, state.collector.checked_add(*offset)?, place, &mut all)?;
    }
    Some(all)
}

/// Follows a list: each node must be the one before its next.
fn list(
    image: &mut Image,
    head: u64,
    place: HeapPlace,
    all: &mut Vec<(u64, HeapPlace)>,
) -> Option<()> {
    let mut at = head;
    loop {
        let next = image.word(at)? & !GC_FLAGS;
        if image.field(next, 8_u64)? & !GC_FLAGS != at {
            return None;
        }
        if next == head {
            return Some(());
        }
        let object = next.checked_add(GC_HEAD)?;
        object.is_multiple_of(8).then_some(())?;
        push(image, all, (object, place))?;
        at = next;
    }
}

/// Adds an object; `None` if there are too many.
fn push(
    image: &mut Image,
    all: &mut Vec<(u64, HeapPlace)>,
    object: (u64, HeapPlace),
) -> Option<()> {
    if all.len() as u64 >= image.limits().objects {
        return image.give_up(Exceeded::Read);
    }
    if all.try_reserve(1).is_err() {
        return image.give_up(Exceeded::Memory);
    }
    all.push(object);
    Some(())
}

/// As [`tracked`], from a running program: whatever can be read, each once.
pub(crate) fn tracked_roughly(
    image: &mut Image,
    layout: &Layout,
    state: &FoundInterpreter,
) -> Vec<(u64, HeapPlace)> {
    let mut seen = FastSet::default();
    let mut all = Vec::new();
    for (offset, generation) in &layout.lists {
        let place = generation.map_or(HeapPlace::Frozen, HeapPlace::Generation);
        let head = state.collector.wrapping_add(*offset);
        // Both ways: a list that is changed breaks in one place.
        for direction in [0_u64, 8] {
            let mut at = head;
            while let Some(next) = image.field(at, direction) {
                at = next & !GC_FLAGS;
                let object = at.wrapping_add(GC_HEAD);
                let is_new = at != head && at.is_multiple_of(8) && seen.insert(object);
                if !is_new || push(image, &mut all, (object, place)).is_none() {
                    break;
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::take::image::BLOCK;

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
        assert_eq!(list(&mut image(&words), at(0), place, &mut all), Some(()));
        assert_eq!(all, [(at(10), place), (at(18), place)]);
        for broken in 0..words.len() {
            let mut words = words;
            words[broken].1 = at(24);
            assert_eq!(list(&mut image(&words), at(0), place, &mut Vec::new()), None);
        }
    }
}
