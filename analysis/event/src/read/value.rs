//! A view of one JSON value of a trace.
//!
//! Owns the interpretation of text that `scan.rs` has checked. Numbers may be in quotes, as some
//! tools write them.

use super::number;
use super::tokens::MemberRanges;
use serde::de::DeserializeOwned;
use serde_json::de::SliceRead;
use std::borrow::Cow;

/// The text of one JSON value, valid if it comes from the scanner; a missing field is empty text.
/// Nothing is copied or parsed until needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonValue<'a>(pub(crate) &'a [u8]);

impl<'a> JsonValue<'a> {
    /// Whether the field is missing; `null` counts as present.
    #[must_use]
    pub fn is_missing(self) -> bool {
        self.0.is_empty()
    }

    /// The JSON text of the value.
    #[must_use]
    pub fn json(self) -> &'a [u8] {
        self.0
    }

    /// The text between the quotes of a string, with its escapes.
    #[must_use]
    pub fn raw_text(self) -> Option<&'a [u8]> {
        self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")
    }

    /// A string, escapes resolved; bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        let raw = self.raw_text()?;
        if raw.contains(&b'\\')
            && let Ok(text) = serde_json::from_slice(self.0)
        {
            return Some(Cow::Owned(text));
        }
        // Much faster than the search for invalid UTF-8; it is hardly ever there.
        Some(match std::str::from_utf8(raw) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(raw),
        })
    }

    /// A number's text, quotes around it removed.
    fn number(self) -> &'a [u8] {
        self.raw_text().unwrap_or(self.0)
    }

    /// A whole number of at least 0; `5.0` and `"5"` pass.
    #[must_use]
    pub fn unsigned(self) -> Option<u64> {
        let text = self.number();
        if let Some(whole) = number::digits(text) {
            return Some(whole);
        }
        let point = text.iter().position(|byte| *byte == b'.')?;
        let fraction = text.get(point + 1..)?;
        let is_whole = !fraction.is_empty() && fraction.iter().all(|byte| *byte == b'0');
        if is_whole { number::digits(text.get(..point)?) } else { None }
    }

    /// The value as a whole number.
    #[must_use]
    pub fn signed(self) -> Option<i64> {
        match self.number().strip_prefix(b"-") {
            Some(digits) => 0i64.checked_sub_unsigned(number::digits(digits)?),
            None => i64::try_from(self.unsigned()?).ok(),
        }
    }

    /// The value as a finite number.
    #[must_use]
    pub fn float(self) -> Option<f64> {
        number::float(self.number())
    }

    /// The value as `true` or `false`.
    #[must_use]
    pub fn boolean(self) -> Option<bool> {
        match self.0 {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// A time in microseconds, converted to ns, exact to three decimals. `None` if it is negative,
    /// over 2^53 µs, or not a number.
    #[must_use]
    pub fn us_as_ns(self) -> Option<u64> {
        number::us_to_ns(self.number())
    }

    /// The members of an object; empty for other values.
    #[must_use]
    pub fn members(self) -> ObjectMembers<'a> {
        ObjectMembers { text: self.0, ranges: MemberRanges::new(self.0) }
    }

    /// The member of this name, or a missing value.
    #[must_use]
    pub fn member(self, name: &str) -> JsonValue<'a> {
        let Some((_, value)) = self.members().find(|(key, _)| *key == name.as_bytes()) else {
            return JsonValue(b"");
        };
        value
    }

    /// The value as a type of serde's.
    ///
    /// # Errors
    /// The errors of `serde_json`.
    pub fn parse<T: DeserializeOwned>(self) -> serde_json::Result<T> {
        serde_json::from_slice(self.0)
    }

    /// For types that are known later. The text is one whole value.
    pub(crate) fn deserializer(self) -> serde_json::Deserializer<SliceRead<'a>> {
        serde_json::Deserializer::from_slice(self.0)
    }
}

/// The members of an object: key (escapes as they are) and value.
#[derive(Debug, Clone)]
pub struct ObjectMembers<'a> {
    text: &'a [u8],
    ranges: MemberRanges<'a>,
}

impl<'a> Iterator for ObjectMembers<'a> {
    type Item = (&'a [u8], JsonValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let member = self.ranges.next()?;
        let value = JsonValue(self.text.get(member.value)?);
        Some((self.text.get(member.key)?, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_objects() {
        let value = JsonValue(br#"{ "a" : 1 , "b":{"c":[2]}, "d":"x" }"#);
        let keys: Vec<_> = value.members().map(|(key, _)| key).collect();
        assert_eq!(keys, [b"a", b"b", b"d"]);
        assert_eq!(value.member("b").member("c"), JsonValue(b"[2]"));
        assert!(value.member("e").is_missing());
        assert_eq!(JsonValue(b"{}").members().count(), 0);
        assert_eq!(JsonValue(b"[1]").members().count(), 0);
        assert_eq!(JsonValue(b"").members().count(), 0);
    }

    #[test]
    fn numbers() {
        assert_eq!(JsonValue(b"12").unsigned(), Some(12));
        assert_eq!(JsonValue(b"\"12\"").unsigned(), Some(12));
        assert_eq!(JsonValue(b"12.0").unsigned(), Some(12));
        assert_eq!(JsonValue(b"12.5").unsigned(), None);
        assert_eq!(JsonValue(b"-3").unsigned(), None);
        assert_eq!(JsonValue(b"-3").signed(), Some(-3));
        assert_eq!(JsonValue(b"-9223372036854775808").signed(), Some(i64::MIN));
        assert_eq!(JsonValue(b"18446744073709551616").unsigned(), None);
        assert_eq!(JsonValue(b"null").unsigned(), None);
    }

    #[test]
    fn texts() {
        assert_eq!(JsonValue(br#""a\nb""#).text().unwrap(), "a\nb");
        assert_eq!(JsonValue(b"\"a\xff\"").text().unwrap(), "a\u{fffd}");
        assert_eq!(JsonValue(b"1").text(), None);
        assert_eq!(JsonValue(b"\"").text(), None);
    }
}
