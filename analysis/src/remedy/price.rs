//! The price of each remedy: recorded time of collections, less their time under the new setting.

use super::collector::{Setting, SimulatedFulls, full_collections, traversing_moved_ns};
use super::curves::{RecordedCurves, freed, quotient};
use super::{
    CostAssumption, LITTLE_BYTES, PartsLeft, PricedRemedy, RecordedRun, RemedyEstimate, float,
};
use crate::report::{AdviceId, AdvisedSettings, SettingsReport};

/// By how much [`SettingsReport::raised`] raises threshold 0. More is no better: 50,000 new
/// containers do not fit the caches, so that collections of generation 0 take more than they save.
const RAISED: u8 = 10;
/// Up to this threshold 0 (CPython 3.13's) raising it is advised.
const LARGEST_RAISED: i32 = 2_000;
/// Time of collections of generation 0 under the raised threshold, as a multiple of the time of the
/// recorded collections that went through objects of the same age.
const YOUNGEST_RAISED: [f64; 3] = [0.4, 0.75, 1.5];
/// Planned collections in training that are tried.
const PLANNED: [u32; 5] = [10, 16, 24, 32, 64];
/// Up to this part of what was allocated, and this number of objects, garbage is next to nothing:
/// interpreters leave some hundred when they start and import.
const DISABLED_GARBAGE: f64 = 0.000_1;
const LEAST_GARBAGE: f64 = 1_000.0;
/// Time to free an object whose last reference goes, in times of the least that freeing garbage that
/// waited takes: it is in the caches, and no collector takes it apart.
const FREEING_WARM: [f64; 3] = [0.2, 0.6, 1.0];
/// Containers that go with an object that the collector freed, at most: it frees fewer than were allocated,
/// as dicts and tuples that hold nothing it could free are no longer tracked, and garbage holds others.
const CONTAINERS_PER_FREED: f64 = 2.0;
/// With less of what was allocated in cycles, breaking them is no remedy.
const LEAST_IN_CYCLES: f64 = 0.1;
/// Garbage that waits for a planned collection holds at most this part of the device's memory that
/// PyTorch reserved, one in so many.
const MOST_OF_DEVICE: u64 = 20;
/// From this part of the containers of collections of the middle generation on, those that are alive at a
/// time exceed a raised threshold: 7,000 of 8,400 by default.
const REACHES_SURELY: f64 = 0.85;
/// No automatic collections.
const WITHOUT_AUTOMATIC: PartsLeft =
    PartsLeft { younger: RemedyEstimate::NONE, full: RemedyEstimate::NONE, ..PartsLeft::ALL };
/// Recorded and predicted run differ by this share of all collector time, whatever changes.
const RUN_TO_RUN: f64 = 0.1;

/// All remedies that apply. Where steps are unknown, what is set at the start is priced for the whole
/// run.
pub(super) fn remedies(run: &RecordedRun<'_>, curves: &RecordedCurves) -> Vec<PricedRemedy> {
    let from_start = run.start_ns.filter(|_| run.steps.is_none());
    let whole = from_start.and_then(|start_ns| {
        let whole = run.since(start_ns, run.training_ns.1);
        Some((whole, RecordedCurves::of(&whole)?))
    });
    let (whole_run, whole) = whole.as_ref().map_or((run, curves), |(run, curves)| (run, curves));
    let enabled = run.enabled != Some(false) && run.thresholds[0] > 0;
    let automatic = enabled && whole.automatic_ns() > 0.0;
    let mut list = Vec::new();
    let explicit = whole.explicit.count > 0.0;
    if explicit {
        list.push(without_explicit(whole_run, whole));
    }
    if curves.fulls.iter().any(|full| full.in_training) && !curves.frozen() {
        list.push(if run.forked { freeze_before_fork(run, curves) } else { freeze(run, curves) });
    }
    if automatic && run.thresholds[0] <= LARGEST_RAISED {
        list.push(raise_threshold(whole_run, whole));
    }
    if automatic && !curves.fulls.is_empty() {
        list.extend(run.steps.and_then(|steps| planned(run, curves, steps)));
    }
    if enabled && let Some(start_ns) = run.start_ns {
        list.extend(off_while_loading(run, start_ns));
        list.extend(disable(run, whole));
    }
    if automatic && run.few_cycles {
        list.extend(break_cycles(run, curves));
    }
    let garbage = curves.garbage() + curves.explicit.freed;
    let waited = curves.waited || whole.waited;
    for remedy in &mut list {
        if waited {
            remedy.may_save_nothing();
        }
        let waiting = quotient(float(remedy.waiting_objects), garbage);
        remedy.waiting_device_bytes =
            run.device.map(|device| natural(float(device.freed_bytes) * waiting));
    }
    list
}

fn setting(run: &RecordedRun<'_>) -> Setting {
    let [_, middle, old] = run.thresholds.map(|threshold| f64::from(threshold.max(0)));
    let old = if run.enabled == Some(false) { f64::INFINITY } else { old };
    Setting { raised: 1.0, thresholds: [middle, old], freeze: false }
}

/// Time of collections under the raised threshold, in ns.
#[derive(Clone, Copy, Debug)]
struct RaisedTimes {
    youngest: RemedyEstimate,
    middle: RemedyEstimate,
    full: RemedyEstimate,
    /// The longest full collection.
    longest_ns: f64,
    /// Objects that are found dead later than recorded.
    waiting: f64,
}

fn raised_times(run: &RecordedRun<'_>, curves: &RecordedCurves) -> RaisedTimes {
    let [young, _, _] = curves.automatic;
    let raised = Setting {
        raised: (f64::from(run.thresholds[0]) * f64::from(RAISED)).max(1_000.0)
            / f64::from(run.thresholds[0].max(1)),
        ..setting(run)
    };
    let fulls = |assumption| full_collections(curves, raised, assumption);
    // Windows whose containers are still counted: those that the new collections of generation 0 go
    // through, and, as far as they did not die, the new ones of the middle generation.
    let counted = RemedyEstimate::of(|assumption| curves.counted_windows(assumption));
    let window_ns = quotient(young.time_ns, young.count);
    let youngest = RemedyEstimate::of(|assumption| {
        let factor = RemedyEstimate::around(window_ns, YOUNGEST_RAISED).at(assumption);
        counted.at(assumption) * factor
    });
    let of_middle = RemedyEstimate::of(|assumption| {
        let [young, middle, old] = curves.automatic;
        let objects = counted.at(assumption) * curves.containers.0 - young.freed - middle.freed;
        let objects = objects.max(old.freed);
        let (dies, each_ns) = match assumption {
            CostAssumption::Cheap => (0.0, curves.middle_ns),
            CostAssumption::Likely => {
                (old.freed * curves.died_young(), curves.traversing_ns.likely)
            }
            CostAssumption::Costly => (old.freed, curves.traversing_ns.costly),
        };
        objects * each_ns + curves.to_free_ns(dies, assumption)
    });
    let now = full_collections(curves, setting(run), CostAssumption::Likely);
    let found_later = |assumption| (fulls(assumption).most_garbage - now.most_garbage).max(0.0);
    let old =
        f64::midpoint(found_later(CostAssumption::Cheap), found_later(CostAssumption::Likely));
    RaisedTimes {
        youngest,
        middle: of_middle,
        full: RemedyEstimate::of(|assumption| fulls(assumption).time_ns),
        longest_ns: fulls(CostAssumption::Likely).longest_ns,
        waiting: (waiting_young(curves, raised.raised, counted) + old).min(curves.garbage()),
    }
}

/// Garbage of the younger generations that waits longer under the raised threshold, in objects. It is
/// counted itself, with what stays: so collections become rarer than the threshold is raised by where
/// what is alive at a time does not reach it.
fn waiting_young(curves: &RecordedCurves, raised: f64, counted: RemedyEstimate) -> f64 {
    let windows = curves.windows.1 - curves.windows.0;
    let (containers, middle_containers) = curves.containers;
    let [young, middle, old] = curves.automatic;
    let part = if counted.costly >= REACHES_SURELY * windows && curves.fulls.len() > 1 {
        quotient(counted.likely, windows)
    } else {
        // How fast the heap grows is unknown before the second full collection.
        let grows = curves.grows().unwrap_or(0.0);
        (quotient(curves.garbage(), windows * containers) + quotient(grows, containers)).min(1.0)
    };
    let rarer = quotient(raised, part);
    let waits = |freed: f64, of: f64| {
        let each = quotient(freed, windows) * quotient(of, containers);
        (each * (rarer - 1.0)).min(of * (raised - 1.0))
    };
    // Older collections go through the youngest generation, too.
    let also = quotient(young.freed, young.count);
    let older: f64 = [middle, old].iter().map(|sum| (sum.freed - also * sum.count).max(0.0)).sum();
    waits(curves.garbage(), containers) + waits(older, middle_containers)
}

fn raise_threshold(run: &RecordedRun<'_>, curves: &RecordedCurves) -> PricedRemedy {
    let times = raised_times(run, curves);
    let [young, middle, old] = curves.automatic;
    let younger = RemedyEstimate::of(|assumption| {
        times.youngest.at(assumption) + times.middle.at(assumption)
    });
    let full = part(times.full, old.time_ns + curves.explicit.time_ns);
    PricedRemedy {
        left: PartsLeft {
            younger: part(younger, young.time_ns + middle.time_ns),
            full,
            explicit: full,
        },
        // The new youngest collections are as large as the recorded ones of the middle generation.
        longest_ns: natural(times.longest_ns.max(curves.longest_ns(0..=1))),
        settings: AdvisedSettings {
            thresholds: Some(SettingsReport::raised(run.thresholds)),
            ..AdvisedSettings::default()
        },
        ..priced(
            AdviceId::RaiseThreshold,
            curves,
            curves.automatic_ns() + curves.explicit.time_ns,
            &[times.youngest, times.middle, times.full],
            times.waiting,
        )
    }
}

/// Times as a part of the recorded one, with what differs between two runs.
fn part(times: RemedyEstimate, recorded_ns: f64) -> RemedyEstimate {
    if recorded_ns <= 0.0 {
        return RemedyEstimate::ALL;
    }
    let RemedyEstimate { cheap, likely, costly } = times.map(|ns| ns / recorded_ns);
    RemedyEstimate { cheap: (cheap - RUN_TO_RUN).max(0.0), likely, costly: costly + RUN_TO_RUN }
}

/// Full collections after `gc.freeze()`.
fn frozen(
    run: &RecordedRun<'_>,
    curves: &RecordedCurves,
    assumption: CostAssumption,
) -> SimulatedFulls {
    full_collections(curves, Setting { freeze: true, ..setting(run) }, assumption)
}

fn freeze(run: &RecordedRun<'_>, curves: &RecordedCurves) -> PricedRemedy {
    let of_fulls = RemedyEstimate::of(|assumption| frozen(run, curves, assumption).time_ns);
    let likely = frozen(run, curves, CostAssumption::Likely);
    let recorded_ns = curves.automatic[2].time_ns + curves.explicit.time_ns;
    let full = part(of_fulls, recorded_ns);
    PricedRemedy {
        left: PartsLeft { full, explicit: full, ..PartsLeft::ALL },
        settings: AdvisedSettings { freeze: true, ..AdvisedSettings::default() },
        once_ns: natural(likely.once_ns),
        longest_ns: natural(likely.longest_ns.max(curves.longest_ns(0..=1))),
        ..priced(AdviceId::Freeze, curves, recorded_ns, &[of_fulls], 0.0)
    }
}

/// In a forked process, with the heap of its parent frozen there before the fork.
fn freeze_before_fork(run: &RecordedRun<'_>, curves: &RecordedCurves) -> PricedRemedy {
    PricedRemedy {
        id: AdviceId::FreezeBeforeFork,
        settings: AdvisedSettings::default(),
        ..freeze(run, curves)
    }
}

/// The number of planned collections that is likely to save most among those whose garbage at most
/// doubles the heap, and holds little of the device's memory; an interval is at most a tenth of the steps that were seen.
fn planned(run: &RecordedRun<'_>, curves: &RecordedCurves, steps: u64) -> Option<PricedRemedy> {
    let device = run.device;
    let garbage = curves.garbage();
    let (start, end) = curves.windows;
    let tried = PLANNED.iter().filter(|count| u64::from(**count) <= steps);
    let fits = tried.filter(|count| curves.waiting_ratio(garbage / f64::from(**count)) <= 1.0);
    let fits = fits.filter(|count| {
        device.is_none_or(|device| {
            let each = device.freed_bytes / u64::from(**count);
            each <= device.reserved_bytes / MOST_OF_DEVICE
        })
    });
    let each = fits.map(|count| {
        let at = |index: u32| start + (end - start) * f64::from(index) / f64::from(*count);
        let traversing_ns: f64 = (1..=*count).map(|index| curves.live_ns(at(index))).sum();
        let of_planned = RemedyEstimate::of(|assumption| {
            traversing_moved_ns(traversing_ns, assumption) + curves.to_free_ns(garbage, assumption)
        });
        let waiting = garbage / f64::from(*count);
        let count = u64::from(*count);
        let longest_ns = traversing_moved_ns(curves.live_ns(end), CostAssumption::Likely)
            + curves.to_free_ns(waiting, CostAssumption::Likely);
        PricedRemedy {
            longest_ns: natural(longest_ns),
            left: WITHOUT_AUTOMATIC,
            settings: AdvisedSettings {
                disable: true,
                collect_every_steps: Some((steps / count).max(1)),
                ..AdvisedSettings::default()
            },
            ..priced(AdviceId::Planned, curves, curves.automatic_ns(), &[of_planned], waiting)
        }
    });
    each.max_by(|one, other| {
        one.rank().total_cmp(&other.rank()).then(one.likely_ns().cmp(&other.likely_ns()))
    })
}

/// Without automatic collections until training begins, and the heap frozen there, without a
/// collection.
fn off_while_loading(run: &RecordedRun<'_>, start_ns: u64) -> Option<PricedRemedy> {
    let start_up = run.since(start_ns, run.training_ns.0);
    let curves = RecordedCurves::of(&start_up)?;
    let saves_ns = curves.automatic_ns();
    let remedy = priced(AdviceId::OffWhileLoading, &curves, saves_ns, &[], curves.garbage());
    // With calls of its own the program collects nevertheless.
    let applies = saves_ns > 0.0 && curves.explicit.count == 0.0 && !run.forked;
    (applies && remedy.leaves_little()).then_some(remedy)
}

/// Without automatic collections at all: for a program that ends by itself, and whose collector found
/// next to nothing. What its garbage owns may be unknown, so that no part of the heap is little enough.
fn disable(run: &RecordedRun<'_>, curves: &RecordedCurves) -> Option<PricedRemedy> {
    let (saves_ns, garbage) = (curves.automatic_ns(), curves.garbage());
    let (start, end) = curves.windows;
    let little = LEAST_GARBAGE.max((end - start) * curves.containers.0 * DISABLED_GARBAGE);
    let settings = AdvisedSettings { disable: true, ..AdvisedSettings::default() };
    let ends = run.ended && run.steps.is_none() && curves.explicit.count == 0.0;
    let bytes = curves.waiting_bytes(garbage);
    let is_little = garbage <= little && bytes.is_none_or(|bytes| bytes <= LITTLE_BYTES);
    let applies = ends && saves_ns > 0.0 && is_little;
    applies.then(|| PricedRemedy {
        settings,
        left: WITHOUT_AUTOMATIC,
        ..priced(AdviceId::Disable, curves, saves_ns, &[], garbage)
    })
}

/// Without the cycles that all garbage comes from: their objects are freed as soon as nothing refers
/// to them. Collections start by the containers that are allocated and not freed: what is garbage
/// among them starts none any more; what stays, or is freed later without a cycle, as many as before.
fn break_cycles(run: &RecordedRun<'_>, curves: &RecordedCurves) -> Option<PricedRemedy> {
    let (start, end) = curves.windows;
    // Of the last collection, too: garbage that became old is found no earlier.
    let found = run.pauses.iter().filter(|pause| pause.start_ns >= run.training_ns.0);
    let found: f64 = found.map(freed).sum();
    let in_cycles = quotient(found * CONTAINERS_PER_FREED, (end - start) * curves.containers.0);
    let others_ns = curves.automatic_ns() * (1.0 - in_cycles).max(0.0);
    let freeing_ns = curves.to_free_ns(curves.garbage(), CostAssumption::Cheap);
    let replaced_ns =
        RemedyEstimate::around(freeing_ns, FREEING_WARM).map(|freeing_ns| freeing_ns + others_ns);
    let left = part(replaced_ns, curves.automatic_ns());
    let longest_ns = if others_ns > 0.0 { curves.longest_ns(0..=2) } else { 0.0 };
    (in_cycles >= LEAST_IN_CYCLES).then(|| PricedRemedy {
        left: PartsLeft { younger: left, full: left, ..PartsLeft::ALL },
        longest_ns: natural(longest_ns),
        ..priced(AdviceId::BreakCycles, curves, curves.automatic_ns(), &[replaced_ns], 0.0)
    })
}

/// Without the program's own calls. What they freed the automatic collections free, which also come
/// more often: each call had set back the counters.
fn without_explicit(run: &RecordedRun<'_>, curves: &RecordedCurves) -> PricedRemedy {
    let [young, _, _] = curves.automatic;
    let calls = curves.explicit;
    let mean_ns = quotient(calls.time_ns, calls.count);
    let added = RemedyEstimate::of(|assumption| {
        let freeing_ns = curves.to_free_ns(calls.freed, assumption);
        let windows = young.count + calls.count;
        let middle = windows * curves.containers.0 / curves.containers.1;
        let fulls = middle / (setting(run).thresholds[1] + 1.0);
        let fulls = match assumption {
            CostAssumption::Cheap => 0.0,
            CostAssumption::Likely => (fulls / 2.0).floor(),
            CostAssumption::Costly => fulls.ceil(),
        };
        freeing_ns + fulls.min(calls.count) * mean_ns
    });
    PricedRemedy {
        left: PartsLeft { explicit: part(added, calls.time_ns), ..PartsLeft::ALL },
        longest_ns: natural(curves.longest_ns(0..=2)),
        ..priced(AdviceId::ExplicitCalls, curves, calls.time_ns, &[added], calls.freed)
    }
}

/// `recorded_ns`: of the collections that change. `parts`: the time that replaces it; what is
/// unknown of one says nothing of another, so their deviations are added as independent ones.
fn priced(
    id: AdviceId,
    curves: &RecordedCurves,
    recorded_ns: f64,
    parts: &[RemedyEstimate],
    waiting: f64,
) -> PricedRemedy {
    let all_ns = curves.automatic_ns() + curves.explicit.time_ns;
    let likely_ns = recorded_ns - parts.iter().map(|part| part.likely).sum::<f64>();
    let deviation_ns = |side: CostAssumption| {
        let deviations = parts.iter().map(|part| part.at(side) - part.likely);
        let squares: f64 = deviations.map(|ns| ns * ns).sum();
        (squares + (all_ns * RUN_TO_RUN).powi(2)).sqrt()
    };
    let most_ns = likely_ns + deviation_ns(CostAssumption::Cheap);
    let most_ns = most_ns.min(recorded_ns * (1.0 + RUN_TO_RUN / 2.0));
    let least_ns = likely_ns - deviation_ns(CostAssumption::Costly);
    PricedRemedy {
        id,
        settings: AdvisedSettings::default(),
        saves_ns: [least_ns, likely_ns, most_ns].map(whole),
        once_ns: 0,
        longest_ns: 0,
        waiting_objects: natural(waiting),
        waiting_bytes: curves.waiting_bytes(waiting),
        waiting_device_bytes: None,
        waiting_ratio: curves.waiting_ratio(waiting),
        left: PartsLeft::ALL,
    }
}

/// A whole number, 0 at least.
pub(crate) fn natural(figure: f64) -> u64 {
    whole(figure).max(0).unsigned_abs()
}

#[expect(clippy::cast_possible_truncation, reason = "casts of floats saturate")]
fn whole(figure: f64) -> i64 {
    figure.round() as i64
}
