//! The results of `probes` that `ebpf` and the trace need. Pure.

use gctrace_cpython::FrameLayout;
use gctrace_ebpf::PlannedPoint;
use gctrace_event::Interpreter;
use gctrace_probes::{ProbePoint, ProbePointKind, Resolution};
use std::path::Path;

/// The layout of frames, if their lines can be resolved: only with a probe on the freeing of code
/// objects, as an address may become another code object.
pub(crate) fn frame_layout(resolution: &Resolution) -> Option<&FrameLayout> {
    let sees_code_freed =
        resolution.points.iter().any(|point| point.kind == ProbePointKind::CodeDealloc);
    if sees_code_freed { resolution.frames.as_ref() } else { None }
}

/// Converts the points found in an interpreter for `ebpf`, except the garbage point. `layout`:
/// index of its memory layout in the BPF programs.
pub(crate) fn points(resolution: &Resolution, layout: u32) -> Vec<PlannedPoint> {
    let found = resolution.points.iter();
    found
        .filter(|found| found.kind != ProbePointKind::Garbage)
        .map(|found| point(resolution, found, layout))
        .collect()
}

/// The point for the program that examines garbage, if it was found.
pub(crate) fn garbage(resolution: &Resolution, layout: u32) -> Option<PlannedPoint> {
    let mut found = resolution.points.iter();
    let found = found.find(|found| found.kind == ProbePointKind::Garbage)?;
    Some(point(resolution, found, layout))
}

fn point(resolution: &Resolution, found: &ProbePoint, layout: u32) -> PlannedPoint {
    PlannedPoint {
        kind: found.kind,
        layout: Some(layout),
        arguments: found.arguments,
        runtime_delta: (resolution.runtime).wrapping_sub(found.probe_address).cast_signed(),
        entry: Some(found.file_offset),
        on_return: if found.kind.has_return() { Some(found.file_offset) } else { None },
        semaphore: found.semaphore_file_offset,
    }
}

/// The trace's description of an interpreter.
pub(crate) fn describe(resolution: &Resolution, shown: &Path) -> Interpreter {
    Interpreter {
        file: shown.to_string_lossy().into_owned(),
        version: resolution.version.to_string(),
        free_threaded: resolution.free_threaded,
        collector: resolution.collector.clone(),
        found_by: resolution.rung.to_string(),
        build_id: resolution.build_id.clone(),
    }
}
