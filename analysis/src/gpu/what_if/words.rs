//! The words of the predictions.

use super::program::Certainty;
use super::program::ProgramModel;
use crate::report::Garbage;
use crate::report::ScenarioId;
use crate::units::bytes;
use crate::units::count;
use crate::units::duration;
use crate::units::short_count;

pub(super) fn freeze(programs: &[ProgramModel<'_>]) -> String {
    let steps = programs.iter().any(|program| program.steps().len() > 1);
    let timestamp = if steps {
        "after the first step"
    } else {
        "after a tenth of the run"
    };
    format!("gc.freeze() {timestamp}")
}

pub(super) fn thresholds(programs: &[ProgramModel<'_>]) -> String {
    let thresholds = programs.first().map(|program| program.thresholds);
    match thresholds.map(raised) {
        Some([young, middle, old]) => format!("gc.set_threshold({young}, {middle}, {old})"),
        None => "the first threshold ten times as high".to_owned(),
    }
}

/// Threshold 0 ten times as high.
pub(super) fn raised([young, middle, old]: [i32; 3]) -> [i32; 3] {
    [young.max(100).saturating_mul(10), middle, old]
}

pub(super) fn planned(every: u64) -> String {
    match every {
        1 => "gc.disable() and gc.collect() after every step".to_owned(),
        _ => format!("gc.disable() and gc.collect() every {} steps", count(every)),
    }
}

pub(super) fn disable() -> String {
    "gc.disable()".to_owned()
}

pub(super) fn without_explicit() -> String {
    "no gc.collect() calls".to_owned()
}

pub(super) fn assumes(id: ScenarioId, replayed: bool) -> String {
    let specific = match id {
        ScenarioId::Freeze => {
            "The time of a full collection is proportional to the objects it traverses; full \
             collections are as frequent as before, and those of younger generations are \
             unchanged."
        }
        ScenarioId::Thresholds => {
            "At worst, a collection of younger generations takes as long as the ten it replaces; \
             at best, as long as one of them."
        }
        ScenarioId::Planned => {
            "A planned collection takes as long as the full collections recorded around that \
             time, and runs at the start of a step on all ranks."
        }
        ScenarioId::Explicit => {
            "Automatic collections free what these calls free now, without taking longer."
        }
        ScenarioId::Disable => "Without collections the program behaves as it did between them.",
    };
    let general = match replayed {
        true => "",
        false => {
            " GPU times are unknown, so a pause may have cost nothing: the time saved has no \
             lower bound."
        }
    };
    format!("{specific}{general}")
}

pub(super) fn risk(
    id: ScenarioId,
    programs: &[ProgramModel<'_>],
    garbage: Option<&Garbage>,
) -> String {
    match id {
        ScenarioId::Freeze => freeze_risk(programs),
        ScenarioId::Thresholds => format!(
            "Cyclic garbage lives up to ten times longer before it is freed{}; individual pauses \
             get longer.",
            gathers(garbage)
        ),
        ScenarioId::Planned => format!(
            "Cyclic garbage stays until the next planned collection{}. Phases that were not \
             recorded (validation, checkpoints) may produce more.",
            gathers(garbage)
        ),
        ScenarioId::Explicit => {
            "A call before a phase that needs a lot of memory may be intentional; calls before \
             torch.cuda.empty_cache() free GPU memory only if tensors are in cycles."
                .to_owned()
        }
        ScenarioId::Disable => match garbage.filter(|garbage| garbage.objects > 0) {
            Some(_) => format!(
                "Cyclic garbage is never freed{}. Call gc.collect() before memory runs out.",
                gathers(garbage)
            ),
            None => "Cyclic garbage is never freed. Collections freed nothing in this recording, \
                     but other phases (validation, checkpoints) may produce some."
                .to_owned(),
        },
    }
}

/// `: at the recorded rate about 5,000 objects in 3.00 s (12.0 MiB of device memory)`.
fn gathers(garbage: Option<&Garbage>) -> String {
    let Some(garbage) = garbage.filter(|garbage| garbage.objects > 0) else {
        return String::new();
    };
    let host = garbage
        .host_bytes
        .map(|host| format!("{} of host memory at the mean object size", bytes(host)));
    let device = garbage.device_bytes.filter(|device| *device > 0);
    let device = device.map(|device| format!("{} of device memory", bytes(device)));
    let memory: Vec<String> = host.into_iter().chain(device).collect();
    let memory = match memory.is_empty() {
        true => String::new(),
        false => format!(" ({})", memory.join(", ")),
    };
    format!(
        ": at the recorded rate about {1} objects in {0}{memory}",
        duration(garbage.over_ns),
        short_count(garbage.objects),
    )
}

/// CPython's rule for full collections (`gc.c`, `gc_select_generation`, 3.8 - 3.13 and from 3.14.5
/// on) compares with the objects of the oldest generation, which frozen ones have left.
fn freeze_risk(programs: &[ProgramModel<'_>]) -> String {
    let counts = programs.iter().map(|program| {
        let own = |generation| {
            let own = program.pauses();
            own.filter(|(_, pause)| {
                pause.generation == generation && program.automatic(pause) != Certainty::No
            })
            .count() as u64
        };
        let [_, _, old] = program.thresholds;
        let needed = u64::try_from(old).unwrap_or(0).saturating_add(1);
        (own(2), own(2).saturating_add(own(1)) / needed)
    });
    let (full, most) = counts.max_by_key(|(_, most)| *most).unwrap_or((0, 0));
    let more = match most > full.saturating_mul(2) {
        true => format!(
            ": up to {} instead of {} in this recording, each much shorter",
            count(most),
            count(full)
        ),
        false => String::new(),
    };
    format!(
        "Frozen objects that become garbage in a cycle are never freed (gc.unfreeze() undoes it). \
         CPython starts a full collection when the new objects exceed a quarter of those in the \
         oldest generation; frozen ones are not in it, so full collections may be more \
         frequent{more}."
    )
}
