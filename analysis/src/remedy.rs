//! What each remedy would have saved in the training phase of a recorded run.
//!
//! The recorded collections are taken apart into curves (`curves.rs`), a generational collector
//! runs over them under the new setting (`collector.rs`), and the difference is the saving
//! (`price.rs`). A saving is a range: what the recording leaves unknown is assumed for the worse,
//! as likely, and for the better. docs/measurements/remedies.md compares ranges with measured savings.
//!
//! The same as pauses, for a replay of the run (`pauses.rs`): each recorded one takes the part of its
//! time that its kind of collection keeps.

mod collector;
mod curves;
pub(crate) mod cycles;
pub(crate) mod explicit;
mod pauses;
mod price;
#[cfg(test)]
mod tests;

pub(crate) use self::pauses::ChangedPauses;
pub(crate) use self::price::natural;

use self::curves::RecordedCurves;
use crate::report::{AdviceId, AdvisedSettings};
use crate::spans::PauseSpan;

/// A run to price remedies for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedRun<'a> {
    /// All pauses of the process, by start.
    pub(crate) pauses: &'a [PauseSpan],
    /// Start and end of training, on the clock of the pauses.
    pub(crate) training_ns: (u64, u64),
    /// Start of the process; `None` if it ran before the recording.
    pub(crate) start_ns: Option<u64>,
    /// Whether it was forked by an interpreter: it starts with the heap of its parent.
    pub(crate) forked: bool,
    /// Whether the process ended while it was recorded.
    pub(crate) ended: bool,
    /// Training steps within; `None` if unknown.
    pub(crate) steps: Option<u64>,
    /// `gc.get_threshold()` while it trained.
    pub(crate) thresholds: [i32; 3],
    /// The same when it started.
    pub(crate) start_thresholds: [i32; 3],
    /// `gc.isenabled()`; `None` if unknown.
    pub(crate) enabled: Option<bool>,
    /// Whether all garbage of training comes from a few known cycles.
    pub(crate) few_cycles: bool,
    /// Device memory; `None` if it was not recorded.
    pub(crate) device: Option<DeviceGarbage>,
    /// Resident memory of the process late in the run, in bytes; `None` if unknown.
    pub(crate) resident_bytes: Option<u64>,
}

/// Device memory that collections gave back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceGarbage {
    /// Freed during pauses, in bytes.
    pub(crate) freed_bytes: u64,
    /// The most that torch's allocator reserved from the driver, in bytes.
    pub(crate) reserved_bytes: u64,
}

impl<'a> RecordedRun<'a> {
    /// Memory that a freed object gave back with what it owned, in bytes, over the collections of
    /// training that were measured, or else of the whole run; `None` if none was that freed any.
    pub(crate) fn freed_bytes_each(&self) -> Option<f64> {
        let over = |from_ns| {
            let pauses = self.pauses.iter().filter(|pause| pause.start_ns >= from_ns);
            let freed = pauses.filter_map(|pause| Some((pause.freed_kib?, pause.collected?)));
            let sum = freed.fold((0.0, 0.0), |(bytes, objects), (kib, collected)| {
                (bytes + f64::from(kib.get()) * KIB, objects + f64::from(collected.get()))
            });
            (sum.1 > 0.0).then(|| sum.0 / sum.1)
        };
        over(self.training_ns.0).or_else(|| over(0))
    }

    /// The run from its start until then, under the settings that it started with.
    fn since(&self, start_ns: u64, end_ns: u64) -> RecordedRun<'a> {
        Self { training_ns: (start_ns, end_ns), thresholds: self.start_thresholds, ..*self }
    }
}

/// What is assumed where the recording leaves it open, by its effect on the time of collections
/// under the new setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CostAssumption {
    Cheap,
    Likely,
    Costly,
}

impl CostAssumption {
    const ALL: [Self; 3] = [Self::Cheap, Self::Likely, Self::Costly];
}

/// A figure under each [`CostAssumption`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RemedyEstimate {
    cheap: f64,
    likely: f64,
    costly: f64,
}

impl RemedyEstimate {
    /// All of something, and nothing of it, whatever is assumed.
    const ALL: Self = Self { cheap: 1.0, likely: 1.0, costly: 1.0 };
    const NONE: Self = Self { cheap: 0.0, likely: 0.0, costly: 0.0 };

    fn of(mut figure: impl FnMut(CostAssumption) -> f64) -> Self {
        Self {
            cheap: figure(CostAssumption::Cheap),
            likely: figure(CostAssumption::Likely),
            costly: figure(CostAssumption::Costly),
        }
    }

    /// Multiples of a figure.
    fn around(figure: f64, [cheap, likely, costly]: [f64; 3]) -> Self {
        Self { cheap: figure * cheap, likely: figure * likely, costly: figure * costly }
    }

    fn at(&self, assumption: CostAssumption) -> f64 {
        match assumption {
            CostAssumption::Cheap => self.cheap,
            CostAssumption::Likely => self.likely,
            CostAssumption::Costly => self.costly,
        }
    }

    fn map(self, figure: impl Fn(f64) -> f64) -> Self {
        Self::of(|assumption| figure(self.at(assumption)))
    }
}

/// A remedy and its price.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PricedRemedy {
    pub(crate) id: AdviceId,
    pub(crate) settings: AdvisedSettings,
    /// Collector time that training (start-up with [`AdviceId::OffWhileLoading`], both with
    /// [`AdviceId::Disable`]) needs less, in ns: least, likely, most; negative if it needs more.
    pub(crate) saves_ns: [i64; 3],
    /// What the remedy costs once, where it begins, in ns; not in `saves_ns`.
    pub(crate) once_ns: u64,
    /// The longest pause that is left in the time of `saves_ns`, in ns.
    pub(crate) longest_ns: u64,
    /// Garbage that waits for its collection, beyond what did in the recording, in objects.
    pub(crate) waiting_objects: u64,
    /// Memory that it gives back when it is freed, in bytes; `None` if that was not measured.
    pub(crate) waiting_bytes: Option<f64>,
    /// Device memory that this garbage holds, in bytes; `None` if it was not recorded.
    pub(crate) waiting_device_bytes: Option<u64>,
    /// Waiting garbage as a share of the live heap, in objects, or in memory if that is more; 0 if the
    /// heap is unknown.
    waiting_ratio: f64,
    left: PartsLeft,
}

/// The parts that are left of the time of recorded collections; more than 1 if they take longer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PartsLeft {
    /// Of automatic ones of the younger generations.
    younger: RemedyEstimate,
    /// Of automatic full ones.
    full: RemedyEstimate,
    /// Of those that the program asked for.
    explicit: RemedyEstimate,
}

impl PartsLeft {
    /// All of them.
    const ALL: Self = Self {
        younger: RemedyEstimate::ALL,
        full: RemedyEstimate::ALL,
        explicit: RemedyEstimate::ALL,
    };
}

impl PricedRemedy {
    /// Whether it leaves little garbage uncollected, next to what is alive.
    fn leaves_little(&self) -> bool {
        let few = self.waiting_objects <= LITTLE_GARBAGE
            && self.waiting_bytes.is_none_or(|bytes| bytes <= LITTLE_BYTES);
        few || self.waiting_ratio <= LITTLE_PART
    }

    /// What the collections take may be the program's, and taken whenever they run.
    fn may_save_nothing(&mut self) {
        self.saves_ns[0] = self.saves_ns[0].min(0);
        let PartsLeft { younger, full, explicit } = &mut self.left;
        for part in [younger, full, explicit] {
            part.costly = part.costly.max(1.0);
        }
    }

    pub(crate) fn likely_ns(&self) -> i64 {
        self.saves_ns[1]
    }

    /// See [`Self::rank_of`].
    fn rank(&self) -> f64 {
        self.rank_of(self.likely_ns())
    }

    /// By which remedies are ranked: the likely saving, less a tenth for thresholds and broken cycles, and a quarter
    /// for what needs care (freezing keeps what it froze, planned collection depends on its
    /// interval, an explicit call may have a reason), divided by the memory that the waiting
    /// garbage makes of the heap (1 = no more than before).
    pub(crate) fn rank_of(&self, likely_ns: i64) -> f64 {
        let care = match self.id {
            AdviceId::RaiseThreshold | AdviceId::BreakCycles | AdviceId::OffWhileLoading => 0.9,
            _ => 0.75,
        };
        float(likely_ns.max(0).unsigned_abs()) * care / (1.0 + self.waiting_ratio)
    }
}

/// This many objects of garbage are little if what they own is not known to be more than so many bytes,
/// and so is this part of a heap.
const LITTLE_GARBAGE: u64 = 1_000;
const LITTLE_BYTES: f64 = 67_108_864.0;
const LITTLE_PART: f64 = 0.1;
const KIB: f64 = 1_024.0;

/// The remedies that apply, priced, in no order. Without any that is not in force already, empty.
/// `None` if the collector cannot be simulated: a generation is unknown.
pub(crate) fn price(run: &RecordedRun<'_>) -> Option<Vec<PricedRemedy>> {
    let curves = RecordedCurves::of(run)?;
    Some(price::remedies(run, &curves))
}

/// The pauses of a run under remedies that were priced for it or for another process of its job: for
/// the better, as likely, for the worse. `steps`: number and start of each training step. `None` as
/// for [`price()`].
pub(crate) fn changed_pauses(
    run: &RecordedRun<'_>,
    remedies: &[PricedRemedy],
    steps: &[(u64, u64)],
) -> Option<Vec<[ChangedPauses; 3]>> {
    let curves = RecordedCurves::of(run)?;
    let own = price::remedies(run, &curves);
    Some(remedies.iter().map(|one| pauses::changed(run, &curves, one, &own, steps)).collect())
}

#[expect(clippy::cast_precision_loss, reason = "a prediction needs no more than 52 bits")]
fn float(number: u64) -> f64 {
    number as f64
}
