//! `gctrace advice`: the code of one advice, and how to check that it helped.
//!
//! Owns the form: Python that can be pasted, everything else as comments.

mod chosen;
mod found;

pub(crate) use chosen::{step_function, wanted};
pub(crate) use found::{FoundProcess, FoundSettings, FrozenForks, LoadingCollections};

use crate::args::AdviceArgs;
use crate::document::{Style, hanging};
use crate::print::clean;
use crate::text::shell_line;
use crate::{analyze, document, print, render, setting};
use anyhow::Context;
use gctrace_analysis::report::{Advice, Report};
use gctrace_analysis::words;

/// Prints an advice of the report on these traces. Returns the exit code: 0, or 1 if a trace was
/// read only in part.
///
/// # Errors
/// No trace can be read, there is no advice of this number, or the output cannot be written.
pub(crate) fn run(config: &AdviceArgs) -> anyhow::Result<u8> {
    if let [path] = &config.traces[..]
        && let Some(found) = FoundSettings::read(path)
    {
        let code = if config.number == 1 { found.code() } else { None };
        let code = code.with_context(|| {
            format!(
                "there is no advice {} in {}: {}",
                config.number,
                path.display(),
                found::nothing(&found)
            )
        })?;
        print::answer(&code)?;
        return Ok(0);
    }
    let (mut analysis, code) = analyze::read_all(&config.traces, None)?;
    let report = render::report(&mut analysis);
    let advice = chosen::numbered(&report, config.number, &chosen::names(&config.traces))?;
    let step_function = step_function(&config.traces);
    print::answer(&text(advice, &report, step_function.as_deref()))?;
    Ok(code)
}

/// An advice of this report on a run with the calls of `step_function` as steps.
pub(crate) fn text(advice: &Advice, report: &Report, step_function: Option<&str>) -> String {
    let mut text = comment(&advice.action);
    text += &comment(&advice.why);
    if let Some(code) = &advice.code {
        for line in code.lines() {
            text.push_str(&clean::line(line));
            text.push('\n');
        }
    }
    if let Some(risk) = &advice.risk {
        text += &comment(&format!("Risk: {risk}"));
    }
    text += &without_code(advice, report, step_function);
    if advice.id.is_of_waits() {
        return text
            + &comment(
                "To check: record the run again; gctrace compare shows its steps beside these.",
            );
    }
    if let Some(saves) = words::advice::saves(advice, report) {
        text += &comment(&format!(
            "Saves {saves}. To check: record the run again; gctrace compare shows both."
        ));
    }
    text
}

/// The command that applies the same settings without a change to the program, if there is one.
fn without_code(advice: &Advice, report: &Report, step_function: Option<&str>) -> String {
    let Some(setting) = setting::of_advice(advice, report) else { return String::new() };
    let steps = if setting.is_from_start() { None } else { step_function };
    let steps = if let Some(name) = steps {
        format!(" {}", shell_line(&[format!("--step-function={name}")]))
    } else {
        String::new()
    };
    let apply = format!("gctrace apply --gc {setting}{steps} -- {}", words::command(report));
    format!("# Without a change to the program:\n#     {}\n", clean::line(&apply))
}

/// A paragraph as Python comments.
fn comment(paragraph: &str) -> String {
    document::blocks_text(&[hanging(paragraph, "# ", "# ")], Style::OF_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::report::AdviceId;
    use test_kit::garbage::ClosuresRun;
    use test_kit::{garbage, records, reports};

    #[test]
    fn the_code_that_breaks_a_cycle() {
        let run = ClosuresRun::default();
        let mut end = records::end("the command ended");
        end.ended_ns = reports::START + garbage::end_ms(run) * reports::MS;
        let report = reports::report(garbage::records(run), Some(end));
        let advice = report.advice.iter().find(|advice| advice.id == AdviceId::BreakCycles);
        insta::assert_snapshot!(text(advice.unwrap(), &report, None));
    }
}
