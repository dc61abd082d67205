//! Wall-clock times as people write them.

/// `14:03:59` in the time zone of this machine's settings.
pub(crate) fn time_of_day(unix_ns: u64) -> String {
    let seconds = libc::time_t::try_from(unix_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX);
    // SAFETY: `tm` is plain numbers and a pointer that is only read by C; all zeros are valid.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values; the function keeps neither.
    let converted = unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    if converted.is_null() {
        return "--:--:--".to_owned();
    }
    format!(
        "{:02}:{:02}:{:02}",
        parts.tm_hour, parts.tm_min, parts.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `date` is another implementation of the same.
    #[test]
    fn as_date_prints_it() {
        for seconds in [0_u64, 951_782_399, 1_770_000_000] {
            let output = std::process::Command::new("date")
                .args(["-d", &format!("@{seconds}"), "+%H:%M:%S"])
                .output()
                .expect("date");
            let expected = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            assert_eq!(time_of_day(seconds * 1_000_000_000 + 999_999_999), expected);
        }
    }
}
