//! Garbage that accumulates if collections are less frequent, from what they freed in the
//! recording.

use super::program::{Certainty, ProgramModel, known};
use crate::report::{Basis, Garbage};
use crate::time::{scaled, times};

/// The garbage that accumulates in `over_ns`, in the process with the most. `None` if no pause has
/// a known result.
pub(super) fn over(programs: &[ProgramModel<'_>], over_ns: u64) -> Option<Garbage> {
    let telling = programs.iter().filter(|program| {
        let mut pauses = program.pauses();
        pauses.any(|(_, pause)| known(pause.collected).is_some())
    });
    let each = telling.map(|program| of(program, over_ns));
    each.max_by_key(|garbage| (garbage.objects, garbage.device_bytes))
}

fn of(program: &ProgramModel<'_>, over_ns: u64) -> Garbage {
    let objects = part(program, program.freed_objects(), over_ns);
    let device = Some(program.device_freed_bytes).filter(|_| program.device_reserved_bytes > 0);
    Garbage {
        basis: Basis::Inferred,
        over_ns,
        objects,
        host_bytes: program.bytes_per_object.map(|bytes| times(bytes, objects)),
        device_bytes: device.map(|bytes| part(program, bytes, over_ns)),
    }
}

/// The proportional part of a sum over the whole recording.
fn part(program: &ProgramModel<'_>, sum: u64, over_ns: u64) -> u64 {
    scaled(sum, over_ns, program.recorded_ns())
}

/// The mean time between two automatic collections, in the process where it is longest, in ns.
pub(super) fn between_collections_ns(programs: &[ProgramModel<'_>]) -> u64 {
    let each = programs.iter().map(|program| {
        let pauses = program.pauses();
        let count = pauses.filter(|(_, pause)| program.automatic(pause) != Certainty::No);
        program.recorded_ns() / (count.count() as u64).max(1)
    });
    each.fold(0, u64::max)
}
