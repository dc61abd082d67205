//! The words of the predictions.

use crate::report::{Change, Garbage, PlannedInterval};
use crate::units::{bytes, count, duration, percent, short_count};

/// The change as code.
pub(crate) fn change(change: &Change) -> String {
    match change {
        Change::Freeze { after_step: true, .. } => "gc.freeze() after the first step".to_owned(),
        Change::Freeze { .. } => "gc.freeze() after a tenth of the run".to_owned(),
        Change::Thresholds(thresholds) => super::set_threshold(*thresholds),
        Change::Planned(interval) => match interval.steps {
            1 => "gc.disable() and gc.collect() after every step".to_owned(),
            steps => format!("gc.disable() and gc.collect() every {} steps", count(steps)),
        },
        Change::Disable => "gc.disable()".to_owned(),
        Change::Explicit => "no gc.collect() calls".to_owned(),
    }
}

/// Why collections are planned so often.
pub(crate) fn why_every(interval: &PlannedInterval) -> String {
    let cost = interval.length_ns as f64 / (interval.step_ns as f64 * interval.steps as f64);
    let mut why = format!(
        "A full collection takes up to {}; every {} steps of {} each, that is {} of the time.",
        duration(interval.length_ns),
        count(interval.steps),
        duration(interval.step_ns),
        percent(cost),
    );
    if interval.steps < interval.by_cost {
        why += &format!(
            " Every {} steps would cost less, but more than {} objects of garbage, or {} % of \
             torch's device memory, would accumulate.",
            count(interval.by_cost),
            count(PlannedInterval::MOST_OBJECTS),
            PlannedInterval::MOST_DEVICE_PERCENT,
        );
    }
    why
}

/// What a prediction assumes. `is_replayed`: whether GPU times are known.
pub(crate) fn assumes(change: &Change, is_replayed: bool) -> String {
    let specific = match change {
        Change::Freeze { .. } => {
            "Full collections take what a collector simulated over the recorded ones takes, at \
             worst and at best; where it cannot be simulated, their time is proportional to the \
             objects that they traverse and they are as frequent as before. Those of younger \
             generations are unchanged."
        }
        Change::Thresholds(_) => {
            "Collections take what a collector simulated over the recorded ones takes, at worst and \
             at best; where it cannot be simulated, one of the younger generations takes as long \
             as the ten it replaces, or as one of them."
        }
        Change::Planned(_) => {
            "A planned collection takes as long as the full collections recorded around that \
             time, and runs at the start of a step on all ranks."
        }
        Change::Explicit => {
            "Automatic collections free what these calls free now, without taking longer."
        }
        Change::Disable => "Without collections the program behaves as it did between them.",
    };
    let general = if is_replayed {
        ""
    } else {
        " GPU times are unknown, so a pause may have cost nothing: the time saved has no lower \
         bound."
    };
    format!("{specific}{general}")
}

/// What can go wrong. `garbage`: what would accumulate.
pub(crate) fn risk(change: &Change, garbage: Option<Garbage>) -> String {
    let garbage = garbage.filter(|garbage| garbage.objects > 0);
    let gathers = garbage.as_ref().map_or(String::new(), gathers);
    match change {
        Change::Freeze { more_frequent, .. } => {
            let more = more_frequent.map_or(String::new(), |(most, full)| {
                format!(
                    ": up to {} instead of {} in this recording, each much shorter",
                    count(most),
                    count(full)
                )
            });
            format!(
                "{} CPython starts a full collection when the new objects exceed a quarter of \
                 those in the oldest generation; frozen ones are not in it, so full collections \
                 may be more frequent{more}.",
                super::FREEZE_RISK
            )
        }
        Change::Thresholds(_) => {
            format!("{}{gathers}; individual pauses get longer.", super::THRESHOLDS_RISK)
        }
        Change::Planned(_) => format!(
            "Cyclic garbage stays until the next planned collection{gathers}. Phases that were not \
             recorded (validation, checkpoints) may produce more."
        ),
        Change::Explicit => super::EXPLICIT_CALLS_RISK.to_owned(),
        Change::Disable if garbage.is_some() => format!(
            "Cyclic garbage is never freed{gathers}. Call gc.collect() before memory runs out."
        ),
        Change::Disable => "Cyclic garbage is never freed. Collections freed nothing in this \
                            recording, but other phases (validation, checkpoints) may produce some."
            .to_owned(),
    }
}

/// `: at the recorded rate about 5,000 objects in 3.00 s (12.0 MiB of device memory)`.
fn gathers(garbage: &Garbage) -> String {
    let host = garbage
        .host_bytes
        .map(|host| format!("{} of host memory at the mean object size", bytes(host)));
    let device = garbage.device_bytes.filter(|device| *device > 0);
    let device = device.map(|device| format!("{} of device memory", bytes(device)));
    let memory: Vec<String> = host.into_iter().chain(device).collect();
    let memory =
        if memory.is_empty() { String::new() } else { format!(" ({})", memory.join(", ")) };
    format!(
        ": at the recorded rate about {1} objects in {0}{memory}",
        duration(garbage.over_ns),
        short_count(garbage.objects),
    )
}
