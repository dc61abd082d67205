//! The search strategy of static trace points: `python:gc__start` and `python:gc__done`.

use super::points;
use crate::elf::{ElfImage, StaticProbe};
use crate::placement;
use crate::resolution::ProbePoint;
use gctrace_abi::ProbePointKind;

/// The trace points; without `gc__start` no pause can be measured.
pub(crate) fn find(image: &ElfImage<'_>) -> Result<Vec<ProbePoint>, String> {
    let probes = image.static_probes("python");
    let points: Vec<ProbePoint> = probes.iter().filter_map(|probe| point(image, probe)).collect();
    let both = ["gc__start", "gc__done"]
        .iter()
        .all(|name| points.iter().any(|point| point.function == *name));
    if both {
        Ok(points)
    } else {
        Err("no trace points python:gc__start and python:gc__done".to_owned())
    }
}

fn point(image: &ElfImage<'_>, probe: &StaticProbe) -> Option<ProbePoint> {
    let kind = match probe.name.as_str() {
        "gc__start" => ProbePointKind::UsdtStart,
        "gc__done" => ProbePointKind::UsdtDone,
        _ => return None,
    };
    let placement = placement::place_at(image, probe.address)?;
    let mut point = points::make(image, kind, &probe.name, probe.address, placement)?;
    // CPython passes the trace point only if its semaphore is not 0 (`PyDTrace_GC_START_ENABLED`);
    // the kernel increments it for a probe that names its file offset (`update_ref_ctr`). At an
    // unknown offset the trace point would stay disabled.
    // https://github.com/torvalds/linux/blob/v6.12/kernel/events/uprobes.c
    point.semaphore_file_offset = match probe.semaphore {
        Some(semaphore) => Some(image.file_offset(semaphore)?),
        None => None,
    };
    Some(point)
}
