//! A generational collector that runs over recorded curves: which full collections a setting has,
//! and what they take.
//!
//! CPython 3.8 - 3.13 and from 3.14.5 on (`gc.c`, `gc_select_generation`): a full collection needs
//! more collections of the middle generation than threshold 2, and pending objects of at least a
//! quarter of those that survived the last full one.

use super::curves::{FullCollection, RecordedCurves, quotient, windows_per_middle};
use super::{CostAssumption, RemedyEstimate};

/// Time to traverse a heap that was laid out under another setting, in times of the recorded one.
const TRAVERSING_MOVED: [f64; 3] = [0.9, 1.0, 1.15];

/// States at the start of training that are tried: one for each collection of the middle generation
/// between two full ones under CPython's threshold 2.
const PHASES: u8 = 11;

/// The new setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Recorded windows per new window: by how much threshold 0 was raised.
    pub(super) raised: f64,
    /// Thresholds 1 and 2.
    pub(super) thresholds: [f64; 2],
    /// Collect and freeze at the start of training.
    pub(super) freeze: bool,
}

/// Full collections in training.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SimulatedFulls {
    /// Without the one before a freeze.
    pub(super) time_ns: f64,
    /// Of the collection before a freeze.
    pub(super) once_ns: f64,
    pub(super) longest_ns: f64,
    /// Most garbage that one of them, or the end of training, found, in objects.
    pub(super) most_garbage: f64,
}

/// State of the collector; times are what a full collection spends on those objects, in ns.
#[derive(Clone, Copy, Debug)]
struct OldGeneration {
    /// Collections of the middle generation since the last full one.
    middle: f64,
    pending_ns: f64,
    /// Survivors of the last full collection.
    total_ns: f64,
    frozen_ns: f64,
    /// Promoted since the freeze and still alive.
    unfrozen_ns: f64,
    /// Objects.
    garbage: f64,
}

/// Runs the collector from start to end of training.
///
/// With a setting in force from the start of the run, training begins anywhere between two full
/// collections: as likely is the mean over [`PHASES`], cheap and costly are a standard deviation
/// less and more.
pub(super) fn full_collections(
    curves: &RecordedCurves,
    setting: Setting,
    assumption: CostAssumption,
) -> SimulatedFulls {
    // The whole run is known if none was before: nothing is at chance.
    if setting.raised <= 1.0 || curves.last_before(curves.windows.0).is_none() {
        return run(curves, setting, assumption, None);
    }
    let each = (0..PHASES).map(|phase| {
        let phase = (f64::from(phase) + 0.5) / f64::from(PHASES);
        run(curves, setting, assumption, Some(phase))
    });
    let of = |figure: fn(&SimulatedFulls) -> f64| {
        let figures = each.clone().map(|sum| figure(&sum));
        let mean = figures.clone().sum::<f64>() / f64::from(PHASES);
        let squares: f64 = figures.map(|figure| (figure - mean).powi(2)).sum();
        let deviation = (squares / f64::from(PHASES)).sqrt();
        match assumption {
            CostAssumption::Cheap => (mean - deviation).max(0.0),
            CostAssumption::Likely => mean,
            CostAssumption::Costly => mean + deviation,
        }
    };
    SimulatedFulls {
        time_ns: of(|sum| sum.time_ns),
        once_ns: of(|sum| sum.once_ns),
        longest_ns: of(|sum| sum.longest_ns),
        most_garbage: of(|sum| sum.most_garbage),
    }
}

/// `phase`: the part of the interval between two full collections, 0 to 1, that has passed when
/// training begins; `None` as recorded.
fn run(
    curves: &RecordedCurves,
    setting: Setting,
    assumption: CostAssumption,
    phase: Option<f64>,
) -> SimulatedFulls {
    let mut sum = SimulatedFulls::default();
    let [middle, old] = setting.thresholds;
    let (mut window, end) = curves.windows;
    let Some(mut state) = begin(curves, setting, assumption, &mut sum) else {
        return sum;
    };
    // Windows between collections of the middle generation.
    let step_of = |interval: &FullCollection| {
        let counted = if setting.raised > 1.0 { interval.counted.at(assumption) } else { 1.0 };
        setting.raised * windows_per_middle(middle) / counted
    };
    if let (Some(phase), Some(interval)) = (phase, curves.interval(window)) {
        let step = step_of(interval);
        let promoted = promoted_part(curves, setting, interval, assumption);
        let wait = (state.total_ns / 4.0).max(interval.promoted_ns * promoted * step * (old + 1.0));
        let windows = quotient(wait * phase, interval.promoted_ns * promoted);
        state.middle = windows / step;
        state.pending_ns = wait * phase;
        state.garbage = interval.garbage * promoted * windows;
    }
    let mut explicit =
        curves.fulls.iter().filter(|full| full.in_training && !full.automatic).peekable();
    while let Some(step) = curves.interval(window).map(step_of) {
        let next = window + step;
        while let Some(full) = explicit.next_if(|full| full.window <= next) {
            state.collect(curves, full.live_ns, assumption, &mut sum);
        }
        let interval = curves.interval(next).filter(|_| next <= end);
        let Some(interval) = interval else {
            break;
        };
        window = next;
        let promoted = promoted_part(curves, setting, interval, assumption);
        state.promote(interval, curves, step, promoted, assumption);
        if state.middle > old && state.pending_ns >= state.total_ns / 4.0 {
            state.collect(curves, curves.live_ns(window), assumption, &mut sum);
        }
    }
    sum.most_garbage = sum.most_garbage.max(state.garbage);
    sum
}

/// The state at the start of training. `None` without a recorded full collection.
fn begin(
    curves: &RecordedCurves,
    setting: Setting,
    assumption: CostAssumption,
    sum: &mut SimulatedFulls,
) -> Option<OldGeneration> {
    let (start, _) = curves.windows;
    let interval = curves.interval(start)?;
    let last = curves.last_before(start);
    let since = start - last.map_or(0.0, |full| full.window);
    let mut state = OldGeneration {
        middle: curves.middle_before,
        pending_ns: interval.promoted_ns * since,
        total_ns: last.map_or(0.0, |full| curves.live_ns(full.window)),
        frozen_ns: 0.0,
        unfrozen_ns: 0.0,
        garbage: interval.garbage * since,
    };
    if setting.freeze && last.is_none() && curves.inherited {
        // Frozen by the parent, whose collection is none of this process.
        state.total_ns = curves.live_ns(start);
        state.frozen_ns = state.total_ns;
    } else if setting.freeze {
        state.collect(curves, curves.live_ns(start), assumption, sum);
        *sum = SimulatedFulls { once_ns: sum.time_ns, ..SimulatedFulls::default() };
        let live_ns = curves.live_ns(start);
        state.total_ns = live_ns;
        state.frozen_ns = live_ns;
    }
    Some(state)
}

/// The part of what was promoted that still is if the younger generations are collected later: of
/// what died soon after, nothing, as much as died at a tenth of the age, or all.
fn promoted_part(
    curves: &RecordedCurves,
    setting: Setting,
    interval: &FullCollection,
    assumption: CostAssumption,
) -> f64 {
    if setting.raised <= 1.0 {
        return 1.0;
    }
    let stays = quotient(interval.growth_ns, interval.promoted_ns).min(1.0);
    match assumption {
        CostAssumption::Cheap => stays,
        CostAssumption::Likely => stays.max((1.0 - curves.died_young()) * interval.counted.likely),
        CostAssumption::Costly => stays.max(interval.counted.costly),
    }
}

impl OldGeneration {
    fn promote(
        &mut self,
        interval: &FullCollection,
        curves: &RecordedCurves,
        windows: f64,
        part: f64,
        assumption: CostAssumption,
    ) {
        // What stays or is alive at a time is what was frozen, replaced, or joins it.
        let counted = interval.counted.at(assumption) * curves.containers.0 - interval.garbage;
        let passing_ns = counted.max(0.0) * curves.traversing_ns.likely;
        self.pending_ns += interval.promoted_ns * windows * part;
        self.garbage += interval.garbage * windows * part;
        self.unfrozen_ns += passing_ns * windows;
        self.middle += 1.0;
    }

    /// A full collection of a heap that takes `live_ns` to traverse.
    fn collect(
        &mut self,
        curves: &RecordedCurves,
        live_ns: f64,
        assumption: CostAssumption,
        sum: &mut SimulatedFulls,
    ) {
        let least_ns = (live_ns - self.frozen_ns).max(0.0);
        let most_ns =
            if self.frozen_ns > 0.0 { live_ns.min(least_ns + self.unfrozen_ns) } else { least_ns };
        let traversing_ns = match assumption {
            CostAssumption::Cheap => least_ns,
            CostAssumption::Likely => f64::midpoint(least_ns, most_ns),
            CostAssumption::Costly => most_ns,
        };
        let time_ns = traversing_moved_ns(traversing_ns, assumption)
            + curves.to_free_ns(self.garbage, assumption);
        sum.time_ns += time_ns;
        sum.longest_ns = sum.longest_ns.max(time_ns);
        sum.most_garbage = sum.most_garbage.max(self.garbage);
        self.total_ns = traversing_ns;
        self.pending_ns = 0.0;
        self.garbage = 0.0;
        self.middle = 0.0;
    }
}

/// Time to traverse under the new setting what took `recorded_ns`.
pub(super) fn traversing_moved_ns(recorded_ns: f64, assumption: CostAssumption) -> f64 {
    RemedyEstimate::around(recorded_ns, TRAVERSING_MOVED).at(assumption)
}
