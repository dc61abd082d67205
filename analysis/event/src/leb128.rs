//! Numbers in as few bytes as they need: unsigned LEB128 (DWARF 5, section 7.6), 7 bits a byte, lowest
//! first, the top bit set in all but the last.

/// Longest encoding of 64 bits.
const LONGEST: u32 = 10;

/// The bytes of a number.
pub fn encode(number: u64) -> impl Iterator<Item = u8> {
    let mut rest = Some(number);
    std::iter::from_fn(move || {
        let number = rest?;
        let [low, ..] = number.to_le_bytes();
        rest = if number > 0x7f { Some(number >> 7) } else { None };
        Some(if rest.is_some() { low | 0x80 } else { low })
    })
}

/// The number in the bytes that `byte` returns, one by one; `None` if it has more than 64 bits.
///
/// # Errors
/// Errors of `byte`.
pub fn decode<E>(mut byte: impl FnMut() -> Result<u8, E>) -> Result<Option<u64>, E> {
    let mut number = 0;
    for shift in (0..LONGEST).map(|position| position * 7) {
        let byte = byte()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(bytes: &[u8]) -> Result<Option<u64>, ()> {
        let mut bytes = bytes.iter();
        decode(|| bytes.next().copied().ok_or(()))
    }

    proptest! {
        #[test]
        fn numbers_come_back(number in any::<u64>(), bits in 0_u32..64) {
            let number = number >> bits;
            let bytes: Vec<u8> = encode(number).collect();
            prop_assert_eq!(decoded(&bytes), Ok(Some(number)));
            prop_assert_eq!(decoded(&bytes[..bytes.len() - 1]), Err(()));
        }
    }

    /// The example of DWARF 5, table 7.7, and the edge of 64 bits.
    #[test]
    fn as_in_the_standard() {
        assert_eq!(encode(12857).collect::<Vec<u8>>(), [0xb9, 0x64]);
        assert_eq!(encode(0).collect::<Vec<u8>>(), [0]);
        assert_eq!(decoded(&[[0xff; 9].as_slice(), &[1]].concat()), Ok(Some(u64::MAX)));
        assert_eq!(decoded(&[[0xff; 9].as_slice(), &[2]].concat()), Ok(None));
        assert_eq!(decoded(&[0x80; 11]), Ok(None));
    }
}
