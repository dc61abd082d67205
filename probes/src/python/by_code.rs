//! The search strategy without symbols: finds the collector's functions by their references.
//!
//! The doc comments of the functions describe the method. In every compared build it found exactly the functions that
//! the symbols name (`tests/plain/ladder.rs`).

use super::facts::InterpreterFacts;
use super::points::{CollectorFunction, points};
use crate::code::{CodeGraph, decode, moved_argument};
use crate::elf::ElfImage;
use crate::resolution::ProbePoint;
use gctrace_abi::ProbePointKind;
use gctrace_event::CollectorKind;
use memchr::memmem;
use std::collections::BTreeSet;
use std::ops::Range;

/// The format string that every collector, and nothing else, prints with `gc.DEBUG_STATS`
/// (Modules/gcmodule.c, Python/gc.c, Python/gc_free_threading.c).
const DEBUG_LINE: &[u8] = b"gc: collecting generation %d...\n\0";

/// Start of the docstring of `gc.collect` (Modules/clinic/gcmodule.c.h).
const COLLECT_DOC: &[u8] = b"collect($module, /, generation=2)\n";

/// `PyMethodDef` is {name, function, flags, doc}, 8 bytes each: distances from doc back to function
/// and name.
const DOC_TO_FUNCTION: u64 = 16;
const DOC_TO_NAME: u64 = 24;

/// Maximum number of calls between the collector and the functions that start it.
const CALL_DEPTH: usize = 2;

/// Finds the collector's functions by code analysis.
pub(crate) fn find(
    image: &ElfImage<'_>,
    facts: &InterpreterFacts,
) -> Result<Vec<ProbePoint>, String> {
    let graph = CodeGraph::new(image);
    if graph.len() == 0 {
        return Err("no unwinding tables (.eh_frame)".to_owned());
    }
    let entry = image.dynamic_symbol("PyGC_Collect").map(|symbol| symbol.address);
    let builtin = gc_collect(image);
    let collectors = by_debug_line(image, &graph)
        .or_else(|| by_callers(image, &graph, entry?, builtin?))
        .ok_or("neither the collector's debug line nor its callers were found")?;
    let mut functions: Vec<CollectorFunction> = collectors
        .into_iter()
        .map(|range| function(ProbePointKind::Collect, collector_name(facts), range))
        .collect();
    let mut add = |role, name: &str, address: Option<u64>| {
        let range = address.map(|start| graph.containing(start).unwrap_or(start..start));
        functions.extend(range.map(|range| function(role, name, range)));
    };
    add(ProbePointKind::GcCollectBuiltin, "gc_collect", builtin);
    add(ProbePointKind::PyGcCollect, "PyGC_Collect", entry);
    if let Some((stop, start)) = stop_and_start(image, &graph, &functions, facts) {
        functions.push(function(ProbePointKind::StopTheWorld, "_PyEval_StopTheWorld", stop));
        functions.push(function(ProbePointKind::StartTheWorld, "_PyEval_StartTheWorld", start));
    }
    Ok(points(image, facts, &functions))
}

fn function(role: ProbePointKind, name: &str, range: Range<u64>) -> CollectorFunction {
    CollectorFunction { role, name: name.to_owned(), range }
}

/// The function's name in CPython's source.
fn collector_name(facts: &InterpreterFacts) -> &'static str {
    match (facts.version.minor, &facts.collector) {
        (_, CollectorKind::Incremental) => "_PyGC_Collect",
        (8 | 9, _) => "collect",
        _ => "gc_collect_main",
    }
}

/// Functions that load the address of the debug line, with cold parts replaced by the function that
/// they belong to. More than one: clones.
fn by_debug_line(image: &ElfImage<'_>, graph: &CodeGraph<'_, '_>) -> Option<Vec<Range<u64>>> {
    // Builds contain the call whether it is printed or not (`gc_collect_main`):
    // https://github.com/python/cpython/blob/v3.13.0/Python/gc.c
    let found: Vec<Range<u64>> = addresses_of(image, DEBUG_LINE)
        .into_iter()
        .flat_map(|line| graph.functions_that_load(line))
        .collect();
    if found.is_empty() { None } else { Some(found) }
}

/// Without the debug line: the largest of the unexported functions that both `PyGC_Collect` and
/// `gc.collect` reach in two calls.
fn by_callers(
    image: &ElfImage<'_>,
    graph: &CodeGraph<'_, '_>,
    entry: u64,
    builtin: u64,
) -> Option<Vec<Range<u64>>> {
    let exported: BTreeSet<u64> = image.dynamic_symbols().map(|symbol| symbol.address).collect();
    // Other functions that both call are exported or short helpers. The collector is long: the phases of a collection
    // are inlined in it.
    let from_entry = graph.reachable(entry, CALL_DEPTH);
    let largest = graph
        .reachable(builtin, CALL_DEPTH)
        .intersection(&from_entry)
        .filter(|function| !exported.contains(function))
        .filter_map(|function| graph.containing(*function))
        .max_by_key(|range| range.end.saturating_sub(range.start))?;
    Some(vec![largest])
}

/// The C function behind `gc.collect`: found through the method table, by the pointer to its
/// docstring.
fn gc_collect(image: &ElfImage<'_>) -> Option<u64> {
    // Not by the name: the linker merges equal strings, and other tables may have a "collect". The
    // docstring (`gc_collect__doc__`) belongs to this function alone:
    // https://github.com/python/cpython/blob/v3.13.0/Modules/clinic/gcmodule.c.h
    addresses_of(image, COLLECT_DOC)
        .into_iter()
        .flat_map(|doc| image.pointers_to(doc))
        .filter(|at| names_collect(image, *at).unwrap_or(false))
        .find_map(|at| {
            let function = image.pointer_at(at.checked_sub(DOC_TO_FUNCTION)?)?;
            if image.is_code(function) { Some(function) } else { None }
        })
}

fn names_collect(image: &ElfImage<'_>, doc_pointer: u64) -> Option<bool> {
    let name = image.pointer_at(doc_pointer.checked_sub(DOC_TO_NAME)?)?;
    Some(image.bytes_at(name, 8)? == b"collect\0")
}

fn addresses_of(image: &ElfImage<'_>, text: &[u8]) -> Vec<u64> {
    image
        .constant_data()
        .flat_map(|(address, bytes)| {
            memmem::find_iter(bytes, text)
                .map(move |position| address.wrapping_add(position as u64))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// `_PyEval_StopTheWorld` and `_PyEval_StartTheWorld` of a free-threaded build. 3.14 and later export them. In 3.13 the
/// collector reaches them, and so does the exported `PyUnstable_GC_VisitObjects`: it stops the world before it starts
/// it.
fn stop_and_start(
    image: &ElfImage<'_>,
    graph: &CodeGraph<'_, '_>,
    functions: &[CollectorFunction],
    facts: &InterpreterFacts,
) -> Option<(Range<u64>, Range<u64>)> {
    if facts.collector != CollectorKind::FreeThreaded {
        return None;
    }
    let exported = |name| graph.containing(image.dynamic_symbol(name)?.address);
    match (exported("_PyEval_StopTheWorld"), exported("_PyEval_StartTheWorld")) {
        (Some(stop), Some(start)) => Some((stop, start)),
        _ => unexported_stop_and_start(image, graph, functions),
    }
}

fn unexported_stop_and_start(
    image: &ElfImage<'_>,
    graph: &CodeGraph<'_, '_>,
    functions: &[CollectorFunction],
) -> Option<(Range<u64>, Range<u64>)> {
    // It calls nothing but stop, `gc_visit_heaps` and start, in this order:
    // https://github.com/python/cpython/blob/v3.13.0/Python/gc_free_threading.c
    let visit = image.dynamic_symbol("PyUnstable_GC_VisitObjects")?.address;
    let reached: BTreeSet<u64> = functions
        .iter()
        .filter(|function| function.role == ProbePointKind::Collect)
        .flat_map(|function| graph.reachable(function.range.start, CALL_DEPTH))
        .collect();
    let wrappers: Vec<(Range<u64>, u64)> = graph
        .callees_in_order(visit)
        .into_iter()
        .filter(|callee| reached.contains(callee))
        .filter_map(|callee| graph.containing(callee))
        .filter_map(|range| {
            // Both pass on `&interp->stoptheworld` (Python/pystate.c).
            let member = moved_argument(image.machine, &decode(image, &range))?;
            Some((range, member))
        })
        .collect();
    let (stop, member) = wrappers.first()?;
    let (start, _) = wrappers.iter().find(|(range, other)| range != stop && other == member)?;
    Some((stop.clone(), start.clone()))
}
