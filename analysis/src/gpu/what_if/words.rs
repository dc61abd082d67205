//! The words of the predictions.

use super::program::Certainty;
use super::program::ProgramModel;
use crate::report::Garbage;
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

pub(super) fn assumes(id: &str, replayed: bool) -> String {
    let specific = match id {
        "freeze" => {
            "A full collection takes time in proportion to the objects it looks at, and full \
             collections come as often as before; those of younger generations are unchanged."
        }
        "thresholds" => {
            "For the worse a collection of younger generations takes as long as the ten it stands \
             for, for the better as long as one of them."
        }
        "planned" => {
            "A planned collection takes as long as the full collections recorded around that \
             moment, and comes at the begin of a step on all ranks."
        }
        "explicit" => {
            "What these calls free now is freed by automatic collections, which take no longer for \
             it."
        }
        _ => "Without collections the program does what it did between them.",
    };
    let general = match replayed {
        true => "",
        false => {
            " The GPU's times are not known, so a pause may have cost nothing: the time saved has \
             no lower bound."
        }
    };
    format!("{specific}{general}")
}

pub(super) fn risk(id: &str, programs: &[ProgramModel<'_>], garbage: Option<&Garbage>) -> String {
    match id {
        "freeze" => freeze_risk(programs),
        "thresholds" => format!(
            "Garbage in cycles stays ten times longer before it is freed{}; single pauses get longer.",
            gathers(garbage)
        ),
        "planned" => format!(
            "Garbage in cycles stays until the next planned collection{}. Phases that were not \
             recorded (validation, checkpoints) may make more.",
            gathers(garbage)
        ),
        "explicit" => {
            "A call before a phase that needs much memory may be there on purpose; calls \
                       before torch.cuda.empty_cache() free GPU memory only if cycles hold tensors."
                .to_owned()
        }
        _ => match garbage.filter(|garbage| garbage.objects > 0) {
            Some(_) => format!(
                "Garbage in cycles is never freed{}. Collect by hand before memory runs out.",
                gathers(garbage)
            ),
            None => "Garbage in cycles is never freed. Collections freed nothing in this \
                     recording, but other phases (validation, checkpoints) may make some."
                .to_owned(),
        },
    }
}

/// `: at the rate of this recording about 5,000 objects in 3.00 s (12.0 MiB of device memory)`.
fn gathers(garbage: Option<&Garbage>) -> String {
    let Some(garbage) = garbage.filter(|garbage| garbage.objects > 0) else {
        return String::new();
    };
    let host = garbage.host_bytes.map(|host| {
        format!(
            "{} of the host's memory if they are of ordinary size",
            bytes(host)
        )
    });
    let device = garbage.device_bytes.filter(|device| *device > 0);
    let device = device.map(|device| format!("{} of device memory", bytes(device)));
    let memory: Vec<String> = host.into_iter().chain(device).collect();
    let memory = match memory.is_empty() {
        true => String::new(),
        false => format!(" ({})", memory.join(", ")),
    };
    format!(
        ": at the rate of this recording about {1} objects in {0}{memory}",
        duration(garbage.over_ns),
        short_count(garbage.objects),
    )
}

/// CPython's rule for full collections (`gc.c`, `gc_select_generation`, 3.8 - 3.13 and from 3.14.5 on) counts against the
/// objects of the oldest generation, which frozen ones have left.
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
        "Frozen objects that become garbage in a cycle are never freed (gc.unfreeze() takes it \
         back). CPython starts a full collection when the objects that are new exceed a quarter \
         of those in the oldest generation; frozen ones no longer count there, so full \
         collections may come more often{more}."
    )
}
