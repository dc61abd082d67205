//! Where CPython's memory is read from. Owns how numbers are read, not their meaning.

/// Memory that can be read at an address: another process's, a copy of it, the process's own, or in
/// tests any function with the signature of [`Memory::fill`].
pub trait Memory {
    /// Fills `bytes` from an address on; `None` if any of it cannot be read.
    fn fill(&mut self, address: u64, bytes: &mut [u8]) -> Option<()>;

    /// The bytes at an address.
    #[inline]
    fn array<const SIZE: usize>(&mut self, address: u64) -> Option<[u8; SIZE]> {
        let mut bytes = [0; SIZE];
        self.fill(address, &mut bytes)?;
        Some(bytes)
    }

    /// The 64-bit word at an address.
    #[inline]
    fn word(&mut self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_le_bytes)
    }

    /// The 32-bit number at an address.
    #[inline]
    fn int(&mut self, address: u64) -> Option<i32> {
        self.array(address).map(i32::from_le_bytes)
    }

    /// The byte at an address.
    #[inline]
    fn byte(&mut self, address: u64) -> Option<u8> {
        self.array(address).map(|[byte]| byte)
    }

    /// The 64-bit word at an offset in a structure.
    #[inline]
    fn field(&mut self, structure: u64, offset: impl Into<u64>) -> Option<u64> {
        self.word(structure.wrapping_add(offset.into()))
    }

    /// The address at an offset in a structure; null if it cannot be read: its target could not be read either.
    #[inline]
    fn pointer(&mut self, structure: u64, offset: impl Into<u64>) -> u64 {
        self.field(structure, offset).unwrap_or(0)
    }

    /// The 32-bit number at an offset in a structure.
    #[inline]
    fn int_field(&mut self, structure: u64, offset: impl Into<u64>) -> Option<i32> {
        self.int(structure.wrapping_add(offset.into()))
    }

    /// `count` words from an address on, into `words`; as many as can be read.
    fn words(&mut self, address: u64, count: usize, words: &mut Vec<u64>) {
        words.clear();
        words.extend((0..count as u64).map_while(|index| self.field(address, index * 8)));
    }
}

impl<F> Memory for F
where
    F: FnMut(u64, &mut [u8]) -> Option<()>,
{
    fn fill(&mut self, address: u64, bytes: &mut [u8]) -> Option<()> {
        self(address, bytes)
    }
}
