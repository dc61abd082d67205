//! Results of `--fail-if`, as people and CI systems read them: messages, Markdown, annotations.
//!
//! GitHub shows lines that begin with `::error` and `::warning` ("Workflow commands"); they are printed where
//! `GITHUB_ACTIONS` is `true`. GitLab reads a file (`--code-quality`), in the format of its "Code Quality" report.

use crate::document::Section;
use crate::print::clean;
use crate::{document, output, print, variables};
use gctrace_analysis::report::{Location, Report};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One limit of `--fail-if`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JudgedLimit {
    /// The limited figure, as the command line names it.
    pub(crate) figure: &'static str,
    /// Whether it is exceeded; also if the figure is unknown: a check that cannot fail is worse than none.
    pub(crate) is_exceeded: bool,
    /// The result with its process and phase, and the limit.
    pub(crate) sentence: String,
}

/// Whether any is exceeded.
pub(crate) fn any_exceeded(limits: &[JudgedLimit]) -> bool {
    limits.iter().any(|limit| limit.is_exceeded)
}

/// Prints each as a message, and annotates them where GitHub shows annotations. `at`: the costliest line of the
/// program.
pub(crate) fn report(limits: &[JudgedLimit], at: Option<&Location>) {
    for limit in limits {
        print::message(&limit.sentence);
    }
    if variables::text("GITHUB_ACTIONS").as_deref() == Some("true") {
        for limit in limits {
            if limit.is_exceeded {
                print::lines(&github(limit, at));
            }
        }
    }
}

/// The costliest line of the program, not a library's.
pub(crate) fn costliest(report: &Report) -> Option<&Location> {
    let own = &report.lines.as_ref()?.own;
    own.iter().map(|line| &line.location).find(|location| !location.library)
}

/// `::error title=...,file=...,line=...::message`.
fn github(limit: &JudgedLimit, at: Option<&Location>) -> String {
    let mut properties = format!("title=gctrace {}", limit.figure);
    if let Some(location) = at {
        properties.push_str(&format!(",file={}", property(&within(&location.file))));
        if let Some(line) = location.line {
            properties.push_str(&format!(",line={line}"));
        }
    }
    format!("::error {properties}::{}", data(&limit.sentence))
}

/// As workflow commands escape a message.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// As they escape a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// A file by its path in the working directory, if it is there.
fn within(file: &str) -> String {
    let Ok(folder) = std::env::current_dir() else { return file.to_owned() };
    let inside = Path::new(file).strip_prefix(folder);
    if let Ok(inside) = inside { inside.display().to_string() } else { file.to_owned() }
}

/// An entry of GitLab's report.
#[derive(Serialize)]
struct CodeQualityIssue<'a> {
    description: &'a str,
    check_name: &'static str,
    /// The same for the same limit at the same file: GitLab compares branches by it.
    fingerprint: String,
    severity: &'static str,
    location: CodeQualityLocation,
}

#[derive(Serialize)]
struct CodeQualityLocation {
    path: String,
    lines: CodeQualityLines,
}

#[derive(Serialize)]
struct CodeQualityLines {
    begin: u64,
}

/// Writes GitLab's report: a list of the limits that are exceeded, at the costliest line or, without one, the first
/// trace.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_code_quality(
    path: &Path,
    limits: &[JudgedLimit],
    at: Option<&Location>,
    traces: &[PathBuf],
) -> anyhow::Result<()> {
    let first = gctrace_units::if_known(traces.first().map(|trace| trace.display().to_string()));
    let file = if let Some(location) = at { within(&location.file) } else { first };
    let line = at.and_then(|location| location.line);
    let begin = if let Some(line) = line { u64::from(line) } else { 1 };
    let exceeded = limits.iter().filter(|limit| limit.is_exceeded);
    let issues: Vec<CodeQualityIssue<'_>> = exceeded
        .map(|limit| CodeQualityIssue {
            description: &limit.sentence,
            check_name: limit.figure,
            fingerprint: format!("gctrace-{}-{file}", limit.figure),
            severity: "major",
            location: CodeQualityLocation { path: file.clone(), lines: CodeQualityLines { begin } },
        })
        .collect();
    output::write_file(path, traces, true, &print::json(&issues)?)
}

/// A comment for a pull request, or the summary of a job, escaped: the verdict, each limit, and the report folded.
pub(crate) fn markdown(verdict: &str, limits: &[JudgedLimit], report: &[Section]) -> String {
    let mut text = format!("### gctrace: {}\n\n", document::escaped(verdict));
    for limit in limits {
        let mark = if limit.is_exceeded { "\u{274c}" } else { "\u{2705}" };
        text.push_str(&format!("- {mark} {}\n", document::escaped(&limit.sentence)));
    }
    if !limits.is_empty() {
        text.push('\n');
    }
    let report = document::markdown(report);
    text += &format!("<details><summary>Report</summary>\n\n{report}</details>\n");
    clean::lines(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> JudgedLimit {
        JudgedLimit {
            figure: "gc_share",
            is_exceeded: true,
            sentence: "40 % of it\nof rank 3".to_owned(),
        }
    }

    #[test]
    fn annotations_are_escaped() {
        assert_eq!(
            github(&limit(), None),
            "::error title=gctrace gc_share::40 %25 of it%0Aof rank 3"
        );
        let location = Location {
            file: "/srv/a,b:c.py".to_owned(),
            function: "step".to_owned(),
            line: Some(7),
            library: false,
        };
        assert_eq!(
            github(&limit(), Some(&location)),
            "::error title=gctrace gc_share,file=/srv/a%2Cb%3Ac.py,line=7::40 %25 of it%0Aof rank 3"
        );
    }

    #[test]
    fn names_are_no_markup() {
        let document = markdown("<b> `x` @all", &[limit()], &[]);
        assert!(document.starts_with(
            "### gctrace: \\<b\\> \\`x\\` \\@all\n\n- \u{274c} 40 % of it of rank 3\n"
        ));
    }
}
