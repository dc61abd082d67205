//! Commands and errors as text of one line.

use gctrace_analysis::report::Basis;
use std::ffi::OsStr;

/// An error and its causes on one line, without duplicates, as many errors include their cause.
pub fn chain(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text {
            text if text == cause || text.contains(&format!(": {cause}")) => text,
            text if text.is_empty() => cause,
            text => format!("{text}: {cause}"),
        }
    })
}

/// Words as a POSIX shell command line, quoted where needed.
pub fn shell_line<W: AsRef<OsStr>>(words: &[W]) -> String {
    let quoted = words.iter().map(|word| {
        let text = word.as_ref().to_string_lossy();
        shlex::try_quote(&text).map_or_else(|_| text.to_string(), |quoted| quoted.into_owned())
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The name of a file without its directory.
pub fn file_name(path: &str) -> &str {
    if let Some((_, name)) = path.rsplit_once('/') { name } else { path }
}

/// The mark after a figure: ` (inferred)` or ` (predicted)`, empty if it was measured.
pub fn mark(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "",
        Basis::Inferred => " (inferred)",
        Basis::Predicted => " (predicted)",
    }
}

/// A figure that may be unknown, as a table shows it.
pub trait OrDash {
    /// The figure, `-` if it is unknown.
    fn or_dash(self) -> String;
}

impl OrDash for Option<String> {
    fn or_dash(self) -> String {
        self.unwrap_or_else(|| "-".to_owned())
    }
}

/// The name of a process in a table: `rank 3`, or its process id if it has no rank.
pub fn rank_or_pid(rank: Option<u32>, pid: u32) -> String {
    if let Some(rank) = rank { format!("rank {rank}") } else { pid.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::io;
    use test_kit::limit::WithTimeout as _;

    #[test]
    fn words_survive_a_shell() {
        let words = ["a b", "it's", "$HOME", "", "plain", "*", "a\"b\\"];
        let script = format!("printf '%s\\n' {}", shell_line(&words));
        let output =
            std::process::Command::new("sh").arg("-c").arg(script).output_in_time().expect("sh");
        assert_eq!(String::from_utf8_lossy(&output.stdout), words.join("\n") + "\n");
    }

    #[test]
    fn causes_are_not_repeated() {
        let error = Err::<(), _>(io::Error::other("no")).context("cannot read x: no");
        let error = error.context("while reading").expect_err("an error");
        assert_eq!(chain(&error), "while reading: cannot read x: no");
        let error = Err::<(), _>(io::Error::other("no")).context("cannot read x");
        assert_eq!(chain(&error.expect_err("an error")), "cannot read x: no");
    }
}
