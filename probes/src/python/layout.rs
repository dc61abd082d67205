//! The layout of the collector's state, by version, as data.
//!
//! Sources: the headers of each version (pycore_runtime.h, pycore_interp.h, pycore_gc.h,
//! pycore_interp_structs.h), each line compared with a running interpreter by `tests/plain/live.rs`.
//! `_Py_DebugOffsets` overrides the table. Probe placement is decided elsewhere.

use super::debug_offsets::DebugOffsets;
use crate::version::PythonVersion;
use gctrace_cpython::{
    CollectorLayout, GcBase, GenerationStats, SelfCheck, StatsLayout, StatsLocation, offsets,
};
use gctrace_event::CollectorKind;

/// Fields of the runtime, the interpreter and the thread of one minor version.
struct RuntimeFields {
    interpreters_head: u32,
    finalizing: u32,
    interpreter_next: u32,
    interpreter_id: Option<u32>,
    gc: GcBase,
}

/// Fields of the collector's state.
struct CollectorFields {
    enabled: u32,
    generations: u32,
    generation0: Option<u32>,
    stats: StatsLayout,
    collecting: u32,
    heap_size: Option<u32>,
    long_lived_total: Option<u32>,
}

/// Size of `struct gc_generation` and offset of its threshold.
const GENERATION: (u32, u32) = (offsets::GENERATION as u32, offsets::GENERATION_THRESHOLD as u32);

/// Offset of `interp` in `PyThreadState`: after `prev` and `next`, in every version.
const THREAD_INTERPRETER: u32 = 16;

/// From 3.13 on `gc_collect_main` itself tests `collecting`.
const TESTS_COLLECTING_SINCE: u8 = 13;

/// The layout of a version; `None` if unknown. `initial_runtime` is `_PyRuntime` as stored in the
/// file, empty if it is not.
pub(crate) fn layout(
    version: &PythonVersion,
    collector: &CollectorKind,
    debug: Option<&DebugOffsets>,
    initial_runtime: &[u8],
) -> Option<CollectorLayout> {
    let places = match debug {
        Some(debug) => from_debug_offsets(debug),
        None => places(version.minor)?,
    };
    let mut state = state(version.minor, collector, debug)?;
    if is_packed(&state, initial_runtime) {
        state.generations -= PACKED;
    }
    if matches!(debug, Some(debug) if debug.gc_collecting != state.collecting) {
        return None;
    }
    let (size, threshold) = GENERATION;
    let first = state.generations + threshold;
    // Where the collector itself tests `collecting`, a call of it during a collection returns at
    // once (`gc_collect_main`): its probe fires, and no collection runs.
    // https://github.com/python/cpython/blob/v3.13.0/Python/gc.c
    Some(CollectorLayout {
        tstate_interpreter: debug.map_or(THREAD_INTERPRETER, |debug| debug.thread_interpreter),
        interpreters_head: places.interpreters_head,
        interpreter_next: places.interpreter_next,
        finalizing: places.finalizing,
        interpreter_id: places.interpreter_id,
        gc: places.gc,
        collecting: state.collecting,
        tests_collecting: version.minor >= TESTS_COLLECTING_SINCE,
        enabled: state.enabled,
        thresholds: [first, first + size, first + 2 * size],
        is_incremental: *collector == CollectorKind::Incremental,
        generations_self_check: state
            .generation0
            .map(|pointer| SelfCheck { pointer, target: state.generations }),
        stats: state.stats,
        long_lived_total: state.long_lived_total,
        heap_size: state.heap_size,
    })
}

/// How much earlier the generations start in builds with `struct gc_generation` aligned to 4 bytes
/// (Debian's 3.13.5).
const PACKED: u32 = 4;

/// Whether the generations start earlier than usual, judged by the initial state of the main interpreter. This state is
/// part of `_PyRuntime` and contains `enabled` and the thresholds.
fn is_packed(state: &CollectorFields, initial_runtime: &[u8]) -> bool {
    // `_Py_DebugOffsets` do not locate the main interpreter in `_PyRuntime`, so its initial values
    // (`_PyInterpreterState_INIT`) are searched for anywhere in it:
    // https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime_init.h
    let usual = (state.generations + GENERATION.1 - state.enabled) / 4;
    let words: Vec<i32> = initial_runtime
        .chunks_exact(4)
        .filter_map(|word| Some(i32::from_le_bytes(word.try_into().ok()?)))
        .collect();
    let at = |distance: u32| {
        let distance = distance as usize;
        (0..words.len()).any(|enabled| {
            words.get(enabled) == Some(&1)
                && words.get(enabled + distance..).is_some_and(are_generations)
        })
    };
    !at(usual) && at(usual - PACKED / 4)
}

/// Thresholds and counts, three times 24 bytes apart: 700 or 2000, then 10, then 10 or 0
/// (pycore_runtime_init.h).
fn are_generations(words: &[i32]) -> bool {
    let pair =
        |generation: usize| Some((*words.get(generation * 6)?, *words.get(generation * 6 + 1)?));
    matches!(
        (pair(0), pair(1), pair(2)),
        (Some((500..=100_000, 0)), Some((10, 0)), Some((0 | 10, 0)))
    )
}

/// The offsets from the build's own `_Py_DebugOffsets`.
fn from_debug_offsets(debug: &DebugOffsets) -> RuntimeFields {
    RuntimeFields {
        interpreters_head: debug.interpreters_head,
        finalizing: debug.finalizing,
        interpreter_next: debug.interpreter_next,
        interpreter_id: Some(debug.interpreter_id),
        gc: GcBase::InInterpreter(debug.interpreter_gc),
    }
}

/// Versions without `_Py_DebugOffsets`.
fn places(minor: u8) -> Option<RuntimeFields> {
    let (interpreters_head, finalizing, interpreter_id, gc) = match minor {
        8 => (32, 16, None, GcBase::InRuntime(344)),
        9 | 10 => (32, 16, Some(24), GcBase::InInterpreter(616)),
        11 => (40, 24, Some(48), GcBase::InInterpreter(648)),
        12 => (40, 24, Some(8), GcBase::InInterpreter(112)),
        _ => return None,
    };
    Some(RuntimeFields { interpreters_head, finalizing, interpreter_next: 0, interpreter_id, gc })
}

fn state(
    minor: u8,
    collector: &CollectorKind,
    debug: Option<&DebugOffsets>,
) -> Option<CollectorFields> {
    let size = debug.map(|debug| debug.gc_size);
    match (minor, collector, size) {
        (8..=12, CollectorKind::Generational, None)
        | (13, CollectorKind::Generational, Some(240)) => Some(classic()),
        // Has the pointer to generation 0 but never sets it.
        (13, CollectorKind::FreeThreaded, Some(248)) => {
            Some(CollectorFields { generation0: None, ..classic() })
        }
        (14, CollectorKind::Incremental, Some(240)) => {
            Some(CollectorFields { generation0: None, long_lived_total: None, ..fourteen() })
        }
        (14, CollectorKind::FreeThreaded, Some(288)) => {
            Some(CollectorFields { generation0: None, heap_size: None, ..fourteen() })
        }
        (14, CollectorKind::Generational, Some(264)) => Some(fourteen()),
        (15, _, Some(176)) => fifteen(collector, debug?.generation_stats?),
        _ => None,
    }
}

/// `struct _gc_runtime_state` of 3.8 - 3.13.
fn classic() -> CollectorFields {
    CollectorFields {
        enabled: 12,
        generations: 24,
        generation0: Some(96),
        stats: inline(128),
        collecting: 200,
        heap_size: None,
        long_lived_total: Some(224),
    }
}

/// `struct _gc_runtime_state` of 3.14.5 and later; earlier ones lack the pointer to generation 0.
fn fourteen() -> CollectorFields {
    CollectorFields {
        enabled: 12,
        generations: 24,
        generation0: Some(256),
        stats: inline(120),
        collecting: 192,
        heap_size: Some(216),
        long_lived_total: Some(240),
    }
}

/// `struct _gc_runtime_state` of 3.15.
fn fifteen(collector: &CollectorKind, (stats_size, stats): (u32, u32)) -> Option<CollectorFields> {
    let free_threaded = *collector == CollectorKind::FreeThreaded;
    Some(CollectorFields {
        enabled: 0,
        generations: 8,
        generation0: if free_threaded { None } else { Some(168) },
        stats: rings(stats, stats_size)?,
        collecting: 112,
        heap_size: if free_threaded { None } else { Some(144) },
        long_lived_total: Some(152),
    })
}

/// Three consecutive records of three numbers.
fn inline(at: u32) -> StatsLayout {
    let record = |generation: u32| GenerationStats {
        base: generation * 24,
        stride: 24,
        length: 1,
        index: None,
    };
    StatsLayout {
        place: StatsLocation::Inline(at),
        generations: [record(0), record(1), record(2)],
        collections: 0,
        collected: 8,
        uncollectable: 16,
    }
}

/// `struct gc_stats` of 3.15: for each generation a ring of 64-byte records and an `int8_t` index,
/// padded to 8 bytes; 11, 3 and 3 records, or one each in free-threaded builds, then a counter of
/// updates. Distinguished by the size that the build states.
fn rings(pointer: u32, size: u32) -> Option<StatsLayout> {
    const RECORD: u32 = 64;
    let ring_size = |length: u32| length * RECORD + 8;
    let lengths = [[11, 3, 3], [1, 1, 1]].into_iter().find(|lengths: &[u32; 3]| {
        let rings: u32 = lengths.iter().map(|length| ring_size(*length)).sum();
        size == rings || size == rings + 8
    })?;
    let mut base = 0;
    let generations = lengths.map(|length| {
        let ring =
            GenerationStats { base, stride: RECORD, length, index: Some(base + length * RECORD) };
        base += ring_size(length);
        ring
    });
    Some(StatsLayout {
        place: StatsLocation::Behind(pointer),
        generations,
        collections: 16,
        collected: 24,
        uncollectable: 32,
    })
}
