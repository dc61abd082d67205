//! Texts and numbers in memory: `str` and `int` objects.

use crate::take::image::Image;
use crate::take::layout::{Layout, SIZE, TYPE, flags, type_object};
use gctrace_cpython::{Memory as _, text};

/// The `str` at an address, at most `longest` bytes of it; `None` if there is none.
pub(crate) fn read_text(
    image: &mut Image,
    layout: &Layout,
    address: u64,
    longest: usize,
) -> Option<String> {
    (address != 0 && address.is_multiple_of(8)).then_some(())?;
    let kind = image.field(address, TYPE)?;
    let bits = image.field(kind, type_object::FLAGS)?;
    (bits & flags::UNICODE != 0).then_some(())?;
    text(image, address, longest, &layout.frame)
}

/// The value of the `int` at an address, if it is one of at most one digit (Include/longintrepr.h).
pub(crate) fn read_int(image: &mut Image, layout: &Layout, address: u64) -> Option<i64> {
    let kind = image.field(address, TYPE)?;
    let bits = image.field(kind, type_object::FLAGS)?;
    (bits & flags::LONG != 0).then_some(())?;
    let size = image.field(address, SIZE)?;
    let digit = i64::from(image.int_field(address, 24_u64)?);
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
