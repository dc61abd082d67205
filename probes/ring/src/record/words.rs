//! Several numbers in one word.

/// The first word of a record: its kind, a byte of payload, a number.
pub(super) fn first(kind: u8, byte: u8, number: u32) -> u64 {
    u64::from(kind) | u64::from(byte) << 8 | u64::from(number) << 32
}

pub(super) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

pub(super) fn low(word: u64) -> u32 {
    word as u32
}

pub(super) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
