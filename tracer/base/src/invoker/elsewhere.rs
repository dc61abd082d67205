//! Systems other than Linux: the user is always gctrace's own.

use std::io;

/// The user that gctrace works for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoker {
    /// For messages.
    pub name: String,
}

impl Invoker {
    /// The user who runs gctrace.
    pub fn detect() -> Self {
        Self { name: "you".to_owned() }
    }

    /// Whether gctrace runs as another user than the user that typed the command.
    pub fn is_another_user(&self) -> bool {
        false
    }
}

/// Runs `action` as the invoker, who runs it already.
///
/// # Errors
/// None.
pub fn act_as<R: Send>(_: &Invoker, action: impl FnOnce() -> R + Send) -> io::Result<R> {
    Ok(action())
}
