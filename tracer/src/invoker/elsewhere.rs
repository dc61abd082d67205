//! Systems other than Linux: the user is always gctrace's own.

use std::io;

/// The user on whose behalf gctrace works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invoker {
    /// For messages.
    pub(crate) name: String,
}

impl Invoker {
    pub(crate) fn detect() -> Self {
        Self { name: "you".to_owned() }
    }

    /// Whether gctrace runs as another user than the one who typed the command.
    #[expect(clippy::unused_self, reason = "as on Linux")]
    pub(crate) fn is_another_user(&self) -> bool {
        false
    }
}

/// Runs `action` as the invoker, who runs it already.
///
/// # Errors
/// None.
pub(crate) fn act_as<R: Send>(_: &Invoker, action: impl FnOnce() -> R + Send) -> io::Result<R> {
    Ok(action())
}
