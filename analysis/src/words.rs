//! The sentences of the report that are made of several of its figures, in both of its forms.
//!
//! Fixed phrases are the `Display` of their findings; sentences of the text form alone are in its
//! sections.

pub mod advice;
mod broken_cycles;
mod callback;
mod called;
pub mod memory;
pub mod places;
pub mod samples;
pub(crate) mod verdict;
pub(crate) mod waits;

pub use crate::cleanup::words as cleanup;
pub use crate::garbage::words as cycles;
pub use crate::layers::words as layers;
use crate::report::{Advice, AdviceEffect, AdviceId, Basis, ProcessReport, Report};
pub use crate::turns::held as turns;

/// The risk of calling `gc.collect()` no more.
const EXPLICIT_CALLS_RISK: &str = "A call before a phase that needs a lot of memory may be \
     intentional; calls before torch.cuda.empty_cache() free GPU memory only if tensors are in \
     cycles.";
/// The risk of `gc.freeze()`, whatever the interpreter.
const FREEZE_RISK: &str = "Frozen objects that become garbage in a cycle are never freed \
     (gc.unfreeze() undoes it).";

/// The risk of a higher first threshold.
const THRESHOLDS_RISK: &str = "Cyclic garbage lives up to ten times longer before it is freed";

/// One in this many of the needed explicit collections is made.
pub(crate) const EXPLICIT_EVERY: u64 = 10;
/// Steps between planned collections.
pub(crate) const PLANNED_STEPS: u64 = 100;

/// The command that records the cycles of this command's garbage.
pub(crate) fn find_cycles_command(report: &Report) -> String {
    format!("gctrace --mode inject --garbage cycles -- {}", command(report))
}

/// The recorded command as a shell takes it, of the process that the verdict is about; `COMMAND` if a running
/// process was recorded, or several commands.
pub fn command(report: &Report) -> String {
    let trace = if let Some(phases) = &report.phases { phases.trace } else { 0 };
    let unknown = "COMMAND".to_owned();
    let Some(trace) = report.traces.get(trace) else { return unknown };
    if trace.command.is_empty() {
        return unknown;
    }
    let Ok(words) = shlex::try_join(trace.command.iter().map(String::as_str)) else {
        return unknown;
    };
    crate::clean::line(&words).into_owned()
}

/// What `python` runs, of its arguments: the script, `-m MODULE`, or `-c` alone. Skips options, with their values.
pub fn python_script<'a>(words: &mut impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    while let Some(word) = words.next() {
        match word {
            "-m" => return [word].into_iter().chain(words.next()).collect(),
            "-c" => return vec![word],
            "-X" | "-W" | "--check-hash-based-pycs" => drop(words.next()),
            word if word.len() > 1 && word.starts_with('-') => {}
            word => return vec![word],
        }
    }
    Vec::new()
}

/// What a process runs, in a word: its script or module without the folder, or its program. `None` if its command is
/// unknown.
pub fn program_name(command: &[String]) -> Option<&str> {
    let mut words = command.iter().map(String::as_str);
    let program = file_name(words.next()?);
    if !program.starts_with("python") {
        return Some(program);
    }
    match python_script(&mut words).as_slice() {
        [] => Some(program),
        [.., "-c"] => Some("python -c"),
        [.., script] => Some(file_name(script)),
    }
}

/// What a process of a report runs, with an argument if others run it with other ones: `engine.py core`; `None` if
/// unknown.
pub fn program(pid: u32, report: &Report) -> Option<String> {
    let process = report.processes.iter().find(|process| process.pid == pid)?;
    let name = program_name(&process.command)?;
    let mut arguments = process.command.iter().skip_while(|word| !word.ends_with(name)).skip(1);
    let role = arguments.next().filter(|word| !word.starts_with('-'));
    let is_other = |other: &ProcessReport| {
        other.command != process.command && program_name(&other.command) == Some(name)
    };
    match role {
        Some(role) if report.processes.iter().any(is_other) => Some(format!("{name} {role}")),
        _ => Some(name.to_owned()),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The text of an advice; `code` and `risk` are empty where there are none. The action is a clause, with the code or
/// command to type if it is short.
#[derive(Default)]
pub(crate) struct AdviceText {
    pub(crate) action: String,
    pub(crate) why: String,
    pub(crate) code: String,
    pub(crate) risk: String,
}

impl AdviceText {
    /// The advice of this text; the effect is predicted.
    pub(crate) fn advice(self, id: AdviceId, effect: AdviceEffect) -> Advice {
        let some = |text: String| if text.is_empty() { None } else { Some(text) };
        Advice {
            id,
            action: self.action,
            why: self.why,
            code: some(self.code),
            risk: some(self.risk),
            effect,
            basis: Basis::Predicted,
        }
    }
}

#[cfg(test)]
mod tests;
