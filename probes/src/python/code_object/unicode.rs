//! Decodes `str` objects: bytes in, text out.

use gctrace_cpython::FrameLayout;

/// The text of a `str` object from its first `bytes`, header included.
///
/// If `bytes` end before the text does, the result is truncated. Lone surrogates, by which CPython
/// represents undecodable bytes of file names, become U+FFFD. `None`: `bytes` contain no whole
/// header, or not a compact string's (code objects have no other).
#[must_use]
pub fn decode_unicode(bytes: &[u8], layout: &FrameLayout) -> Option<String> {
    let header = StringHeader::read(bytes, layout)?;
    let text = bytes.get(header.data..).unwrap_or_default();
    let text = text.get(..header.bytes()).unwrap_or(text);
    let points = text.chunks_exact(header.width).map(|unit| {
        let mut point = [0; 4];
        for (to, from) in point.iter_mut().zip(unit) {
            *to = *from;
        }
        char::from_u32(u32::from_le_bytes(point)).unwrap_or(char::REPLACEMENT_CHARACTER)
    });
    Some(points.collect())
}

/// The fields in the header of a compact string.
pub(super) struct StringHeader {
    /// Number of code points.
    length: usize,
    /// Bytes per code point: 1, 2 or 4.
    width: usize,
    /// Offset of the text from the object's start, in bytes.
    pub(super) data: usize,
}

impl StringHeader {
    /// Number of bytes that cover the header of any string.
    pub(super) fn size(layout: &FrameLayout) -> usize {
        let fields = [
            layout.unicode_compact_data,
            layout.unicode_length.saturating_add(8),
            layout.unicode_state.saturating_add(4),
        ];
        fields.into_iter().fold(0, u32::max) as usize
    }

    pub(super) fn read(bytes: &[u8], layout: &FrameLayout) -> Option<Self> {
        let state = u32::from_le_bytes(array(bytes, layout.unicode_state)?);
        let state = state.checked_shr(layout.unicode_state_shift)?;
        let (width, compact, ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
        (compact && matches!(width, 1 | 2 | 4)).then_some(())?;
        let length = i64::from_le_bytes(array(bytes, layout.unicode_length)?);
        let data = if ascii { layout.unicode_ascii_data } else { layout.unicode_compact_data };
        Some(Self {
            length: usize::try_from(length).ok()?,
            width: width as usize,
            data: data as usize,
        })
    }

    /// Length of the text in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.length.saturating_mul(self.width)
    }
}

fn array<const SIZE: usize>(bytes: &[u8], offset: u32) -> Option<[u8; SIZE]> {
    let start = offset as usize;
    bytes.get(start..start.checked_add(SIZE)?)?.try_into().ok()
}
