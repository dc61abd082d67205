//! Parts of a summary's body.
//!
//! Owns their bounds: whatever bytes a file has, the objects of the part that is in memory take 100 MB at
//! most, or 400 times the part's bytes in the file if these are more.

use super::items::StoredItem;
use crate::read::TraceCompletion;
use bitcode::{Decode, Encode};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write as _};

/// Most items of a chunk: of real traces they are 50 kB to 210 kB before they are packed.
pub(super) const CHUNK_ITEMS: usize = 1 << 12;
/// Names of a chunk end it when they have this many bytes.
pub(super) const CHUNK_NAME_BYTES: usize = 1 << 16;
/// Bytes of a chunk before it is packed. `bitcode` uses half a byte for each item and a bit for each number
/// and each element of a list, so that the objects of a chunk take at most some 400 times its bytes.
const CHUNK_BYTES: usize = 1 << 17;
/// A chunk of a single item or name may be larger, up to four times the largest event that is read: the event's names
/// may triple (U+FFFD in place of a byte). It is not packed: no small file stands for it.
const LARGEST_BYTES: usize = 1 << 26;
/// Bytes of a chunk that one byte of the file may stand for. Deflate reaches 1,032, and a hostile file would use that
/// to fill the memory: the writer pads such chunks with zeros. Chunks of real traces reach 5.
const EXPANSION: usize = 32;

/// The maximum size in bytes of a chunk that takes `packed` bytes in the file.
fn longest(packed: usize) -> usize {
    let unpacked = (packed.min(CHUNK_BYTES) * EXPANSION).min(CHUNK_BYTES);
    unpacked.max(packed.min(LARGEST_BYTES))
}

/// Part of a body.
#[derive(Default, Encode, Decode)]
pub(super) struct Chunk {
    /// Names that were not in earlier chunks.
    pub(super) names: Vec<String>,
    pub(super) items: Vec<StoredItem>,
    /// In the last chunk.
    pub(super) end: Option<TraceCompletion>,
}

impl Chunk {
    /// Writes it, or its parts if it is large.
    pub(super) fn write(mut self, body: &mut Vec<u8>) {
        let text = bitcode::encode(&self);
        let is_large = text.len() > CHUNK_BYTES;
        if is_large && let Some(rest) = self.split() {
            self.write(body);
            return rest.write(body);
        }
        let level = if is_large { Compression::none() } else { Compression::default() };
        let mut packed = ZlibEncoder::new(Vec::new(), level);
        // Writing to memory does not fail; if it did, the summary would be refused.
        let packed = packed.write_all(&text).and_then(|()| packed.finish());
        let mut packed = packed.unwrap_or_default();
        packed.resize(packed.len().max(text.len().div_ceil(EXPANSION)), 0);
        body.extend((packed.len() as u64).to_le_bytes());
        body.extend(packed);
    }

    /// Splits off the part that comes after it; `None` if it is a single name or item. Names come
    /// before the items that have them.
    fn split(&mut self) -> Option<Self> {
        let (names, items) = (self.names.len(), self.items.len());
        if names + items <= 1 {
            return None;
        }
        let end = self.end.take();
        let (names, items) = match names {
            0 => (Vec::new(), self.items.split_off(items / 2)),
            _ => {
                let names = self.names.split_off(names.div_ceil(2));
                (names, std::mem::take(&mut self.items))
            }
        };
        Some(Self { names, items, end })
    }

    /// Reads the next one from a body with `left` bytes left.
    ///
    /// # Errors
    /// The problem with the chunk.
    pub(super) fn read(input: &mut impl Read, left: &mut u64) -> Result<Self, &'static str> {
        let packed = Self::packed(input, left)?;
        let longest = longest(packed.len());
        let mut text = Vec::new();
        let mut unpacked = ZlibDecoder::new(packed.as_slice()).take(longest as u64 + 1);
        let read = unpacked.read_to_end(&mut text);
        read.map_err(|_| "a part cannot be unpacked")?;
        if text.len() > longest {
            return Err(LARGE);
        }
        bitcode::decode(&text).map_err(|_| "a part cannot be decoded")
    }

    /// Its bytes in the file, after their number.
    fn packed(input: &mut impl Read, left: &mut u64) -> Result<Vec<u8>, &'static str> {
        const MISSING: &str = "its last part is missing";
        let mut size = [0; size_of::<u64>()];
        *left = left.checked_sub(size.len() as u64).ok_or(MISSING)?;
        input.read_exact(&mut size).map_err(|_| MISSING)?;
        let size = u64::from_le_bytes(size);
        *left = left.checked_sub(size).ok_or(MISSING)?;
        // With the ends of deflate's stored blocks, far fewer than twice as many.
        if size > 2 * LARGEST_BYTES as u64 {
            return Err(LARGE);
        }
        let mut packed = Vec::new();
        let read = input.take(size).read_to_end(&mut packed);
        match read {
            Ok(read) if read as u64 == size => Ok(packed),
            _ => Err(MISSING),
        }
    }
}

const LARGE: &str = "a part is larger than gctrace writes them";

#[cfg(test)]
mod tests;
