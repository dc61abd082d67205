//! JSON for standard output: the same values, without characters that a terminal could interpret.

use super::clean::is_harmful;
use std::io;
use std::io::Write;

/// Passes JSON on, with characters that are harmful to a terminal (such as U+009B, which starts a
/// control sequence) as `\u` escapes (RFC 8259, section 7). These occur only in strings. Newlines
/// stay.
#[derive(Debug)]
pub(crate) struct JsonEscaper<W>(pub(crate) W);

impl<W: Write> Write for JsonEscaper<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // serde_json writes valid UTF-8; other bytes are passed on unchanged.
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.0.write_all(bytes)?;
            return Ok(bytes.len());
        };
        let mut rest = text;
        while let Some((position, char)) =
            rest.char_indices().find(|(_, char)| *char != '\n' && is_harmful(*char))
        {
            let (before, after) = rest.split_at(position);
            self.0.write_all(before.as_bytes())?;
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                write!(self.0, "\\u{unit:04x}")?;
            }
            rest = &after[char.len_utf8()..];
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(value: &serde_json::Value) -> String {
        let mut bytes = Vec::new();
        serde_json::to_writer_pretty(JsonEscaper(&mut bytes), value).expect("JSON");
        String::from_utf8(bytes).expect("text")
    }

    proptest! {
        #[test]
        fn the_values_are_the_same(text in any::<String>(), key in any::<String>()) {
            let harmful = "\u{9b}\u{202e}\u{e0001}\x1b\n\u{200b}";
            let value = serde_json::json!({ key: [text, harmful] });
            let json = written(&value);
            prop_assert!(!json.contains(|char| char != '\n' && is_harmful(char)));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), value);
        }
    }
}
