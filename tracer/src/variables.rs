//! Environment variables that gctrace itself reads: the only place that does.
//!
//! With file capabilities (setcap) gctrace has rights that its user lacks, and the user chooses the
//! environment. Each variable is read with what it decides, so that none can choose code for such a process.
//! A lint forbids `std::env::var` and the like elsewhere. The environment of the command is another matter:
//! `launch/environment.rs`.

use crate::privileges::has_more_rights_than_its_user;
use std::ffi::OsString;
use std::path::PathBuf;

/// What the value of a variable decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariableEffect {
    /// How output looks, or a word in a message.
    Appearance,
    /// Where the user's own files go. They are created with that user's rights, and what is read from them
    /// is trusted for that user's programs only.
    Place,
    /// Who the user is, believed only where gctrace is root already (`launch/invoker.rs`).
    Identity,
    /// Which code is loaded, here or in the programs of others.
    Code,
}

/// The value of a variable; `None` where it is not set. One that decides over code is ignored, and that is
/// said, where gctrace has rights that its user lacks.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads variables"
)]
pub(crate) fn variable(name: &str, decides: VariableEffect) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    if decides == VariableEffect::Code && !value.is_empty() && has_more_rights_than_its_user() {
        tracing::warn!("{name} is ignored: this gctrace has file capabilities, its user does not");
        return None;
    }
    Some(value)
}

/// A variable that decides over the appearance only, as text; `None` where it is not set or empty.
pub(crate) fn text(name: &str) -> Option<String> {
    let value = variable(name, VariableEffect::Appearance)?
        .into_string()
        .ok()?;
    (!value.is_empty()).then_some(value)
}

/// The directory for temporary files (`TMPDIR`, else `/tmp`).
pub(crate) fn temporary_directory() -> PathBuf {
    let named = variable("TMPDIR", VariableEffect::Place).filter(|path| !path.is_empty());
    named.map_or_else(|| "/tmp".into(), Into::into)
}
