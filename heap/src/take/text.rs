//! Texts in memory: `str` objects.

use crate::take::image::Image;
use crate::take::layout::{Layout, TYPE, flags, type_object};
use gctrace_probes::decode_unicode;

/// The `str` at an address, at most `longest` bytes of it; `None` if there is none.
pub(crate) fn read_text(
    image: &mut Image,
    layout: &Layout,
    address: u64,
    longest: usize,
) -> Option<String> {
    (address != 0 && address.is_multiple_of(8)).then_some(())?;
    let kind = image.word(address.checked_add(TYPE)?)?;
    let bits = image.word(kind.checked_add(type_object::FLAGS)?)?;
    (bits & flags::UNICODE != 0).then_some(())?;
    let frame = &layout.frame;
    let length = image.word(address.checked_add(frame.unicode_length.into())?)?;
    let length = usize::try_from(length).ok()?;
    let state = image.int(address.checked_add(frame.unicode_state.into())?)?;
    let state = state.cast_unsigned() >> frame.unicode_state_shift;
    // Not more than the text: what follows may not be mapped.
    let width = (state & 7) as usize;
    let data = match state & 16 {
        0 => frame.unicode_compact_data,
        _ => frame.unicode_ascii_data,
    };
    let size = length.saturating_mul(width).min(longest);
    let mut bytes = vec![0; size.saturating_add(data as usize)];
    image.fill(address, &mut bytes)?;
    decode_unicode(&bytes, frame)
}
