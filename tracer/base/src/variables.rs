//! The only place that reads environment variables of gctrace itself.
//!
//! With file capabilities (setcap), gctrace has privileges that its user lacks, but the user controls
//! the environment. Each variable is read together with its effect, so that none can select code for
//! such a process. A lint forbids `std::env::var` and the like elsewhere. `launch/environment.rs`
//! handles the command's environment.

use crate::platform::has_more_rights_than_its_user;
use std::ffi::OsString;
use std::path::PathBuf;

/// Effect of an environment variable: decides how far its value is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableEffect {
    /// Appearance of output, or a word in a message.
    Appearance,
    /// Location of the user's own files. They are created as that user, and their content is trusted
    /// for that user's programs only.
    Place,
    /// The part of the user's files to work on.
    Part,
    /// Options of the command line (`tracer/args/src/configured.rs` ignores them with file capabilities).
    Options,
    /// Identity of the user; trusted only if gctrace runs as root (`invoker.rs`).
    Identity,
    /// Code to load, into gctrace or into recorded programs.
    Code,
}

/// The value of a variable; `None` if it is not set. If gctrace has privileges that its user lacks, a
/// variable with the effect [`VariableEffect::Code`] is ignored with a warning.
#[expect(clippy::disallowed_methods, reason = "the one place that reads variables")]
pub fn variable(name: &str, effect: VariableEffect) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    if effect == VariableEffect::Code && !value.is_empty() && has_more_rights_than_its_user() {
        tracing::warn!("{name} is ignored: this gctrace has file capabilities, its user does not");
        return None;
    }
    Some(value)
}

/// A variable with the effect [`VariableEffect::Appearance`]; `None` if unset, empty or not UTF-8.
pub fn text(name: &str) -> Option<String> {
    let value = variable(name, VariableEffect::Appearance)?.into_string().ok()?;
    if value.is_empty() { None } else { Some(value) }
}

/// A variable with the effect [`VariableEffect::Part`]; `None` if unset, empty or not UTF-8.
pub fn part_of_work(name: &str) -> Option<String> {
    let value = variable(name, VariableEffect::Part)?.into_string().ok()?;
    if value.is_empty() { None } else { Some(value) }
}

/// The directory for temporary files: `TMPDIR`, or else `/tmp`.
pub fn temporary_directory() -> PathBuf {
    match variable("TMPDIR", VariableEffect::Place) {
        Some(path) if !path.is_empty() => path.into(),
        _ => "/tmp".into(),
    }
}
