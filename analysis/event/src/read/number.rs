//! Numbers of a trace: exact where they are integers or decimals, whatever their notation.

/// Largest time in microseconds: 2^53 (285 years). Beyond it doubles, the common ground of trace tools, are not exact
/// any more.
const MAX_US: u64 = 1 << 53;

/// Microseconds in decimal notation as nanoseconds, rounded to the nearest. `None`: negative,
/// absurdly large, or not a number.
pub(crate) fn us_to_ns(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match text.iter().position(|byte| *byte == b'.') {
        Some(point) => (text.get(..point)?, text.get(point + 1..)?),
        None => (text, &b""[..]),
    };
    let exact = || Some((digits(whole)?, thousandths(fraction)?));
    let Some((us, ns)) = exact() else { return us_exponent_to_ns(text) };
    if us <= MAX_US { Some(us * 1000 + ns) } else { None }
}

/// Digits only, no sign; at least one.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The first three decimals, rounded by the fourth.
fn thousandths(fraction: &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..4 {
        let digit = match fraction.get(place) {
            Some(byte @ b'0'..=b'9') => u64::from(byte - b'0'),
            Some(_) => return None,
            None => 0,
        };
        match place {
            3 => value += u64::from(digit >= 5),
            _ => value = value * 10 + digit,
        }
    }
    let rest = gctrace_units::part(fraction, 4..);
    if rest.iter().all(u8::is_ascii_digit) { Some(value) } else { None }
}

/// Notations with an exponent: exact as long as their digits fit, as of any number that a double
/// was written as.
fn us_exponent_to_ns(text: &[u8]) -> Option<u64> {
    let mark = text.iter().position(|byte| matches!(byte, b'e' | b'E'))?;
    let (mantissa, exponent) = (text.get(..mark)?, text.get(mark + 1..)?);
    let exponent: i32 = std::str::from_utf8(exponent).ok()?.parse().ok()?;
    let point = mantissa.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (mantissa.get(..point)?, mantissa.get(point + 1..)?),
        None => (mantissa, &b""[..]),
    };
    let significant = [whole, fraction].concat();
    // The digits omitted at the end are beyond a double's 17 digits.
    let kept = significant.len().min(19);
    let value = u128::from(digits(significant.get(..kept)?)?);
    if !significant.get(kept..)?.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let places = i64::try_from(kept).ok()? - i64::try_from(whole.len()).ok()?;
    // 10^power ns is the last digit's place.
    let power = i64::from(exponent) + 3 - places;
    let scale = |power: i64| 10u128.checked_pow(u32::try_from(power).ok()?);
    let ns = match power {
        0.. if value == 0 => 0,
        0.. => value.checked_mul(scale(power)?)?,
        _ => match scale(-power) {
            Some(unit) => (value + unit / 2) / unit,
            None => 0,
        },
    };
    let ns = u64::try_from(ns).ok()?;
    if ns <= MAX_US * 1000 { Some(ns) } else { None }
}

/// A JSON number; `None` unless it is finite.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    if value.is_finite() { Some(value) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds() {
        for (text, ns) in [
            ("0", 0),
            ("1", 1000),
            ("1.5", 1500),
            ("1.234", 1234),
            ("1.2345", 1235),
            ("1.23449", 1234),
            ("0.9999", 1000),
            ("6217342.000", 6_217_342_000),
            ("1.5e3", 1_500_000),
            ("15E+2", 1_500_000),
            ("1.712195495520883123e15", 1_712_195_495_520_883_123),
            ("1712195495520883.123e0", 1_712_195_495_520_883_123),
            ("12345e-4", 1235),
            ("1e-300", 0),
            ("0e300", 0),
            ("9007199254740992.999", 9_007_199_254_740_992_999),
        ] {
            assert_eq!(us_to_ns(text.as_bytes()), Some(ns), "{text}");
        }
    }

    #[test]
    fn absurd_microseconds() {
        for text in [
            "",
            "-1",
            "1e300",
            "1e",
            "e5",
            "-1e3",
            "1.5e3.5",
            "9.1e15",
            "1e99999999999",
            "NaN",
            "Infinity",
            "9007199254740993",
            "99999999999999999999999",
            "1.x",
            "x",
            "1.2.3",
        ] {
            assert_eq!(us_to_ns(text.as_bytes()), None, "{text}");
        }
    }
}
