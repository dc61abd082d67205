//! Protocol buffers, as far as a trace for Perfetto needs them.
//!
//! Owns the wire format: <https://protobuf.dev/programming-guides/encoding/>.

use gctrace_event::leb128;

/// Wire types, the low 3 bits of a field's key.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

/// The fields of one message.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds an unsigned number, an enumeration or a flag.
    pub(super) fn number(mut self, field: u32, value: u64) -> Self {
        self.key(field, VARINT);
        self.0.extend(leb128::encode(value));
        self
    }

    /// The same where it is known.
    pub(super) fn maybe(self, field: u32, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(field, value),
            None => self,
        }
    }

    /// Adds a number of 8 bytes.
    pub(super) fn fixed(mut self, field: u32, value: u64) -> Self {
        self.key(field, FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a text.
    pub(super) fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// Adds a message.
    pub(super) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// The bytes written so far.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// Whether it has no fields.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.key(field, LENGTH);
        self.0.extend(leb128::encode(bytes.len() as u64));
        self.0.extend(bytes);
        self
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.0.extend(leb128::encode(u64::from(field << 3 | wire_type)));
    }
}
