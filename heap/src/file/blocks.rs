//! Bytes in blocks, each compressed and with a checksum.
//!
//! A block is its length before compression, its length in the file and the CRC-32 of its bytes
//! (three little-endian u32), then a raw deflate stream (RFC 1951), then zeros, if any. A block of
//! no bytes ends the file.

use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use std::io;
use std::io::{Cursor, Read, Write};

/// Bytes of a block before compression.
const BLOCK: usize = 1 << 20;
/// Bytes of a block that one byte of the file may stand for. Deflate reaches 1,032: with that a hostile file would fill
/// the memory. Smaller blocks are padded with zeros until they keep to this limit; other blocks are refused. Real heaps
/// reach about 4.
const EXPANSION: usize = 32;

/// Compresses the bytes written to it. Bytes after the last whole block reach the file only by
/// [`finish`](Self::finish).
pub(super) struct BlockWriter<W> {
    out: W,
    block: Vec<u8>,
}

impl<W: Write> BlockWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, block: Vec::with_capacity(BLOCK) }
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        self.write_block()?;
        self.out.flush()
    }

    fn write_block(&mut self) -> io::Result<()> {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&self.block)?;
        let mut packed = packed.finish()?;
        let least = self.block.len().div_ceil(EXPANSION);
        packed.resize(packed.len().max(least), 0);
        let mut crc = Crc::new();
        crc.update(&self.block);
        let lengths = [self.block.len(), packed.len()];
        for length in lengths {
            let length = u32::try_from(length).map_err(io::Error::other)?;
            self.out.write_all(&length.to_le_bytes())?;
        }
        self.out.write_all(&crc.sum().to_le_bytes())?;
        self.out.write_all(&packed)?;
        self.block.clear();
        Ok(())
    }
}

impl<W: Write> Write for BlockWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.len() == BLOCK {
            self.write_block()?;
        }
        let room = BLOCK - self.block.len();
        let fitting = bytes.get(..room).unwrap_or(bytes);
        self.block.extend_from_slice(fitting);
        Ok(fitting.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads what [`BlockWriter`] wrote; the block of no bytes is the end. An error of the kind
/// `InvalidData` is a damaged block, `UnexpectedEof` a missing one.
pub(super) struct BlockReader<R> {
    input: R,
    block: Cursor<Vec<u8>>,
    is_at_end: bool,
}

impl<R: Read> BlockReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, block: Cursor::default(), is_at_end: false }
    }

    fn read_block(&mut self) -> io::Result<()> {
        let mut length = || -> io::Result<usize> {
            let mut bytes = [0; 4];
            self.input.read_exact(&mut bytes)?;
            usize::try_from(u32::from_le_bytes(bytes)).map_err(io::Error::other)
        };
        let (unpacked, packed, sum) = (length()?, length()?, length()?);
        let is_possible =
            unpacked <= BLOCK && packed <= BLOCK * 2 && unpacked <= packed * EXPANSION;
        if !is_possible {
            return Err(damaged());
        }
        let mut bytes = vec![0; packed];
        self.input.read_exact(&mut bytes)?;
        let mut block = Vec::with_capacity(unpacked);
        let limit = unpacked as u64 + 1;
        DeflateDecoder::new(bytes.as_slice())
            .take(limit)
            .read_to_end(&mut block)
            .map_err(|_| damaged())?;
        let mut crc = Crc::new();
        crc.update(&block);
        if block.len() != unpacked || crc.sum() as usize != sum {
            return Err(damaged());
        }
        self.is_at_end = block.is_empty();
        self.block = Cursor::new(block);
        Ok(())
    }
}

impl<R: Read> Read for BlockReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.block.read(buffer)? {
                0 if !self.is_at_end && !buffer.is_empty() => self.read_block()?,
                read => return Ok(read),
            }
        }
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a block does not unpack")
}
