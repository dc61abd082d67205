//! Settings that are sought within the first run, as `gctrace auto` does: where it has thousands of steps, or lasts so
//! long that few whole runs fit into the budget. A shorter one keeps its own settings, and is the first of several.

use super::Tuner;
use super::runs::{RunClock, TunedRun};
use crate::auto;
use crate::auto::verdict;
use crate::launch::CommandEnd;
use crate::record::code_of;
use gctrace_settings::{AppliedProcess, AutoDecision, AutoOptions};

/// Fewer steps than this prove nothing within one run.
const FROM_STEP: u64 = 2_000;
/// A run without steps for the budget divided by this is measured by time: whole runs would be too few.
const RUNS: u32 = 4;

/// The end of the first run.
pub(super) enum SearchedRun {
    /// It has the result, or none can be had: the exit code.
    Done(u8),
    /// Whole runs are to be compared; the run, if it had the program's own settings throughout.
    Ended(Option<Box<TunedRun>>),
}

pub(super) fn measure(tuner: &Tuner<'_>) -> anyhow::Result<SearchedRun> {
    let search = tuner.search(AutoOptions {
        from_step: FROM_STEP,
        wait_s: (tuner.config.budget / RUNS).as_secs_f64(),
        ..AutoOptions::default()
    });
    let clock = RunClock::start()?;
    let searched = auto::search(&search, &tuner.invoker, tuner.verbosity, |processes, elapsed| {
        tuner.is_over_budget() || auto::is_known(processes, elapsed)
    })?;
    let processes = searched.command.session.processes().processes;
    let ended_well = searched.ended.flatten().map(CommandEnd::exit_code) == Some(0);
    let is_known =
        searched.found.is_proven() || auto::is_known(&processes, tuner.started.elapsed());
    if ended_well && !is_known && !tuner.is_over_budget() {
        let run = if is_plain(&processes) { Some(TunedRun::of(&processes, &clock)?) } else { None };
        return Ok(SearchedRun::Ended(run.map(Box::new)));
    }
    let lines = verdict(&searched.found, |setting| tuner.apply_line(setting));
    tuner.write(&searched.found, &lines);
    match searched.ended {
        Some(ended) => Ok(SearchedRun::Done(code_of(ended))),
        None => tuner.go_on(searched.command).map(SearchedRun::Done),
    }
}

/// Whether nothing was tried in any process.
fn is_plain(processes: &[AppliedProcess]) -> bool {
    processes.iter().filter_map(|process| process.auto.as_ref()).all(|search| {
        let mut events = search.events.iter();
        let tries = |decision: &AutoDecision| matches!(decision, AutoDecision::Explore { .. });
        search.inherited_frozen.is_none() && !events.any(|event| tries(&event.decision))
    })
}
