//! `--log`: one row per comparison in a table.

use crate::files::{append_row, check_log};
use crate::invoker::Invoker;
use crate::print::clean;
use crate::render;
use crate::text::OrDash as _;
use gctrace_analysis::compare::{ComparedRun, Comparison, FactId, FigureId};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// First line of a log: logs are recognized by it.
const TITLE: &str = "# Performance log (gctrace compare)";
const HEAD: &str = "\
| date (UTC) | commit | what changed | step before, ms | step after, ms | GC before | GC after | verdict |
|---|---|---|---|---|---|---|---|
";
/// Characters of a commit's hash.
const HASH: usize = 12;

/// # Errors
/// The file is not a change log, or cannot be read.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    Ok(check_log(path, &Invoker::detect(), TITLE)?)
}

/// # Errors
/// The file is not a change log, or cannot be written.
pub(super) fn append(path: &Path, comparison: &Comparison) -> anyhow::Result<()> {
    let row = row(comparison, SystemTime::now());
    Ok(append_row(path, &Invoker::detect(), (TITLE, HEAD), &row)?)
}

fn row(comparison: &Comparison, now: SystemTime) -> String {
    let after = comparison.after.first();
    let date = || {
        let since = Duration::from_nanos(after?.started_unix_ns?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    let date = humantime::format_rfc3339_seconds(date().unwrap_or(now)).to_string();
    let commit = match after.map(|run| &run.git_commit) {
        Some(Some(hash)) => hash.chars().take(HASH).collect(),
        _ => "unknown".to_owned(),
    };
    let (gc_before, gc_after) = match comparison.figure(FigureId::GcShare) {
        Some(figure) => (figure.before, figure.after),
        None => (None, None),
    };
    let cells = [
        date.trim_end_matches('Z').replace('T', " "),
        commit,
        changed(comparison),
        step(&comparison.before),
        step(&comparison.after),
        gc_before.map(crate::units::percent).or_dash(),
        gc_after.map(crate::units::percent).or_dash(),
        comparison.verdict.sentence.clone(),
    ];
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    format!("| {} |\n", cells.join(" | "))
}

fn changed(comparison: &Comparison) -> String {
    let changes = comparison.changed.iter();
    let changes = changes.filter(|change| change.fact != FactId::Commit);
    let words: Vec<String> = changes
        .map(|change| {
            format!(
                "{} {} -> {}",
                render::fact_name(change.fact),
                change.before.join(" / "),
                change.after.join(" / ")
            )
        })
        .collect();
    if words.is_empty() { "nothing known".to_owned() } else { words.join("; ") }
}

/// Mean and standard deviation of step time, in ms: over several runs of their means, otherwise over
/// the parts of the run.
fn step(runs: &[ComparedRun]) -> String {
    let means: Option<Vec<f64>> = runs.iter().map(|run| run.step_mean_ns).collect();
    let Some(means) = means else { return "-".to_owned() };
    let sd = match runs {
        [run] => run.step_sd_ns,
        _ => gctrace_stats::standard_deviation(&means),
    };
    let mean = gctrace_stats::mean(&means).unwrap_or_default();
    let sd = if let Some(sd) = sd { format!(" ± {:.3}", sd / 1e6) } else { String::new() };
    format!("{:.3}{sd}", mean / 1e6)
}

/// Text as a cell of a Markdown table.
fn cell(text: &str) -> String {
    clean::line(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_break_the_table() {
        assert_eq!(cell("a | b\n<c>"), "a \\| b\\\\n&lt;c>");
    }
}
