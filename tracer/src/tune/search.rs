//! Settings that are sought: the search of `gctrace auto`, ended once its result is known.

use super::Tuner;
use crate::auto;
use crate::auto::{SearchRequest, verdict};
use crate::launch::CommandEnd;
use crate::record::INTERRUPTED;
use crate::text::chain;
use gctrace_settings::AutoOptions;

/// Measures one run.
pub(super) fn measure(tuner: &Tuner<'_>) -> anyhow::Result<u8> {
    let config = tuner.config;
    let search = SearchRequest {
        command: &config.command,
        as_root: config.as_root,
        answers_on_stdout: config.prints_to_stdout(),
        options: AutoOptions::default(),
        step_function: config.step_function(),
        budget: Some(config.budget),
    };
    let searched = auto::search(&search, &tuner.invoker, tuner.verbosity)?;
    let lines = verdict(&searched.found, |setting| tuner.apply_line(setting));
    if let Err(error) = tuner.write(&searched.found, &lines) {
        tracing::error!("{}", chain(&error));
    }
    match searched.ended {
        Some(ended) => Ok(ended.map_or(INTERRUPTED, CommandEnd::exit_code)),
        None => tuner.go_on(searched.command),
    }
}
