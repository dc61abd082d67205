//! Wall-clock times as people write them.

use crate::top::view::offset_s;

/// `14:03:59` in the time zone of this machine's settings.
pub(crate) fn time_of_day(unix_ns: u64) -> String {
    let seconds = i64::try_from(unix_ns / 1_000_000_000).unwrap_or(0);
    let seconds = seconds.saturating_add(offset_s(unix_ns)).rem_euclid(86_400);
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
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
