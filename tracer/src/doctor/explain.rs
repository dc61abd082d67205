//! Describes an interpreter: the search strategy that found the collector, and the probes.

use crate::print::clean;
use gctrace_probes::{ProbePoint, ProbePointKind, Resolution};
use std::fmt::Write;

/// First minor version with builds that contain their own layout (`_Py_DebugOffsets`).
const DESCRIBES_ITSELF: u8 = 13;

/// The full description of an interpreter.
pub(super) fn resolution(found: &Resolution) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = write_resolution(&mut text, found);
    text
}

fn write_resolution(text: &mut String, found: &Resolution) -> std::fmt::Result {
    writeln!(text, "{}", clean::path(&found.file))?;
    writeln!(text, "  interpreter  {}", title(found))?;
    writeln!(text, "  build id     {}", found.build_id.as_deref().unwrap_or("none"))?;
    writeln!(text, "  found by     {}", found.rung)?;
    for outcome in &found.tried {
        let sign = if outcome.found { "found" } else { "no" };
        writeln!(text, "    {:<20} {sign:<5}  {}", outcome.rung.to_string(), outcome.detail)?;
    }
    writeln!(text, "  probes")?;
    for point in &found.points {
        write_point(text, point)?;
    }
    if let Some(why) = no_garbage(found) {
        writeln!(text, "    what a collection frees: {why}")?;
    }
    writeln!(text, "  layout       {}", layout(found))?;
    for warning in &found.warnings {
        writeln!(text, "  note         {warning}")?;
    }
    Ok(())
}

/// The heading of an interpreter's explanation: `CPython 3.13.5, free-threaded collector`.
pub(super) fn title(found: &Resolution) -> String {
    format!("CPython {}, {} collector", found.version, found.collector.as_ref())
}

/// Names of the functions that make up the collector: all clones.
pub(super) fn collector_functions(found: &Resolution) -> String {
    let names: Vec<&str> = found
        .points
        .iter()
        .filter(|point| matches!(point.kind, ProbePointKind::Collect | ProbePointKind::UsdtStart))
        .map(|point| point.function.as_str())
        .collect();
    names.join(" and ")
}

fn write_point(text: &mut String, point: &ProbePoint) -> std::fmt::Result {
    writeln!(text, "    {}: {}", purpose(&point.kind), place(point))?;
    let (method, cost) = if point.emulated {
        ("emulated by the kernel", "about 0.5 us per hit")
    } else {
        ("single-stepped by the kernel", "about 16 us per hit in a virtual machine")
    };
    // No hit was measured on another processor.
    let cost =
        if cfg!(target_arch = "x86_64") { format!("{method}: {cost}") } else { method.to_owned() };
    writeln!(text, "      {:<24} {cost}", point.instruction)?;
    if let Some(offset) = point.semaphore_file_offset {
        writeln!(text, "      enabled by the semaphore at file offset {offset:#x}")?;
    }
    Ok(())
}

/// Why probes do not see the objects that collections free, if so.
fn no_garbage(found: &Resolution) -> Option<&'static str> {
    let probed = found.points.iter().any(|point| point.kind == ProbePointKind::Garbage);
    match (probed, found.free_threaded) {
        (true, _) => None,
        (false, true) => Some("not recorded: free-threaded collectors keep no list of it"),
        (false, false) => {
            Some("not recorded: the loop over the garbage was not found in this build")
        }
    }
}

/// `gc_collect_main+0x4, file offset 0x1234`.
fn place(point: &ProbePoint) -> String {
    let offset = match point.offset_in_function {
        0 => String::new(),
        offset => format!("+{offset:#x}"),
    };
    format!(
        "{}{offset} at address {:#x}, file offset {:#x}",
        point.function, point.probe_address, point.file_offset
    )
}

fn purpose(kind: &ProbePointKind) -> &'static str {
    match kind {
        ProbePointKind::Collect => "every collection",
        ProbePointKind::GcCollectBuiltin => "gc.collect()",
        ProbePointKind::PyGcCollect => "PyGC_Collect() of the C API",
        ProbePointKind::StopTheWorld => "stop-the-world starts",
        ProbePointKind::StartTheWorld => "stop-the-world ends",
        ProbePointKind::CodeDealloc => "a code object is freed",
        ProbePointKind::Garbage => "what a collection frees",
        ProbePointKind::ProgramEntry => "a program starts",
        ProbePointKind::UsdtStart => "a collection starts",
        ProbePointKind::UsdtDone => "a collection ends",
    }
}

fn layout(found: &Resolution) -> String {
    let version = format!("{}.{}", found.version.major, found.version.minor);
    match &found.layout {
        None => "unknown: pauses are recorded without object counts".to_owned(),
        Some(_) if found.version.minor >= DESCRIBES_ITSELF => {
            format!(
                "_Py_DebugOffsets of the file, the rest from gctrace's table for CPython {version}"
            )
        }
        Some(_) => format!("gctrace's table for CPython {version}"),
    }
}
