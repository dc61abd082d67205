//! From functions to points: placement, argument registers, what to warn of.

use super::arguments;
use super::facts::Facts;
use crate::code::FunctionTable;
use crate::elf::Image;
use crate::placement;
use crate::placement::Keep;
use crate::placement::Placement;
use crate::resolution::Collector;
use crate::resolution::Point;
use crate::resolution::PointKind;
use std::ops::Range;

/// What a function is to the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Collect,
    GcCollectBuiltin,
    PyGcCollect,
    StopTheWorld,
    StartTheWorld,
}

/// A function found; the range is empty at its start where the end is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) range: Range<u64>,
}

/// A point for each function that can be probed.
pub(crate) fn points(image: &Image<'_>, facts: &Facts, functions: &[Function]) -> Vec<Point> {
    functions
        .iter()
        .filter(|function| facts.free_threaded || !stops_the_world(function.role))
        .filter_map(|function| point(image, facts, function))
        .collect()
}

/// The global interpreter lock makes these two do nothing.
fn stops_the_world(role: Role) -> bool {
    matches!(role, Role::StopTheWorld | Role::StartTheWorld)
}

fn point(image: &Image<'_>, facts: &Facts, function: &Function) -> Option<Point> {
    let range = whole_range(image, &function.range);
    let placement = placement::place(image, &range, keep(function.role))?;
    let kind = match function.role {
        Role::Collect => PointKind::Collect(arguments::of(image, &range, facts)),
        Role::GcCollectBuiltin => PointKind::GcCollectBuiltin,
        Role::PyGcCollect => PointKind::PyGcCollect,
        Role::StopTheWorld => PointKind::StopTheWorld,
        Role::StartTheWorld => PointKind::StartTheWorld,
    };
    make(image, kind, &function.name, range.start, placement)
}

/// Only the collector's arguments are read.
fn keep(role: Role) -> Keep {
    match role {
        Role::Collect => Keep::Arguments,
        _ => Keep::Stack,
    }
}

/// Symbols written by hand in assembly may have no size.
fn whole_range(image: &Image<'_>, range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        FunctionTable::read(image)
            .containing(range.start)
            .unwrap_or_else(|| range.clone())
    } else {
        range.clone()
    }
}

/// `tp_dealloc` in `PyTypeObject`: after the header with size (24), `tp_name`, `tp_basicsize` and
/// `tp_itemsize` (8 each). The header of a free-threaded build is 16 bytes longer.
const TYPE_DEALLOC: u64 = 48;
const FREE_THREADED_HEADER: u64 = 16;

/// Where code objects are freed: through the exported type, as every file has it.
pub(crate) fn code_dealloc(image: &Image<'_>, facts: &Facts) -> Option<Point> {
    let header = if facts.free_threaded {
        FREE_THREADED_HEADER
    } else {
        0
    };
    let slot = image
        .dynamic_symbol("PyCode_Type")?
        .address
        .checked_add(TYPE_DEALLOC + header)?;
    let function = image.pointer_at(slot)?;
    let range = whole_range(image, &(function..function));
    let placement = placement::place(image, &range, Keep::FirstArgument)?;
    make(
        image,
        PointKind::CodeDealloc,
        "code_dealloc",
        range.start,
        placement,
    )
}

/// Puts a point together.
pub(crate) fn make(
    image: &Image<'_>,
    kind: PointKind,
    function: &str,
    address: u64,
    placement: Placement,
) -> Option<Point> {
    Some(Point {
        kind,
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

/// What is missing, in words for the user.
pub(crate) fn warnings(
    facts: &Facts,
    points: &[Point],
    has_layout: bool,
    has_frames: bool,
) -> Vec<String> {
    let has = |kind: &PointKind| points.iter().any(|point| point.kind == *kind);
    let usdt = points
        .iter()
        .any(|point| matches!(point.kind, PointKind::UsdtStart { .. }));
    let mut warnings = Vec::new();
    if !has_layout {
        warnings.push(format!(
            "the memory layout of CPython {} is not known: counts and generations may be missing",
            facts.version
        ));
    }
    if !has_frames || !has(&PointKind::CodeDealloc) {
        warnings.push(format!(
            "the stacks of this CPython {} cannot be read: no lines will be shown",
            facts.version
        ));
    }
    if !has(&PointKind::GcCollectBuiltin) && !usdt {
        warnings.push(
            "the function behind gc.collect was not found: explicit collections may look automatic"
                .to_owned(),
        );
    }
    if facts.collector == Collector::FreeThreaded
        && !(has(&PointKind::StopTheWorld) && has(&PointKind::StartTheWorld))
    {
        warnings.push(
            "the functions that stop the world were not found: only whole runs are measured"
                .to_owned(),
        );
    }
    warnings
}
