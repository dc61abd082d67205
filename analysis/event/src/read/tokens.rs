//! Finds the members of an event 64 bytes at a time.
//!
//! Owns the fast way through valid text; `scan.rs` owns the grammar. Where a byte is not as expected, or too little
//! text is left, this gives up and `scan.rs` judges: text accepted here is accepted there, with the same ranges. The
//! brackets, commas, colons and quotes of a block are found at once, from the block's bytes alone (Langdale, Lemire:
//! Parsing Gigabytes of JSON per Second, 2019), so that the processor does not wait for the end of one value to look
//! for the next.

use super::scan;
use super::scan::{FieldRanges, MAX_DEPTH, ObjectMember};
use wide::{CmpEq, i8x16};

/// Number of bytes searched together for tokens, a bit of a word each.
const BLOCK: usize = u64::BITS as usize;

/// Sets the fields of the event with its opening brace at `text[at]`, as [`scan::event`] finds them;
/// `None` if that is to judge, the fields being undefined.
pub(crate) fn event(text: &[u8], at: usize, fields: &mut FieldRanges) -> Option<()> {
    *fields = FieldRanges::default();
    let mut tokens = Tokens::new(text, at);
    let _brace = tokens.next()?;
    fields.end = tokens.object(MAX_DEPTH, |member| fields.set(text, member))?;
    Some(())
}

/// The members of an object that was found valid, one after the other; none of another value.
#[derive(Debug, Clone)]
pub(super) struct MemberRanges<'a>(Tokens<'a>);

impl<'a> MemberRanges<'a> {
    pub(super) fn new(value: &'a [u8]) -> Self {
        Self(Tokens::new(value, 0))
    }
}

impl Iterator for MemberRanges<'_> {
    type Item = ObjectMember;

    fn next(&mut self) -> Option<ObjectMember> {
        let before = self.0.next()?;
        match self.0.byte(before) {
            b'{' | b',' => {
                let key = self.0.next()?;
                self.0.member(key, MAX_DEPTH)
            }
            _ => None,
        }
    }
}

/// The kinds of the bytes of a block, also in strings: a bit for each byte.
#[derive(Debug, Clone, Copy, Default)]
struct BlockMarks {
    quotes: u64,
    backslashes: u64,
    /// Brackets, commas and colons.
    structure: u64,
    space: u64,
}

impl BlockMarks {
    #[inline]
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut marks = Self::default();
        let (parts, _) = block.as_chunks::<16>();
        for (place, part) in parts.iter().enumerate() {
            let bytes = i8x16::new(part.map(u8::cast_signed));
            let equal = |byte: u8| bytes.cmp_eq(i8x16::splat(byte.cast_signed()));
            // `[` and `{`, `]` and `}` differ in this bit only; so do no other bytes from these.
            let folded = bytes | i8x16::splat(0x20);
            let bracket = |byte: u8| folded.cmp_eq(i8x16::splat(byte.cast_signed()));
            let mark = |found: i8x16| u64::from(found.move_mask().cast_unsigned()) << (place * 16);
            marks.quotes |= mark(equal(b'"'));
            marks.backslashes |= mark(equal(b'\\'));
            let brackets = bracket(b'{') | bracket(b'}');
            marks.structure |= mark(brackets | equal(b',') | equal(b':'));
            marks.space |= mark(equal(b' ') | equal(b'\n') | equal(b'\r') | equal(b'\t'));
        }
        marks
    }
}

/// The tokens of a text from a place outside strings on: each bracket, comma, colon and quote, and
/// the first byte of each run of other bytes.
#[derive(Debug, Clone)]
struct Tokens<'a> {
    text: &'a [u8],
    /// Where the next block begins.
    next_block: usize,
    /// Tokens of the current block that were not returned yet.
    left: u64,
    /// All ones if the next block begins in a string, else 0.
    in_string: u64,
    /// Whether the next block begins behind the backslash of an escape.
    escaped: bool,
    /// 1 if the next block begins behind a byte of a run, else 0.
    in_run: u64,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, next_block: at, left: 0, in_string: 0, escaped: false, in_run: 0 }
    }

    /// The place of the next token. `None`: too little text is left.
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        while self.left == 0 {
            self.find()?;
        }
        let at = self.next_block - BLOCK + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Some(at)
    }

    /// The byte at a token's place.
    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or_default()
    }

    /// Finds the tokens of the next block.
    #[inline(never)]
    fn find(&mut self) -> Option<()> {
        let rest = self.text.get(self.next_block..)?;
        match rest.first_chunk() {
            Some(block) => self.find_in(block),
            None if rest.is_empty() => return None,
            None => self.find_in(&padded(rest)),
        }
        Some(())
    }

    #[inline(always)]
    fn find_in(&mut self, block: &[u8; BLOCK]) {
        /// The last byte of a block.
        const LAST: u32 = u64::BITS - 1;
        let marks = BlockMarks::of(block);
        let (quotes, within) = if marks.backslashes == 0 && !self.escaped {
            (marks.quotes, self.in_string ^ odd_so_far(marks.quotes))
        } else {
            self.unescaped(block)
        };
        let runs = !(marks.structure | marks.space | quotes | within);
        let begins = runs & !(runs << 1 | self.in_run);
        self.left = quotes | marks.structure & !within | begins;
        self.in_string = 0u64.wrapping_sub(within >> LAST);
        self.in_run = runs >> LAST;
        self.next_block += BLOCK;
    }

    /// The quotes of a block that are not escaped, and the bytes of strings with the opening quotes.
    #[cold]
    fn unescaped(&mut self, block: &[u8; BLOCK]) -> (u64, u64) {
        let (mut quotes, mut within) = (0, 0);
        let mut in_string = self.in_string != 0;
        for (place, byte) in block.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = in_string,
                b'"' => {
                    quotes |= 1 << place;
                    in_string = !in_string;
                }
                _ => {}
            }
            within |= u64::from(in_string) << place;
        }
        (quotes, within)
    }

    /// Calls `each` with every member of the object that the last token opened; returns the index after its closing
    /// brace.
    #[inline]
    fn object(&mut self, depth: usize, mut each: impl FnMut(ObjectMember)) -> Option<usize> {
        let mut key = self.next()?;
        if self.byte(key) == b'}' {
            return Some(key + 1);
        }
        loop {
            each(self.member(key, depth)?);
            let behind = self.next()?;
            match self.byte(behind) {
                b',' => key = self.next()?,
                b'}' => return Some(behind + 1),
                _ => return None,
            }
        }
    }

    /// The member that starts with the last token, at `key`.
    #[inline(always)]
    fn member(&mut self, key: usize, depth: usize) -> Option<ObjectMember> {
        if self.byte(key) != b'"' {
            return None;
        }
        let key_end = self.next()?;
        let colon = self.next()?;
        if self.byte(colon) != b':' {
            return None;
        }
        let start = self.next()?;
        let end = self.value(start, depth)?;
        Some(ObjectMember { key: key + 1..key_end, value: start..end })
    }

    /// Index after the value that starts with the last token.
    #[inline]
    fn value(&mut self, start: usize, depth: usize) -> Option<usize> {
        match self.byte(start) {
            b'"' => Some(self.next()? + 1),
            b'{' => self.nested_object(depth.checked_sub(1)?),
            b'[' => self.array(depth.checked_sub(1)?),
            b'}' | b']' | b',' | b':' => None,
            _ => {
                let end = scan::bare(self.text, start).ok()?;
                // The run that began at `start` must end there.
                let behind = self.text.get(end)?;
                let is_end = matches!(behind, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                if is_end { Some(end) } else { None }
            }
        }
    }

    fn nested_object(&mut self, depth: usize) -> Option<usize> {
        self.object(depth, |_| {})
    }

    /// Index after the closing bracket of the array that the last token opened.
    fn array(&mut self, depth: usize) -> Option<usize> {
        let mut element = self.next()?;
        if self.byte(element) == b']' {
            return Some(element + 1);
        }
        loop {
            self.value(element, depth)?;
            let behind = self.next()?;
            match self.byte(behind) {
                b',' => element = self.next()?,
                b']' => return Some(behind + 1),
                _ => return None,
            }
        }
    }
}

/// The last bytes of a text, and white space behind them.
fn padded(rest: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|at| rest.get(at).copied().unwrap_or(b' '))
}

/// For each bit whether the number of ones up to it, itself included, is odd.
#[inline]
const fn odd_so_far(bits: u64) -> u64 {
    let bits = bits ^ bits << 1;
    let bits = bits ^ bits << 2;
    let bits = bits ^ bits << 4;
    let bits = bits ^ bits << 8;
    let bits = bits ^ bits << 16;
    bits ^ bits << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The results of both ways for the event at the start of `text`; `None`: refused, or left to the other.
    fn both(text: &[u8]) -> (Option<FieldRanges>, Option<FieldRanges>) {
        let (mut fast, mut slow) = (FieldRanges::default(), FieldRanges::default());
        let is_fast = event(text, 0, &mut fast).is_some();
        let is_slow = scan::event(text, 0, &mut slow).is_ok();
        (is_fast.then_some(fast), is_slow.then_some(slow))
    }

    /// Texts in the fields of events, and the texts that make them look like an event.
    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            8 => prop::sample::select(vec![
                "{", "}", "[", "]", ":", ",", "\"", "\\", " ", "\n", "\r", "\t", "\u{1}", "é", "1",
                "-", ".", "e", "true", "x", "\0",
            ])
            .prop_map(str::to_owned),
            1 => prop::sample::select(vec![
                "\"ph\":\"X\"", "\"ts\": 12.5", "\"args\" : {", "\"name\":\"a\\\\\"", "\"a\":[", "\"dur\":",
            ])
            .prop_map(str::to_owned),
            1 => "[a-z]{0,80}",
        ]
    }

    /// A value as JSON of some spacing; its texts have quotes, backslashes and any length.
    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            prop_oneof![Just("true"), Just("null"), Just("-1e-5"), Just("NaN"), Just("-Infinity")]
                .prop_map(str::to_owned),
            any::<u64>().prop_map(|number| number.to_string()),
            (any::<u32>(), any::<u16>()).prop_map(|(whole, part)| format!("{whole}.{part}")),
            "[a-z\"\\\\{}:,\\[\\] é]{0,90}"
                .prop_map(|text| serde_json::Value::from(text).to_string()),
        ];
        let space = || prop_oneof![Just(""), Just(" "), Just("\n    ")];
        leaf.prop_recursive(3, 20, 5, move |inner| {
            let elements = prop::collection::vec(inner.clone(), 0..4);
            let members = prop::collection::vec(("[a-z\\\\\"]{0,20}", inner), 0..4);
            prop_oneof![
                (elements, space()).prop_map(|(elements, space)| {
                    format!("[{space}{}{space}]", elements.join(&format!("{space},{space}")))
                }),
                (members, space()).prop_map(|(members, space)| object(&members, space)),
            ]
        })
    }

    fn object(members: &[(String, String)], space: &str) -> String {
        let member = |(key, value): &(String, String)| {
            let key = serde_json::Value::from(key.as_str());
            format!("{space}{key}{space}:{space}{value}{space}")
        };
        let members: Vec<_> = members.iter().map(member).collect();
        format!("{{{space}{}}}", members.join(","))
    }

    fn an_event() -> impl Strategy<Value = String> {
        let key = prop_oneof![
            prop::sample::select(vec![
                "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "s", "sf"
            ])
            .prop_map(str::to_owned),
            "[a-z\"]{0,70}",
        ];
        let members = prop::collection::vec((key, value()), 0..9);
        (members, prop_oneof![Just(""), Just(" "), Just("\n  ")])
            .prop_map(|(members, space)| object(&members, space))
    }

    proptest! {
        #[test]
        fn the_fields_of_any_event_are_the_same(event in an_event()) {
            // As in a trace, more text follows.
            let text = format!("{event},{}", " ".repeat(BLOCK));
            let (fast, slow) = both(text.as_bytes());
            prop_assert!(slow.is_some(), "{event}");
            prop_assert_eq!(fast, slow);
        }

        #[test]
        fn damage_is_found(
            event in an_event(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), piece(), any::<bool>()), 1..4),
        ) {
            let mut text = format!("{event},{}", " ".repeat(BLOCK)).into_bytes();
            for (at, piece, replaces) in damage {
                // The opening brace is there already where events are looked for.
                let at = 1 + at.index(event.len() - 1);
                let end = at + usize::from(replaces);
                text.splice(at..end, piece.bytes());
            }
            let (fast, slow) = both(&text);
            prop_assert_eq!(fast, slow, "{}", String::from_utf8_lossy(&text));
        }

        #[test]
        fn any_text_is_judged_alike(pieces in prop::collection::vec(piece(), 0..60)) {
            let text = format!("{{{}{}", pieces.concat(), " ".repeat(BLOCK));
            let (fast, slow) = both(text.as_bytes());
            prop_assert_eq!(fast, slow, "{}", text);
        }
    }

    #[test]
    fn every_cut_is_found() {
        let text =
            br#"{"ph":"X","name":"a\\\"b","args":{"Input Dims":[[1, 2],[]],"x":{}},"ts":1.5}   "#;
        for length in 0..text.len() {
            let (fast, slow) = both(&text[..length]);
            assert_eq!(fast, slow, "{length}");
        }
    }
}
