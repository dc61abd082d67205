//! The CPU time of collections, and the objects that full ones leave: for the search for a setting. Noted by
//! [`super::sums`] while a search runs.

use crate::process_ring::{now_ns, process_cpu_ns, thread_cpu_ns, tid};
use crate::python::collector_state::CollectorState;
use gctrace_tuner::{Figures, MeasuredFull};
use std::sync::Mutex;

/// Locked for short, with the interpreter's lock held.
static COSTS: Mutex<Option<CollectionCosts>> = Mutex::new(None);

/// The sums since the search began.
struct CollectionCosts {
    state: CollectorState,
    /// The thread that makes the steps.
    steps_tid: u32,
    begun: Option<BegunCollection>,
    collections: [u64; 3],
    ns: [u64; 3],
    /// Objects that they freed.
    freed: u64,
    /// Time of collections in other threads.
    elsewhere_ns: u64,
    longest_ns: [u64; 2],
    full: Option<MeasuredFull>,
}

/// A collection that runs.
struct BegunCollection {
    left_before: u64,
    pending: u64,
}

fn with<T>(work: impl FnOnce(&mut CollectionCosts) -> Option<T>) -> Option<T> {
    COSTS.try_lock().ok()?.as_mut().and_then(work)
}

/// Begins to note, anew in a forked child: `None` ends it.
pub(super) fn begin(state: Option<CollectorState>) {
    if let Ok(mut costs) = COSTS.try_lock() {
        *costs = state.map(|state| CollectionCosts {
            state,
            steps_tid: tid(),
            begun: None,
            collections: [0; 3],
            ns: [0; 3],
            freed: 0,
            elsewhere_ns: 0,
            longest_ns: [0; 2],
            full: None,
        });
    }
}

/// A collection begins in this thread.
pub(super) fn started() {
    with(|costs| {
        let (left_before, pending) = costs.state.long_lived()?;
        costs.begun = Some(BegunCollection { left_before, pending });
        Some(())
    });
}

/// It has ended, freed so many objects, and took this much CPU time.
pub(super) fn stopped(generation: usize, freed: u64, cpu_ns: u64) {
    with(|costs| {
        let begun = costs.begun.take()?;
        gctrace_units::add_to(&mut costs.freed, freed);
        *costs.collections.get_mut(generation)? += 1;
        *costs.ns.get_mut(generation)? += cpu_ns;
        if tid() != costs.steps_tid {
            costs.elsewhere_ns += cpu_ns;
        }
        let is_full = generation == 2;
        let longest_ns = costs.longest_ns.get_mut(usize::from(is_full))?;
        *longest_ns = cpu_ns.max(*longest_ns);
        if is_full {
            let BegunCollection { left_before, pending } = begun;
            let (left, _) = costs.state.long_lived()?;
            costs.full = Some(MeasuredFull { cpu_ns, left, freed, left_before, pending });
        }
        Some(())
    });
}

/// Full collections so far.
pub(super) fn fulls() -> u64 {
    with(|costs| Some(costs.collections[2])).unwrap_or(0)
}

/// CPU time of the process without collections, in ns.
pub(super) fn worked_ns() -> u64 {
    let collected_ns = with(|costs| Some(costs.ns.iter().sum::<u64>())).unwrap_or(0);
    gctrace_units::beyond(process_cpu_ns(), collected_ns)
}

/// All figures, at a step of this thread, or `by_time`: of the process. `waiting` objects are in the youngest
/// generation.
pub(super) fn figures(waiting: u64, by_time: bool) -> Figures {
    let tid = if by_time { 0 } else { tid() };
    let figures = with(|costs| {
        costs.steps_tid = tid;
        let (old, pending) = costs.state.long_lived()?;
        let cpu_ns = if by_time { process_cpu_ns() } else { thread_cpu_ns() + costs.elsewhere_ns };
        Some(Figures {
            tid,
            cpu_ns,
            wall_ns: now_ns(),
            collections: costs.collections,
            collecting_ns: costs.ns,
            freed: costs.freed,
            longest_ns: std::mem::take(&mut costs.longest_ns),
            waiting,
            old,
            pending,
            full: costs.full,
        })
    });
    figures.unwrap_or_default()
}
