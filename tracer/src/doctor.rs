//! `gctrace doctor`: checks what works on this machine, what does not, and the command that fixes it.
//!
//! `machine.rs` and `interpreters.rs` gather facts; `checklist.rs` evaluates them and `explain.rs`
//! describes interpreters, both pure.

mod checklist;
mod child_query;
mod explain;
mod interpreters;
mod machine;

use crate::args::{ConfiguredOptions, DoctorArgs, InterpreterArg, described};
use crate::doctor::interpreters::InterpreterExaminer;
use crate::doctor::machine::HostFacts;
use crate::print;
use crate::print::clean;

/// Runs the checks and prints the result. Returns the exit code: 0 if recording will work (or each
/// named interpreter was resolved, or configured options were shown), 1 if not.
///
/// # Errors
/// The result cannot be printed.
pub(crate) fn run(config: &DoctorArgs) -> anyhow::Result<u8> {
    if config.config {
        let lines = ConfiguredOptions::read(&described()).lines();
        print::answer(&(lines.join("\n") + "\n"))?;
        return Ok(0);
    }
    let examiner = InterpreterExaminer::new();
    let (text, works) = if config.python.is_empty() {
        let checklist = checklist::draw(&HostFacts::gather(), &examiner.find());
        (checklist.to_string(), checklist.recording_works())
    } else {
        named(&examiner, &config.python)
    };
    print::answer(&text)?;
    Ok(u8::from(!works))
}

fn named(examiner: &InterpreterExaminer, pythons: &[InterpreterArg]) -> (String, bool) {
    let mut texts = Vec::new();
    let mut works = true;
    for python in pythons {
        match examiner.examine(python) {
            Ok(found) => texts.extend(found.iter().map(explain::resolution)),
            Err(error) => {
                works = false;
                let text = crate::text::chain(&error);
                texts.push(format!("{}\n", clean::line(&text)));
            }
        }
    }
    (texts.join("\n"), works)
}
