//! From functions to probe points: placement, argument registers, warnings.

use super::arguments;
use super::facts::InterpreterFacts;
use crate::code::FunctionTable;
use crate::elf::ElfImage;
use crate::placement;
use crate::placement::{Placement, PreservedState};
use crate::resolution::ProbePoint;
use gctrace_abi::{CollectorArguments, ProbePointKind};
use gctrace_event::CollectorKind;
use std::ops::Range;

/// A function that was found; the range is empty at its start if the end is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectorFunction {
    pub(crate) role: ProbePointKind,
    pub(crate) name: String,
    pub(crate) range: Range<u64>,
}

/// A point for each function that can be probed.
pub(crate) fn points(
    image: &ElfImage<'_>,
    facts: &InterpreterFacts,
    functions: &[CollectorFunction],
) -> Vec<ProbePoint> {
    functions
        .iter()
        .filter(|function| facts.free_threaded || !stops_the_world(function.role))
        .filter_map(|function| point(image, facts, function))
        .collect()
}

/// With the GIL these two do nothing.
fn stops_the_world(role: ProbePointKind) -> bool {
    matches!(role, ProbePointKind::StopTheWorld | ProbePointKind::StartTheWorld)
}

fn point(
    image: &ElfImage<'_>,
    facts: &InterpreterFacts,
    function: &CollectorFunction,
) -> Option<ProbePoint> {
    let range = whole_range(image, &function.range);
    let placement = placement::place(image, &range, keep(function.role))?;
    let mut point = make(image, function.role, &function.name, range.start, placement)?;
    if function.role == ProbePointKind::Collect {
        point.arguments = arguments::of(image, &range, facts);
    }
    Some(point)
}

/// Only the collector's arguments are read.
fn keep(role: ProbePointKind) -> PreservedState {
    match role {
        ProbePointKind::Collect => PreservedState::Arguments,
        _ => PreservedState::Stack,
    }
}

/// Symbols of hand-written assembly may have no size.
fn whole_range(image: &ElfImage<'_>, range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        FunctionTable::read(image).containing(range.start).unwrap_or_else(|| range.clone())
    } else {
        range.clone()
    }
}

/// `tp_dealloc` in `PyTypeObject`: after the header with size (24), `tp_name`, `tp_basicsize` and
/// `tp_itemsize` (8 each). The header of a free-threaded build is 16 bytes longer.
const TYPE_DEALLOC: u64 = 48;
const FREE_THREADED_HEADER: u64 = 16;

/// The function that frees code objects, found through their type: every file exports it.
pub(crate) fn code_dealloc(image: &ElfImage<'_>, facts: &InterpreterFacts) -> Option<ProbePoint> {
    // `code_dealloc` is static, but its type has its address:
    // https://github.com/python/cpython/blob/v3.13.0/Objects/codeobject.c
    let header = if facts.free_threaded { FREE_THREADED_HEADER } else { 0 };
    let slot = image.dynamic_symbol("PyCode_Type")?.address.checked_add(TYPE_DEALLOC + header)?;
    let function = image.pointer_at(slot)?;
    let range = whole_range(image, &(function..function));
    let placement = placement::place(image, &range, PreservedState::FirstArgument)?;
    make(image, ProbePointKind::CodeDealloc, "code_dealloc", range.start, placement)
}

/// Assembles a point.
pub(crate) fn make(
    image: &ElfImage<'_>,
    kind: ProbePointKind,
    function: &str,
    address: u64,
    placement: Placement,
) -> Option<ProbePoint> {
    Some(ProbePoint {
        kind,
        arguments: CollectorArguments::default(),
        function: function.to_owned(),
        address,
        offset_in_function: placement.address.checked_sub(address)?,
        file_offset: image.file_offset(placement.address)?,
        probe_address: placement.address,
        instruction: placement.instruction,
        emulated: placement.emulated,
        semaphore_file_offset: None,
    })
}

/// Names the missing part, in words for the user.
pub(crate) fn warnings(
    facts: &InterpreterFacts,
    points: &[ProbePoint],
    has_layout: bool,
    has_frames: bool,
) -> Vec<String> {
    let has = |kind| points.iter().any(|point| point.kind == kind);
    let usdt = has(ProbePointKind::UsdtStart);
    let mut warnings = Vec::new();
    if !has_layout {
        warnings.push(format!(
            "the memory layout of CPython {} is unknown: counts and generations may be missing",
            facts.version
        ));
    }
    if !has_frames || !has(ProbePointKind::CodeDealloc) {
        warnings.push(format!(
            "the stacks of this CPython {} cannot be read: no lines will be shown",
            facts.version
        ));
    }
    if !has(ProbePointKind::GcCollectBuiltin) && !usdt {
        warnings.push(
            "the function behind gc.collect was not found: explicit collections may look automatic"
                .to_owned(),
        );
    }
    if facts.collector == CollectorKind::FreeThreaded
        && !(has(ProbePointKind::StopTheWorld) && has(ProbePointKind::StartTheWorld))
    {
        warnings.push(
            "the functions that stop the world were not found: only whole collections are measured"
                .to_owned(),
        );
    }
    warnings
}
