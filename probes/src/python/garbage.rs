//! Where the collector starts to free its garbage: the instruction that enters the loop over `tp_clear` of each
//! unreachable object.
//!
//! It runs once per collection. At that time the list of these objects is complete, and its head is in a register
//! (`delete_garbage` of Modules/gcmodule.c, from 3.13 on Python/gc.c: 3.8 - 3.15 with the GIL). Compilers inline that
//! function nearly everywhere, so its loop is found by its code, in files with symbols too: it loads `tp_clear` and
//! calls the loaded pointer. Free-threaded builds (Python/gc_free_threading.c) have no such list.

use super::points::make;
use crate::code::{CodeGraph, Flow, Instruction, decode, loops};
use crate::elf::ElfImage;
use crate::placement::Placement;
use crate::resolution::ProbePoint;
use gctrace_abi::ProbePointKind;
use gctrace_cpython::offsets::type_object;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const TYPE_CLEAR: u32 = type_object::CLEAR as u32;

/// Number of instructions between the load of `tp_clear` and its call: a test for null and the
/// counting of references lie between.
const TO_CALL: usize = 14;

/// Number of calls from the collector to the function with the loop, where it is not inlined: one in
/// 3.8 and in 3.14.3.
const CALL_DEPTH: usize = 2;

/// The point, if the rule finds exactly one in all clones of the collector.
pub(super) fn point(image: &ElfImage<'_>, points: &[ProbePoint]) -> Option<ProbePoint> {
    let graph = CodeGraph::new(image);
    let collectors: Vec<&ProbePoint> =
        points.iter().filter(|point| point.kind == ProbePointKind::Collect).collect();
    let inlined: BTreeMap<u64, LoopEntry> = collectors
        .iter()
        .filter_map(|point| graph.containing(point.address))
        .flat_map(|range| entries(image, &range))
        .map(|entry| (entry.instruction.address(), entry))
        .collect();
    let found = if inlined.is_empty() { in_callees(image, &graph, &collectors) } else { inlined };
    let mut found = found.into_values();
    let entry = found.next()?;
    // A second one is a guess that this rule does not make.
    if found.next().is_some() {
        return None;
    }
    let placement = Placement {
        address: entry.instruction.address(),
        instruction: entry.instruction.text(),
        emulated: entry.instruction.is_emulated(),
    };
    let name = match collectors.iter().find(|point| point.address == entry.function) {
        Some(point) => point.function.as_str(),
        None => "delete_garbage",
    };
    make(image, ProbePointKind::Garbage, name, entry.function, placement)
}

/// An instruction that enters the loop, and the function that has it.
struct LoopEntry {
    function: u64,
    instruction: Instruction,
}

fn in_callees(
    image: &ElfImage<'_>,
    graph: &CodeGraph<'_, '_>,
    collectors: &[&ProbePoint],
) -> BTreeMap<u64, LoopEntry> {
    for depth in 1..=CALL_DEPTH {
        let callees: BTreeSet<u64> =
            collectors.iter().flat_map(|point| graph.reachable(point.address, depth)).collect();
        let found: BTreeMap<u64, LoopEntry> = callees
            .into_iter()
            .filter_map(|callee| graph.containing(callee))
            .flat_map(|range| entries(image, &range))
            .map(|entry| (entry.instruction.address(), entry))
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    BTreeMap::new()
}

/// The entries of all loops of a function that call `tp_clear`.
fn entries(image: &ElfImage<'_>, range: &Range<u64>) -> Vec<LoopEntry> {
    let body = decode(image, range);
    calls_of_clear(&body)
        .into_iter()
        .flat_map(|call| loops::entries(&body, call))
        .filter_map(|at| body.get(at))
        .map(|instruction| LoopEntry { function: range.start, instruction: *instruction })
        .collect()
}

/// Indexes of the calls of a `tp_clear`.
fn calls_of_clear(body: &[Instruction]) -> Vec<usize> {
    let mut found = Vec::new();
    for (at, one) in body.iter().enumerate() {
        if one.calls_field(TYPE_CLEAR) {
            found.push(at);
        } else if let Some(loaded) = one.loads_field(TYPE_CLEAR) {
            let calls = |one: &Instruction| {
                one.flow() == Flow::IndirectCall && one.called_register() == Some(loaded)
            };
            // `delete_garbage` takes a reference to the object before it calls the function:
            // https://github.com/python/cpython/blob/v3.13.0/Python/gc.c
            let near = gctrace_units::part(body, at + 1..).iter().take(TO_CALL);
            found.extend(near.enumerate().find_map(|(distance, one)| {
                if calls(one) { Some(at + 1 + distance) } else { None }
            }));
        }
    }
    found
}
