//! From an error to the command that mends it.

use std::ffi::OsStr;

/// Words as one line for a POSIX shell, quoted where needed.
pub(crate) fn shell_line<W: AsRef<OsStr>>(words: &[W]) -> String {
    let quoted = words.iter().map(|word| {
        let text = word.as_ref().to_string_lossy();
        shlex::try_quote(&text).map_or_else(|_| text.to_string(), |quoted| quoted.into_owned())
    });
    quoted.collect::<Vec<_>>().join(" ")
}
