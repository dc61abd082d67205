//! Settings that are sought: the search of `gctrace auto`, ended once its result is known.

use super::Tuner;
use crate::auto;
use crate::auto::verdict;
use crate::launch::CommandEnd;
use crate::record::INTERRUPTED;
use crate::text::chain;
use gctrace_settings::AutoOptions;

/// Measures one run; returns the exit code. `None`: it has ended well without a result, and without steps, and
/// the budget is not spent.
pub(super) fn measure(tuner: &Tuner<'_>) -> anyhow::Result<Option<u8>> {
    let search = tuner.search(AutoOptions::default());
    let searched = auto::search(&search, &tuner.invoker, tuner.verbosity, |processes, elapsed| {
        tuner.is_over_budget() || auto::is_known(processes, elapsed)
    })?;
    let ended_well =
        searched.ended.flatten().map(CommandEnd::exit_code).is_some_and(|code| code == 0);
    if ended_well && !tuner.is_over_budget() && !searched.found.has_steps_or_result() {
        return Ok(None);
    }
    let lines = verdict(&searched.found, |setting| tuner.apply_line(setting));
    if let Err(error) = tuner.write(&searched.found, &lines) {
        tracing::error!("{}", chain(&error));
    }
    match searched.ended {
        Some(ended) => Ok(Some(ended.map_or(INTERRUPTED, CommandEnd::exit_code))),
        None => tuner.go_on(searched.command).map(Some),
    }
}
