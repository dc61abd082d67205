//! Reads `str` objects.

use crate::FrameLayout;
use crate::memory::Memory;

/// The text of the `str` object at an address, at most `longest` bytes of it.
///
/// Lone surrogates become U+FFFD; CPython represents undecodable bytes of file names by them. `None`: it cannot be
/// read, or is not a compact string (code objects have no other).
pub fn text(
    memory: &mut impl Memory,
    address: u64,
    longest: usize,
    layout: &FrameLayout,
) -> Option<String> {
    let header = StringHeader::read(memory, address, layout)?;
    // Not more than the text: what follows may not be mapped.
    let mut bytes = vec![0; header.bytes().min(longest)];
    memory.fill(address.wrapping_add(header.data as u64), &mut bytes)?;
    Some(header.decode(&bytes))
}

/// The text of a `str` object from its first `bytes`, header included; as [`text`], but truncated if
/// `bytes` end before the text does. `None`: `bytes` contain no whole header.
pub fn decode_unicode(bytes: &[u8], layout: &FrameLayout) -> Option<String> {
    let header = StringHeader::read(&mut Copied(bytes), 0, layout)?;
    Some(header.decode(bytes.get(header.data..).unwrap_or_default()))
}

/// Copied memory, from address 0.
struct Copied<'bytes>(&'bytes [u8]);

impl Memory for Copied<'_> {
    fn fill(&mut self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let rest = self.0.get(usize::try_from(address).ok()?..)?;
        bytes.copy_from_slice(rest.get(..bytes.len())?);
        Some(())
    }
}

/// The fields in the header of a compact string.
struct StringHeader {
    /// Number of code points.
    length: usize,
    /// Bytes per code point: 1, 2 or 4.
    width: usize,
    /// Offset of the text from the object's start, in bytes.
    data: usize,
}

impl StringHeader {
    fn read(memory: &mut impl Memory, address: u64, layout: &FrameLayout) -> Option<Self> {
        let state = memory.int_field(address, layout.unicode_state)?.cast_unsigned();
        let state = state.checked_shr(layout.unicode_state_shift)?;
        let (width, compact, ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
        if !compact || !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let length = memory.field(address, layout.unicode_length)?.cast_signed();
        let data = if ascii { layout.unicode_ascii_data } else { layout.unicode_compact_data };
        Some(Self {
            length: usize::try_from(length).ok()?,
            width: width as usize,
            data: data as usize,
        })
    }

    /// Length of the text in bytes.
    fn bytes(&self) -> usize {
        self.length.saturating_mul(self.width)
    }

    fn decode(&self, text: &[u8]) -> String {
        let text = text.get(..self.bytes()).unwrap_or(text);
        let points = text.chunks_exact(self.width).map(|unit| {
            let mut point = [0; 4];
            for (to, from) in point.iter_mut().zip(unit) {
                *to = *from;
            }
            char::from_u32(u32::from_le_bytes(point)).unwrap_or(char::REPLACEMENT_CHARACTER)
        });
        points.collect()
    }
}
