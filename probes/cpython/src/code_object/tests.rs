//! The decoder must not panic or allocate without bounds, whatever the memory contains.

use super::CodeObject;
use crate::frames::walk;
use crate::{FrameLayout, decode_unicode};
use proptest::prelude::any;
use proptest::proptest;

fn layouts() -> Vec<FrameLayout> {
    (8..=12).map(|minor| FrameLayout::of_version(minor).unwrap()).collect()
}

/// Memory that repeats `bytes` everywhere except on the first page, which is never mapped.
fn repeated(bytes: &[u8]) -> impl Fn(u64, &mut [u8]) -> Option<()> + '_ {
    move |address, into| {
        if address < 4096 || bytes.is_empty() {
            return None;
        }
        let start = usize::try_from(address % bytes.len() as u64).unwrap();
        let source = bytes.iter().cycle().skip(start);
        into.iter_mut().zip(source).for_each(|(to, from)| *to = *from);
        Some(())
    }
}

/// A string object with the header of 3.12.
fn string(layout: &FrameLayout, width: u8, ascii: bool, length: u64, text: &[u8]) -> Vec<u8> {
    let data = if ascii { layout.unicode_ascii_data } else { layout.unicode_compact_data };
    let mut bytes = vec![0; data as usize];
    let state = u32::from(width) << 2 | 1 << 5 | u32::from(ascii) << 6;
    let put = |bytes: &mut Vec<u8>, at: u32, value: &[u8]| {
        let at = at as usize;
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    put(&mut bytes, layout.unicode_state, &state.to_le_bytes());
    put(&mut bytes, layout.unicode_length, &length.to_le_bytes());
    bytes.extend_from_slice(text);
    bytes
}

#[test]
fn truncated_strings_give_the_available_text() {
    let layout = &layouts()[4];
    let ascii = string(layout, 1, true, 5, b"hello");
    assert_eq!(decode_unicode(&ascii, layout).unwrap(), "hello");
    assert_eq!(decode_unicode(&ascii[..ascii.len() - 2], layout).unwrap(), "hel");
    assert_eq!(decode_unicode(&ascii[..40], layout).unwrap(), "");
    assert_eq!(decode_unicode(&ascii[..35], layout), None);
    let latin = string(layout, 1, false, 3, b"a\xe9b and what comes after");
    assert_eq!(decode_unicode(&latin, layout).unwrap(), "a\u{e9}b");
    let ucs2 = string(layout, 2, false, 2, &[0x22, 0x6f, 0x57, 0x5b]);
    assert_eq!(decode_unicode(&ucs2, layout).unwrap(), "\u{6f22}\u{5b57}");
    assert_eq!(decode_unicode(&ucs2[..ucs2.len() - 1], layout).unwrap(), "\u{6f22}");
    let surrogate = string(layout, 2, false, 1, &[0x80, 0xdc]);
    assert_eq!(decode_unicode(&surrogate, layout).unwrap(), "\u{fffd}");
    let legacy = string(layout, 0, false, 2, b"ab");
    assert_eq!(decode_unicode(&legacy, layout), None);
    let negative = string(layout, 1, true, u64::MAX, b"ab");
    assert_eq!(decode_unicode(&negative, layout), None);
}

#[test]
fn an_address_that_leads_nowhere_is_no_code() {
    for layout in layouts() {
        let mut nothing = |_: u64, _: &mut [u8]| None;
        assert_eq!(CodeObject::read(&mut nothing, 8, &layout), None);
        let mut zeros = |_: u64, into: &mut [u8]| {
            into.fill(0);
            Some(())
        };
        assert_eq!(CodeObject::read(&mut zeros, 1 << 40, &layout), None);
        assert_eq!(CodeObject::from_parts(1, &[], &[], &[], &layout), None);
    }
}

proptest! {
    #[test]
    fn any_memory_gives_an_answer(
        bytes in proptest::collection::vec(any::<u8>(), 0..512),
        address in any::<u64>(),
    ) {
        // The type's name is read first; half of the memories should pass that check.
        let named: Vec<u8> = b"code\0\0\0\0".iter().copied().chain(bytes.iter().copied()).collect();
        for layout in layouts() {
            let _any_answer = decode_unicode(&bytes, &layout);
            let _any_answer = CodeObject::from_parts(0, &bytes, &bytes, &bytes, &layout);
            for memory in [&bytes, &named] {
                let _any_answer = CodeObject::read(&mut repeated(memory), address, &layout);
                let frames = walk(&mut repeated(memory), address, &layout.stack, 64);
                assert!(frames.map_or(0, |frames| frames.len()) <= 64);
            }
        }
    }

    /// The type's name is valid, so that the rest is read too.
    #[test]
    fn garbage_with_the_right_type_gives_an_answer(
        bytes in proptest::collection::vec(any::<u8>(), 256..512),
    ) {
        const CODE: u64 = 1 << 32;
        const TYPE: u64 = 2 << 32;
        const NAME: u64 = 3 << 32;
        for layout in layouts() {
            let rest = repeated(&bytes);
            let mut memory = |address: u64, into: &mut [u8]| {
                let known: &[u8] = if address == CODE + u64::from(layout.object_type) {
                    &TYPE.to_le_bytes()
                } else if address == TYPE + u64::from(layout.type_name) {
                    &NAME.to_le_bytes()
                } else if address == NAME {
                    b"code\0"
                } else {
                    return rest(address, into);
                };
                into.copy_from_slice(known);
                Some(())
            };
            let _any_answer = CodeObject::read(&mut memory, CODE, &layout);
        }
    }
}
