//! Parses terminal input into keys and clicks.
//!
//! Pure: bytes in, events out. Events are crossterm's (0.29), but not its reader and parser.
//! Supports the keys of xterm, tmux, screen and the Linux console (terminfo `k*`), and mouse reports
//! in SGR coordinates (xterm mode 1006). Other sequences are skipped as a whole.
//!
//! By hand, as crossterm fails, tried on a pty: `ESC` and `[A` in two reads are Esc, `[`, `A`; after
//! `ESC [` or `ESC O M` its reader blocks; it never returns after a hangup; it panics (or wraps) on `ESC [ < 0; 0; 5
//! M`. Other crates: terminput 0.5 overflows there too, termina 0.4 keeps all input after `ESC ]`, vte lacks the Esc
//! key and SS3, and termwiz 0.23 comes with 100 packages.

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

/// Maximum bytes of a sequence.
const LONGEST: usize = 64;

/// Splits terminal input into events; keeps an incomplete sequence for the next read.
#[derive(Debug, Default)]
pub(crate) struct InputBuffer {
    pending: Vec<u8>,
}

/// Result of parsing the first bytes.
enum ParsedInput {
    /// An event, and the number of its bytes.
    Event(Event, usize),
    /// The number of bytes to skip.
    Nothing(usize),
    /// More bytes are needed.
    Incomplete,
}

impl InputBuffer {
    /// Appends bytes and returns the events that are complete.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.pending.extend_from_slice(bytes);
        let mut events = Vec::new();
        while !self.pending.is_empty() {
            let used = match first(&self.pending) {
                ParsedInput::Event(event, used) => {
                    events.push(event);
                    used
                }
                ParsedInput::Nothing(used) => used,
                ParsedInput::Incomplete if self.pending.len() > LONGEST => self.pending.len(),
                ParsedInput::Incomplete => break,
            };
            self.pending.drain(..used.clamp(1, self.pending.len()));
        }
        events
    }

    /// Whether an incomplete sequence waits for more bytes, or for [`Self::flush`].
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Drops an incomplete sequence after a timeout; a lone ESC is the Esc key.
    pub(crate) fn flush(&mut self) -> Option<Event> {
        let escape = self.pending == [0x1b];
        self.pending.clear();
        if escape { Some(plain(KeyCode::Esc)) } else { None }
    }
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
    Event::Key(KeyEvent::new(code, modifiers))
}

fn plain(code: KeyCode) -> Event {
    key(code, KeyModifiers::NONE)
}

fn first(bytes: &[u8]) -> ParsedInput {
    match *bytes {
        [0x1b] | [0x1b, b'['] | [0x1b, b'O'] => ParsedInput::Incomplete,
        [0x1b, b'[', ref rest @ ..] => control_sequence(rest),
        [0x1b, b'O', letter, ..] => match function_key(letter) {
            Some(code) => ParsedInput::Event(plain(code), 3),
            None => ParsedInput::Nothing(3),
        },
        // ESC ESC is the Esc key and the start of a sequence.
        [0x1b, 0x1b, ..] => ParsedInput::Event(plain(KeyCode::Esc), 1),
        [0x1b, ref rest @ ..] => with_alt(first(rest)),
        [b'\r' | b'\n', ..] => ParsedInput::Event(plain(KeyCode::Enter), 1),
        [b'\t', ..] => ParsedInput::Event(plain(KeyCode::Tab), 1),
        [0x7f | 0x08, ..] => ParsedInput::Event(plain(KeyCode::Backspace), 1),
        [0, ..] => ParsedInput::Nothing(1),
        [control @ 0x01..=0x1a, ..] => {
            let letter = char::from(control - 1 + b'a');
            ParsedInput::Event(key(KeyCode::Char(letter), KeyModifiers::CONTROL), 1)
        }
        [0x1c..=0x1f, ..] => ParsedInput::Nothing(1),
        _ => character(bytes),
    }
}

fn with_alt(taken: ParsedInput) -> ParsedInput {
    match taken {
        ParsedInput::Event(Event::Key(event), used) => {
            let modifiers = event.modifiers | KeyModifiers::ALT;
            ParsedInput::Event(key(event.code, modifiers), used + 1)
        }
        ParsedInput::Event(_, used) | ParsedInput::Nothing(used) => ParsedInput::Nothing(used + 1),
        ParsedInput::Incomplete => ParsedInput::Incomplete,
    }
}

/// One UTF-8 character.
fn character(bytes: &[u8]) -> ParsedInput {
    let length = match bytes.first() {
        Some(0..0x80) => 1,
        Some(0xc2..0xe0) => 2,
        Some(0xe0..0xf0) => 3,
        Some(0xf0..0xf5) => 4,
        _ => return ParsedInput::Nothing(1),
    };
    let Some(bytes) = bytes.get(..length) else { return ParsedInput::Incomplete };
    match std::str::from_utf8(bytes).map(|text| text.chars().next()) {
        Ok(Some(char)) => ParsedInput::Event(plain(KeyCode::Char(char)), length),
        _ => ParsedInput::Nothing(1),
    }
}

/// The key for the final byte of SS3 sequences and of CSI sequences without a key number.
fn function_key(letter: u8) -> Option<KeyCode> {
    Some(match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'M' => KeyCode::Enter,
        b'Z' => KeyCode::BackTab,
        b'P'..=b'S' => KeyCode::F(letter - b'P' + 1),
        _ => return None,
    })
}

/// Parses the bytes after `ESC [`: parameters and a final byte (ECMA-48, 5.4).
fn control_sequence(rest: &[u8]) -> ParsedInput {
    // F1 to F5 of the Linux console.
    if let [b'[', letter, ..] = *rest {
        return match letter {
            b'A'..=b'E' => ParsedInput::Event(plain(KeyCode::F(letter - b'A' + 1)), 4),
            _ => ParsedInput::Nothing(4),
        };
    }
    if rest == [b'['] {
        return ParsedInput::Incomplete;
    }
    let Some(length) = rest.iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        return ParsedInput::Incomplete;
    };
    let (parameters, last) = (&rest[..length], rest[length]);
    let used = length + 3;
    if !(0x40..=0x7e).contains(&last) {
        // Aborted by another byte; that byte is parsed again.
        return ParsedInput::Nothing(used - 1);
    }
    let event = match parameters {
        [b'<', report @ ..] if matches!(last, b'M' | b'm') => mouse(report, last == b'M'),
        parameters => numbered(parameters, last),
    };
    if let Some(one) = event { ParsedInput::Event(one, used) } else { ParsedInput::Nothing(used) }
}

/// Parameters; `None` if left out or not a number.
fn numbers(parameters: &[u8]) -> Vec<Option<u16>> {
    let parts = parameters.split(|byte| *byte == b';');
    let number = |part| str::from_utf8(part).ok()?.parse().ok();
    parts.map(number).collect()
}

/// `ESC [ 5 ~`, `ESC [ 1 ; 5 A`.
fn numbered(parameters: &[u8], last: u8) -> Option<Event> {
    let numbers = numbers(parameters);
    let modifiers = numbers.get(1).copied().flatten();
    let modifiers = if let Some(of) = modifiers { self::modifiers(of) } else { KeyModifiers::NONE };
    let code = match (last, numbers[0]) {
        (b'~', Some(1 | 7)) => KeyCode::Home,
        (b'~', Some(2)) => KeyCode::Insert,
        (b'~', Some(3)) => KeyCode::Delete,
        (b'~', Some(4 | 8)) => KeyCode::End,
        (b'~', Some(5)) => KeyCode::PageUp,
        (b'~', Some(6)) => KeyCode::PageDown,
        (b'~', Some(number @ 11..=15)) => KeyCode::F(number as u8 - 10),
        (b'~', Some(number @ 17..=21)) => KeyCode::F(number as u8 - 11),
        (b'~', Some(number @ 23..=24)) => KeyCode::F(number as u8 - 12),
        (b'~' | b'M', _) => return None,
        (letter, _) => function_key(letter)?,
    };
    Some(key(code, modifiers))
}

/// xterm's encoding: 1 + shift (1) + alt (2) + control (4).
fn modifiers(parameter: u16) -> KeyModifiers {
    let bits = parameter.max(1) - 1;
    [(1, KeyModifiers::SHIFT), (2, KeyModifiers::ALT), (4, KeyModifiers::CONTROL)]
        .into_iter()
        .filter_map(|(bit, modifier)| if bits & bit != 0 { Some(modifier) } else { None })
        .collect()
}

/// An xterm SGR report: button, column and row, both from 1. `None` if its column or row is 0.
fn mouse(report: &[u8], pressed: bool) -> Option<Event> {
    let &[Some(button), Some(column), Some(row)] = numbers(report).as_slice() else { return None };
    let kind = match (button & 0b1110_0011, pressed) {
        (0, true) => MouseEventKind::Down(MouseButton::Left),
        (64, true) => MouseEventKind::ScrollUp,
        (65, true) => MouseEventKind::ScrollDown,
        _ => return None,
    };
    Some(Event::Mouse(MouseEvent {
        kind,
        column: column.checked_sub(1)?,
        row: row.checked_sub(1)?,
        modifiers: KeyModifiers::NONE,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn codes(bytes: &[u8]) -> Vec<KeyCode> {
        let events = InputBuffer::default().take(bytes);
        let code = |event: &Event| event.as_key_event().map(|key| key.code);
        events.iter().filter_map(code).collect()
    }

    #[test]
    fn keys_of_terminals() {
        use KeyCode as K;
        for (bytes, code) in [
            (&b"\x1b[A"[..], K::Up),
            (b"\x1bOB", K::Down),
            (b"\x1b[5~", K::PageUp),
            (b"\x1b[6~", K::PageDown),
            (b"\x1b[H", K::Home),
            (b"\x1b[1~", K::Home),
            (b"\x1b[4~", K::End),
            (b"\x1bOP", K::F(1)),
            (b"\x1b[11~", K::F(1)),
            (b"\x1b[[A", K::F(1)),
            (b"\x1b[17~", K::F(6)),
            (b"\x1b[21~", K::F(10)),
            (b"\x1b[24~", K::F(12)),
            (b"\x1b[1;5C", K::Right),
            (b"\x1b[Z", K::BackTab),
            (b"\r", K::Enter),
            (b"\x7f", K::Backspace),
            ("é".as_bytes(), K::Char('é')),
            (b"\x03", K::Char('c')),
        ] {
            assert_eq!(codes(bytes), [code], "{bytes:?}");
        }
    }

    #[test]
    fn a_lone_escape_is_a_key_after_the_timeout() {
        let mut input = InputBuffer::default();
        assert!(input.take(b"\x1b").is_empty() && input.is_waiting());
        assert_eq!(input.flush(), Some(plain(KeyCode::Esc)));
        assert!(input.take(b"\x1b[").is_empty());
        assert_eq!(input.take(b"A"), [plain(KeyCode::Up)]);
        assert!(input.take(b"\x1b").is_empty());
        assert_eq!(input.take(b"[A"), [plain(KeyCode::Up)]);
        assert_eq!(input.take(b"\x1bx"), [key(KeyCode::Char('x'), KeyModifiers::ALT)]);
    }

    #[test]
    fn clicks_and_wheel() {
        let events = InputBuffer::default().take(b"\x1b[<0;10;5M\x1b[<0;10;5m\x1b[<65;300;2M");
        let mouse: Vec<MouseEvent> =
            events.iter().filter_map(|event| event.as_mouse_event()).collect();
        assert_eq!(mouse.len(), 2);
        assert_eq!((mouse[0].column, mouse[0].row), (9, 4));
        assert_eq!(mouse[1].kind, MouseEventKind::ScrollDown);
        assert_eq!(mouse[1].column, 299);
    }

    #[test]
    fn unknown_sequences_are_skipped() {
        assert_eq!(codes(b"\x1b[?1;2cq"), [KeyCode::Char('q')]);
        assert_eq!(codes(b"\x1b]0;title\x07")[..1], [KeyCode::Char(']')]);
        assert_eq!(codes(b"\xff\xfeq"), [KeyCode::Char('q')]);
        // Columns and rows start at 1.
        assert_eq!(InputBuffer::default().take(b"\x1b[<0;0;5M"), []);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_portions(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 0_usize..400) {
            let mut input = InputBuffer::default();
            let cut = cut.min(bytes.len());
            let mut parts = input.take(&bytes[..cut]);
            parts.extend(input.take(&bytes[cut..]));
            prop_assert!(input.pending.len() <= LONGEST);
            prop_assert!(parts.len() <= bytes.len());
        }
    }
}
