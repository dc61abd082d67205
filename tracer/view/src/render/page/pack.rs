//! Numbers for the script of a page: varints (LEB128), compressed by gzip, in base64.
//!
//! Owns the form that `unpack` in `page.js` reads.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use gctrace_event::leb128;
use std::io::Write as _;

/// The numbers, packed.
pub(super) fn pack(numbers: impl IntoIterator<Item = u64>) -> String {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(leb128::encode).collect();
    // Writing to memory does not fail.
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let _ = packed.write_all(&bytes);
    BASE64_STANDARD.encode(packed.finish().unwrap_or_default())
}

/// A number that may be unknown: one more, so that 0 is unknown.
pub(super) fn or_zero(known: Option<u64>) -> u64 {
    if let Some(known) = known { known.saturating_add(1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use proptest::prelude::*;
    use std::io::Read as _;

    /// As `page.js` does it, by the definitions of the formats.
    fn unpacked(text: &str) -> Vec<u64> {
        let bytes = BASE64_STANDARD.decode(text).expect("base64");
        let mut plain = Vec::new();
        GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).expect("gzip");
        let mut numbers = Vec::new();
        let (mut number, mut shift) = (0u64, 0);
        for byte in plain {
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                numbers.push(number);
                (number, shift) = (0, 0);
            }
        }
        numbers
    }

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec(any::<u64>(), 0..200)) {
            prop_assert_eq!(unpacked(&pack(numbers.iter().copied())), numbers);
        }
    }
}
