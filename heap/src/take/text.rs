//! Texts and numbers in memory: `str` and `int` objects.

use crate::take::image::Image;
use crate::take::layout::{Layout, SIZE, TYPE, flags, type_object};
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

/// The value of the `int` at an address, if it is one of at most one digit (Include/longintrepr.h).
pub(crate) fn read_int(image: &mut Image, layout: &Layout, address: u64) -> Option<i64> {
    let kind = image.word(address.checked_add(TYPE)?)?;
    let bits = image.word(kind.checked_add(type_object::FLAGS)?)?;
    (bits & flags::LONG != 0).then_some(())?;
    let size = image.word(address.checked_add(SIZE)?)?;
    let digit = i64::from(image.int(address.checked_add(24)?)?);
    if layout.minor >= 12 {
        // lv_tag: the number of digits from bit 3 on; 0 is positive, 1 zero, 2 negative.
        return match (size >> 3, size & 3) {
            (0 | 1, 1) => Some(0),
            (1, 0) => Some(digit),
            (1, 2) => Some(-digit),
            _ => None,
        };
    }
    match size.cast_signed() {
        0 => Some(0),
        1 => Some(digit),
        -1 => Some(-digit),
        _ => None,
    }
}
