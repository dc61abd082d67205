//! Settings that alternate in blocks of steps within one run.

use super::progress::TuneProgress;
use super::table::CommandSteps;
use super::{Tuner, runs, table};
use crate::apply::StartedCommand;
use crate::launch::CommandEnd;
use crate::print;
use crate::record::INTERRUPTED;
use gctrace_analysis::tune::{TuneReport, blocks, compare};

/// How often the tables of steps are looked at, in ms.
const INTERVAL_MS: u16 = 1_000;
/// Intervals are computed anew when there are this many times as many steps: tuning must not
/// disturb what it measures.
const GROWTH: f64 = 1.2;

/// Measures one run. If it ends without steps and the budget is not spent, measures whole runs.
pub(super) fn measure(tuner: &Tuner<'_>) -> anyhow::Result<u8> {
    let mut command = tuner.start(&tuner.config.settings)?;
    let mut progress = TuneProgress::new(tuner);
    let measured = watch(tuner, &mut command, &progress)?;
    progress.finish();
    let Watched::Ended(ended) = measured else {
        return go_on(tuner, command, measured);
    };
    let code = ended.map_or(INTERRUPTED, CommandEnd::exit_code);
    let steps = table::read(&command.session, tuner.settings.len());
    if !steps.table.rows.is_empty() {
        tuner.print(report(tuner, &steps));
        return Ok(code);
    }
    if code != 0 || tuner.is_over_budget() {
        print::message(no_steps(tuner));
        return Ok(code);
    }
    drop(command);
    print::message("the command has no steps that gctrace knows: comparing whole runs");
    runs::measure(tuner)
}

fn no_steps(tuner: &Tuner<'_>) -> String {
    let remedy = match tuner.config.step_function() {
        Some(name) => format!("no function {name} was called: --step-function names another"),
        None => "--step-function NAME names the function whose calls are steps".to_owned(),
    };
    format!("nothing was measured: the command made no steps. {remedy}")
}

/// How the measurement ended.
enum Watched {
    /// With the command; `None`: the user ended gctrace before.
    Ended(Option<CommandEnd>),
    /// The intervals are narrow, or the budget is spent.
    Known(Box<CommandSteps>, Box<TuneReport>),
}

fn watch(
    tuner: &Tuner<'_>,
    command: &mut StartedCommand,
    progress: &TuneProgress,
) -> anyhow::Result<Watched> {
    let mut last: Option<TuneReport> = None;
    loop {
        if let Some(ended) = command.wait_a_little(INTERVAL_MS)? {
            return Ok(Watched::Ended(ended));
        }
        let steps = table::read(&command.session, tuner.settings.len());
        let is_over = tuner.is_over_budget();
        if is_over || has_grown(&steps, last.as_ref()) {
            let found = report(tuner, &steps);
            if is_over || found.is_precise(tuner.config.precision) {
                return Ok(Watched::Known(Box::new(steps), Box::new(found)));
            }
            last = Some(found);
        }
        let done = steps.table.rows.len() as u64;
        progress.update(tuner, done, "step", last.as_ref());
    }
}

fn has_grown(steps: &CommandSteps, last: Option<&TuneReport>) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "steps are fewer than 2^52")]
    let (now, then) = (steps.table.rows.len() as f64, last.map_or(0, |last| last.steps) as f64);
    now > then * GROWTH
}

/// The result is known while the command runs: prints it, and leaves the command to itself.
fn go_on(tuner: &Tuner<'_>, command: StartedCommand, known: Watched) -> anyhow::Result<u8> {
    if let Watched::Known(steps, found) = known {
        if steps.table.rows.is_empty() {
            print::message(no_steps(tuner))
        } else {
            tuner.print(*found)
        }
    }
    tuner.go_on(command)
}

fn report(tuner: &Tuner<'_>, steps: &CommandSteps) -> TuneReport {
    let measured = blocks(&steps.table, tuner.settings.len(), tuner.block_steps());
    TuneReport {
        ranks: steps.ranks,
        other_processes: steps.others,
        unreadable_rows: steps.table.unreadable,
        agent_ns: steps.agent_ns,
        ..compare(&tuner.settings, &measured, tuner.config.measure())
    }
}
