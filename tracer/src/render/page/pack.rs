//! Numbers for the script of a page: varints (LEB128), compressed by gzip, in base64.
//!
//! Owns the form that `unpack` in `page.js` reads.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

/// The 64 digits of base64 (RFC 4648, section 4).
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The numbers, packed.
pub(super) fn pack(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut bytes = Vec::new();
    for mut number in numbers {
        while number >= 0x80 {
            bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        bytes.push(number.to_le_bytes()[0]);
    }
    // Writing to memory does not fail.
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let _ = packed.write_all(&bytes);
    base64(&packed.finish().unwrap_or_default())
}

/// A number that may be unknown: one more, so that 0 is unknown.
pub(super) fn or_zero(known: Option<u64>) -> u64 {
    known.map_or(0, |known| known.saturating_add(1))
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let known = digit <= three.len();
            let at = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if known { char::from(DIGITS[at]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use proptest::prelude::*;
    use std::io::Read as _;

    /// As `page.js` does it, by the definitions of the formats.
    fn unpacked(text: &str) -> Vec<u64> {
        let mut bits = String::new();
        for digit in text.chars().filter(|digit| *digit != '=') {
            let value = DIGITS.iter().position(|known| char::from(*known) == digit);
            bits.push_str(&format!("{:06b}", value.expect("a digit")));
        }
        let whole = bits.len() / 8 * 8;
        let bytes: Vec<u8> = (0..whole)
            .step_by(8)
            .map(|at| u8::from_str_radix(&bits[at..at + 8], 2).expect("bits"))
            .collect();
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

    /// RFC 4648, section 10.
    #[test]
    fn base64_is_the_standard_one() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
