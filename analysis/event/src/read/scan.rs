//! Finds the ends of JSON values.
//!
//! Owns the grammar, checked once per byte; interprets and copies nothing. Text that ends before
//! the value does is distinguished from invalid text: the former needs more input. More tolerant
//! than JSON in two points, for files that exist: `NaN` and `Infinity` (Python's `json` writes
//! them) and raw control characters in strings.

use gctrace_units::part;
use std::ops::Range;

/// Nesting allowed within one event; deeper text is refused, so that no file exhausts the stack.
pub(super) const MAX_DEPTH: usize = 64;

/// Why no end was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanStop {
    /// The text ends within the value.
    More,
    /// The byte at this index is not valid JSON; and the expected text.
    Bad(usize, &'static str),
}

type Step = Result<usize, ScanStop>;

/// The byte ranges of an event's fields, empty where a field is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldRanges {
    pub(crate) category: Range<usize>,
    pub(crate) name: Range<usize>,
    pub(crate) phase: Range<usize>,
    pub(crate) ts: Range<usize>,
    pub(crate) dur: Range<usize>,
    pub(crate) pid: Range<usize>,
    pub(crate) tid: Range<usize>,
    pub(crate) id: Range<usize>,
    pub(crate) scope: Range<usize>,
    pub(crate) args: Range<usize>,
    pub(crate) stack: Range<usize>,
    /// Index after the closing brace.
    pub(crate) end: usize,
}

impl FieldRanges {
    /// Sets the field with this key, if there is one.
    #[inline]
    pub(super) fn set(&mut self, text: &[u8], member: ObjectMember) {
        if let Some(slot) = text.get(member.key).and_then(|key| self.slot(key)) {
            *slot = member.value;
        }
    }

    fn slot(&mut self, key: &[u8]) -> Option<&mut Range<usize>> {
        match key {
            b"ph" => Some(&mut self.phase),
            b"cat" => Some(&mut self.category),
            b"name" => Some(&mut self.name),
            b"pid" => Some(&mut self.pid),
            b"tid" => Some(&mut self.tid),
            b"ts" => Some(&mut self.ts),
            b"dur" => Some(&mut self.dur),
            b"args" => Some(&mut self.args),
            b"id" => Some(&mut self.id),
            b"s" => Some(&mut self.scope),
            b"sf" => Some(&mut self.stack),
            _ => None,
        }
    }
}

/// Sets the fields of the event with its opening brace at `text[at]`, one byte after the other.
pub(super) fn event(text: &[u8], at: usize, fields: &mut FieldRanges) -> Result<(), ScanStop> {
    *fields = FieldRanges::default();
    fields.end = object(text, at, MAX_DEPTH, |member| fields.set(text, member))?;
    Ok(())
}

/// One member of an object.
#[derive(Debug, Clone)]
pub(crate) struct ObjectMember {
    /// The key, without quotes.
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The member with its opening quote at `text[at]`.
pub(crate) fn member(text: &[u8], at: usize) -> Result<ObjectMember, ScanStop> {
    nested_member(text, at, MAX_DEPTH)
}

/// Index of the first byte from `at` on that is not white space.
pub(crate) fn space(text: &[u8], at: usize) -> usize {
    let rest = part(text, at..);
    match rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t')) {
        Some(skipped) => at + skipped,
        None => text.len(),
    }
}

/// Index after the string with its opening quote at `text[at]`.
pub(crate) fn string(text: &[u8], at: usize) -> Step {
    let rest = text.get(at + 1..).ok_or(ScanStop::More)?;
    let mut escaped = false;
    for (index, byte) in rest.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Ok(at + index + 2),
            _ => {}
        }
    }
    Err(ScanStop::More)
}

/// Index after the value that starts at `text[at]`.
pub(crate) fn value(text: &[u8], at: usize) -> Step {
    nested(text, at, MAX_DEPTH)
}

fn nested(text: &[u8], at: usize, depth: usize) -> Step {
    match text.get(at).ok_or(ScanStop::More)? {
        b'"' => string(text, at),
        b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => bare(text, at),
        b'{' => object(text, at, deeper(at, depth)?, |_| {}),
        b'[' => array(text, at, deeper(at, depth)?),
        _ => Err(ScanStop::Bad(at, "a value")),
    }
}

fn deeper(at: usize, depth: usize) -> Result<usize, ScanStop> {
    depth.checked_sub(1).ok_or(ScanStop::Bad(at, "less deeply nested values"))
}

/// A number or a word: everything up to a byte that may follow a value.
#[inline]
pub(super) fn bare(text: &[u8], at: usize) -> Step {
    decimal(text, at).map_or_else(|| word(text, at), Ok)
}

/// Index after digits with or without a fraction, as nearly all numbers are; `None` where [`word`]
/// is to judge.
#[inline]
fn decimal(text: &[u8], at: usize) -> Option<usize> {
    let mut end = end_of_digits(text, at);
    if end > at && text.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = end_of_digits(text, fraction);
        if end <= fraction {
            return None;
        }
    }
    if end > at && !in_word(*text.get(end)?) { Some(end) } else { None }
}

/// Index of the first byte from `at` on that is not a digit, sought eight at a time.
#[inline]
fn end_of_digits(text: &[u8], mut at: usize) -> usize {
    /// The highest bit of each byte: there the sums below put whether it is no digit.
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const ONES: u64 = HIGH >> 7;
    while let Some(bytes) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        let bytes = u64::from_le_bytes(*bytes);
        // No sum carries into the next byte.
        let low = bytes & !HIGH;
        let over_nine = low + ONES * (0x7f - b'9' as u64);
        let from_zero = low + ONES * (0x80 - b'0' as u64);
        match (bytes | over_nine | !from_zero) & HIGH {
            0 => at += size_of::<u64>(),
            others => return at + (others.trailing_zeros() / u8::BITS) as usize,
        }
    }
    let rest = part(text, at..);
    at + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Whether this byte belongs to a number or a word.
#[inline]
fn in_word(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-' | b'a'..=b'z' | b'A'..=b'Z')
}

/// As [`bare`], in any notation.
fn word(text: &[u8], at: usize) -> Step {
    let rest = text.get(at..).ok_or(ScanStop::More)?;
    let length = rest.iter().position(|byte| !in_word(*byte));
    let length = length.ok_or(ScanStop::More)?;
    let word = part(rest, ..length);
    let known = match word.first() {
        Some(b'0'..=b'9') => number(word),
        Some(b'-') => word == b"-Infinity" || word.get(1..).is_some_and(number),
        _ => matches!(word, b"true" | b"false" | b"null" | b"NaN" | b"Infinity"),
    };
    if known { Ok(at + length) } else { Err(ScanStop::Bad(at, "a number, true, false or null")) }
}

/// Digits, optionally a fraction and an exponent. Leading zeros pass.
fn number(word: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(word);
    let mut rest = part(word, whole..);
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = digits(fraction);
        if length == 0 {
            return false;
        }
        rest = part(fraction, length..);
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', exponent @ ..] => exponent,
            _ => exponent,
        };
        let length = digits(exponent);
        return whole > 0 && length > 0 && length == exponent.len();
    }
    whole > 0 && rest.is_empty()
}

fn object(text: &[u8], at: usize, depth: usize, mut each: impl FnMut(ObjectMember)) -> Step {
    let mut at = space(text, at + 1);
    if text.get(at) == Some(&b'}') {
        return Ok(at + 1);
    }
    loop {
        at = space(text, at);
        let member = nested_member(text, at, depth)?;
        at = space(text, member.value.end);
        each(member);
        match text.get(at).ok_or(ScanStop::More)? {
            b',' => at += 1,
            b'}' => return Ok(at + 1),
            _ => return Err(ScanStop::Bad(at, "',' or '}'")),
        }
    }
}

#[inline]
fn nested_member(text: &[u8], at: usize, depth: usize) -> Result<ObjectMember, ScanStop> {
    expect(text, at, b'"', "a key in quotes")?;
    let key_end = string(text, at)?;
    let colon = space(text, key_end);
    expect(text, colon, b':', "':'")?;
    let start = space(text, colon + 1);
    let end = nested(text, start, depth)?;
    Ok(ObjectMember { key: at + 1..key_end - 1, value: start..end })
}

fn array(text: &[u8], at: usize, depth: usize) -> Step {
    let mut at = space(text, at + 1);
    if text.get(at) == Some(&b']') {
        return Ok(at + 1);
    }
    loop {
        at = space(text, at);
        at = space(text, nested(text, at, depth)?);
        match text.get(at).ok_or(ScanStop::More)? {
            b',' => at += 1,
            b']' => return Ok(at + 1),
            _ => return Err(ScanStop::Bad(at, "',' or ']'")),
        }
    }
}

fn expect(text: &[u8], at: usize, byte: u8, what: &'static str) -> Result<(), ScanStop> {
    match text.get(at) {
        Some(found) if *found == byte => Ok(()),
        Some(_) => Err(ScanStop::Bad(at, what)),
        None => Err(ScanStop::More),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_an_event() {
        let text = br#"{"ph":"X", "args" : {"a":[1,{"b":"}"}]}, "ts":1.5e3,"x":null} ,"#;
        let mut fields = FieldRanges::default();
        event(text, 0, &mut fields).unwrap();
        assert_eq!(&text[fields.phase.clone()], br#""X""#);
        assert_eq!(&text[fields.args.clone()], br#"{"a":[1,{"b":"}"}]}"#);
        assert_eq!(&text[fields.ts.clone()], b"1.5e3");
        assert!(fields.dur.is_empty());
        assert_eq!(fields.end, text.len() - 2);
    }

    #[test]
    fn every_prefix_asks_for_more() {
        let text = br#"{"a":"x\"y","b":[-1.5,true,{}],"c":{"d":null}}"#;
        for length in 0..text.len() {
            assert_eq!(value(&text[..length], 0), Err(ScanStop::More), "{length}");
        }
        assert_eq!(value(text, 0), Ok(text.len()));
    }

    #[test]
    fn agrees_with_serde_json_on_what_is_wrong() {
        for text in [
            r#"{"a" 1}"#,
            r#"{"a":1,}"#,
            r#"{a:1}"#,
            "[1 2]",
            "[1,]",
            "[01x]",
            "[-]",
            "[1.]",
            "[1e]",
            "[tru]",
            "[+1]",
            "{]",
            "[}",
            r#"{"a":}"#,
            "[,1]",
            "[1.2.3]",
            "[1-2]",
        ] {
            assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "{text}");
            assert!(matches!(value(text.as_bytes(), 0), Err(ScanStop::Bad(..))), "{text}");
        }
    }

    #[test]
    fn nesting_is_limited() {
        let text = "[".repeat(100_000);
        assert!(matches!(value(text.as_bytes(), 0), Err(ScanStop::Bad(..))));
    }
}
