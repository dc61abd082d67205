//! Systems other than Linux: stand-ins, and the refusal of commands that need Linux.

/// File capabilities exist on Linux only.
pub fn has_more_rights_than_its_user() -> bool {
    false
}

/// Writes wait for their reader.
pub fn is_writable_within<T>(_: &T, _limit_ms: u16) -> bool {
    true
}

/// Whether [`is_of_this_user_or_root`] can be answered.
pub const SEES_USERS_OF_CONNECTIONS: bool = false;

/// Unknown.
pub fn is_of_this_user_or_root<T>(_: &T) -> bool {
    false
}

/// The error of a command that needs Linux.
pub fn needs_linux(what: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{what} needs Linux, and this is {}. Record there, and copy the trace here: analyze, advice, \
         compare (of traces), export, completions and man work here",
        std::env::consts::OS
    )
}
