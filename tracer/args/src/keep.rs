//! Options of a recording that keeps its last part.

use super::values;
use clap::Args;
use std::time::Duration;

/// The least size to keep: segments of 64 KiB.
const LEAST_BYTES: u64 = 1_000_000;

/// The limits of a recorder that keeps its last part.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct KeepConfig {
    /// Keep the last part only, in a directory of segments (-o): so much time (10m), so many bytes
    /// (200MB), or both, given twice. Without a command and -p it records every Python process
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    pub keep: Vec<KeepLimit>,
    /// With --keep: keep the present segments for good when a pause is this long (500ms)
    #[arg(long, value_name = "TIME", requires = "keep", value_parser = values::time)]
    pub on_pause: Option<Duration>,
    /// With --keep: the same when a training step takes so many times its usual time (2x)
    #[arg(long, value_name = "FACTOR", requires = "keep", value_parser = factor)]
    pub on_step_slower: Option<f64>,
    /// With --keep: the same when the loop of a service stands so long (200ms)
    #[arg(long, value_name = "TIME", requires = "keep", value_parser = values::time)]
    pub on_turn: Option<Duration>,
    /// With --keep: most bytes a day; beyond that, short pauses are only counted. `none`: no limit
    #[arg(long, value_name = "SIZE", requires = "keep", default_value = "100MB", value_parser = daily)]
    pub per_day: DailyLimit,
}

impl KeepConfig {
    /// The last so much time.
    pub fn time(&self) -> Option<Duration> {
        // The smaller of two counts.
        let times = self.keep.iter().filter_map(|limit| match limit {
            KeepLimit::Time(time) => Some(*time),
            KeepLimit::Bytes(_) => None,
        });
        times.min()
    }

    /// At most so many bytes.
    pub fn bytes(&self) -> Option<u64> {
        let sizes = self.keep.iter().filter_map(|limit| match limit {
            KeepLimit::Bytes(bytes) => Some(*bytes),
            KeepLimit::Time(_) => None,
        });
        sizes.min()
    }
}

/// One value of `--keep`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeepLimit {
    /// The last so much time.
    Time(Duration),
    /// At most so many bytes.
    Bytes(u64),
}

/// The value of `--per-day`, in bytes; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DailyLimit(pub Option<u64>);

fn limit(text: &str) -> Result<KeepLimit, String> {
    if let Some(bytes) = values::size(text) {
        return if bytes >= LEAST_BYTES {
            Ok(KeepLimit::Bytes(bytes))
        } else {
            Err("must be at least 1MB".to_owned())
        };
    }
    let time = humantime::parse_duration(text).ok();
    match time {
        Some(time) if time >= Duration::from_secs(1) => Ok(KeepLimit::Time(time)),
        Some(_) => Err("must be at least 1s".to_owned()),
        None => {
            Err("is neither a time nor a size with a unit (examples: 10m, 2h, 200MB)".to_owned())
        }
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.strip_suffix('x').unwrap_or(text).parse::<f64>() {
        Ok(factor) if factor > 1.0 && factor.is_finite() => Ok(factor),
        _ => Err("must be a factor above 1 (examples: 2x, 1.5x)".to_owned()),
    }
}

fn daily(text: &str) -> Result<DailyLimit, String> {
    match (text, values::size(text)) {
        ("none", _) => Ok(DailyLimit(None)),
        (_, Some(bytes)) if bytes >= LEAST_BYTES => Ok(DailyLimit(Some(bytes))),
        _ => Err("must be a size of at least 1MB, or `none` (example: 100MB)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_times_or_sizes() {
        let kind = |text: &str| match limit(text) {
            Ok(KeepLimit::Time(time)) => format!("{}s", time.as_secs()),
            Ok(KeepLimit::Bytes(bytes)) => format!("{bytes}B"),
            Err(error) => error,
        };
        assert_eq!(kind("10m"), "600s");
        assert_eq!(kind("1h 30m"), "5400s");
        assert_eq!(kind("200MB"), "200000000B");
        assert_eq!(kind("1.5GB"), "1500000000B");
        assert_eq!(kind("64MiB"), "67108864B");
        assert!(kind("10").contains("neither"));
        assert!(kind("1kB").contains("at least 1MB"));
        assert!(kind("10ms").contains("at least 1s"));
        assert!(factor("2x").is_ok() && factor("1.5").is_ok());
        assert!(["1x", "0", "-2x", "x", "inf"].iter().all(|text| factor(text).is_err()));
        assert!(daily("none").is_ok() && daily("50MB").is_ok() && daily("5").is_err());
    }
}
