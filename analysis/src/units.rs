//! Figures as people read them: three significant digits, the unit that fits.

use crate::clean;

/// A duration: `812 ns`, `1.23 ms`, `163 s`, `16.7 min`, `2.05 h`.
pub fn duration(ns: u64) -> String {
    let exact = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} µs", three_digits(exact / 1e3)),
        999_500..999_500_000 => format!("{} ms", three_digits(exact / 1e6)),
        999_500_000..999_500_000_000 => format!("{} s", three_digits(exact / 1e9)),
        999_500_000_000..7_200_000_000_000 => format!("{} min", three_digits(exact / 60e9)),
        _ => format!("{} h", three_digits(exact / 3600e9)),
    }
}

/// A difference in time as text: `-1.25 ms`, `1.25 ms`.
pub fn signed_duration(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", duration(ns.unsigned_abs()))
}

/// A time in ns that may be fractional, with its sign if it is negative.
pub fn mean_duration(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "" };
    format!("{sign}{}", duration(whole(ns)))
}

/// A difference with its sign: `+1.2 %`, `-12 %`; to two decimals, one or none.
pub fn signed(value: f64, unit: &str) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    let value = if value == 0.0 { 0.0 } else { value };
    match value.abs() {
        size if size >= 1e5 => format!("{sign}{value:.0e}{unit}"),
        size if size < 0.005 => format!("0{unit}"),
        size if size < 0.995 => format!("{sign}{value:.2}{unit}"),
        size if size < 9.95 => format!("{sign}{value:.1}{unit}"),
        _ => format!("{sign}{value:.0}{unit}"),
    }
}

/// The nearest whole number, without its sign.
pub fn whole(value: f64) -> u64 {
    value.abs().round() as u64
}

/// A share of 1 as percent: `12.3 %`, `0.046 %`; never more than three decimals.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent == 0.0 {
        "0 %".to_owned()
    } else if percent.abs() < 0.001 {
        "<0.001 %".to_owned()
    } else if percent.abs() < 0.099_95 {
        format!("{percent:.3} %")
    } else {
        format!("{} %", three_digits(percent))
    }
}

/// A whole number with thousands separators: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count for narrow columns: as [`count`], from a million on `4.42 M`.
pub fn short_count(value: u64) -> String {
    match value {
        0..1_000_000 => count(value),
        1_000_000..999_500_000 => format!("{} M", three_digits(value as f64 / 1e6)),
        _ => format!("{} G", three_digits(value as f64 / 1e9)),
    }
}

/// An amount of memory: `812 bytes`, `1.50 KiB`, `12.3 MiB`, `2.05 GiB`.
pub fn bytes(bytes: u64) -> String {
    let exact = bytes as f64;
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", three_digits(exact / 1024.0)),
        1_048_576..1_073_741_824 => format!("{} MiB", three_digits(exact / 1_048_576.0)),
        _ => format!("{} GiB", three_digits(exact / 1_073_741_824.0)),
    }
}

/// An amount of memory in MiB or, from 1,024 of them, GiB: `0 MiB`, `0.500 MiB`, `-12.3 MiB`, `2.05 GiB`.
pub fn mebibytes(bytes: f64) -> String {
    match bytes / 1_048_576.0 {
        0.0 => "0 MiB".to_owned(),
        size if size.abs() < 1024.0 => format!("{} MiB", three_digits(size)),
        size => format!("{} GiB", three_digits(size / 1024.0)),
    }
}

/// A count with its noun: `1 pause`, `2 pauses`.
pub fn counted(value: u64, singular: &str) -> String {
    let plural = match (value, singular.strip_suffix("ss")) {
        (1, _) => "",
        (_, Some(_)) => "es",
        _ => "s",
    };
    format!("{} {singular}{plural}", count(value))
}

/// A number of at least 0.001 with three significant digits, no exponent.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size >= 0.099_95 => format!("{value:.3}"),
        size if size >= 0.009_995 => format!("{value:.4}"),
        _ => format!("{value:.5}"),
    }
}

/// `text` cut to at most `width` characters, with an ellipsis if anything was cut.
pub fn cut(text: &str, width: usize) -> String {
    let text = clean::line(text);
    if text.chars().count() <= width {
        return text.into_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (9_996_000, "10.0 ms"),
            (713_000_000, "713 ms"),
            (999_600_000, "1.00 s"),
            (59_949_000_000, "59.9 s"),
            (163_000_000_000, "163 s"),
            (1_000_000_000_000, "16.7 min"),
            (7_500_000_000_000, "2.08 h"),
            (u64::MAX, "5124096 h"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
    }

    #[test]
    fn shares_and_counts() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.123_456), "12.3 %");
        assert_eq!(percent(0.000_123), "0.012 %");
        assert_eq!(percent(0.000_05), "0.005 %");
        assert_eq!(percent(0.000_001), "<0.001 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123), "123");
        assert_eq!(short_count(999_999), "999,999");
        assert_eq!(short_count(4_418_720), "4.42 M");
        assert_eq!(counted(1, "pause"), "1 pause");
        assert_eq!(counted(2000, "process"), "2,000 processes");
        assert_eq!(bytes(812), "812 bytes");
        assert_eq!(bytes(3 << 19), "1.50 MiB");
        assert_eq!(bytes(5 << 30), "5.00 GiB");
    }
}
