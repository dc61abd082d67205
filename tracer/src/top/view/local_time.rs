//! How far local time is ahead of Greenwich.

/// Seconds east of Greenwich at a moment in nanoseconds since 1970; 0 where that cannot be told.
pub(crate) fn offset_s(unix_ns: u64) -> i64 {
    let Ok(seconds) = libc::time_t::try_from(unix_ns / 1_000_000_000) else {
        return 0;
    };
    // SAFETY: all fields of `tm` are numbers, or a pointer that may be null.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to values that live; `localtime_r` writes to the second only.
    let told = unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    if told.is_null() { 0 } else { parts.tm_gmtoff }
}
