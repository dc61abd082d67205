//! A hash for addresses: one multiplication, as nothing hostile chooses the keys' distribution for
//! long (a bad one only costs time).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<AddressHasher>>;
pub(crate) type FastSet<K> = HashSet<K, BuildHasherDefault<AddressHasher>>;

/// Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    /// hashbrown takes the table's position from the low bits, its tag from the high ones.
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
