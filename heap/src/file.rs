//! The file `.gcheap`: a heap as bytes, and back (docs/heap-format.md).
//!
//! Owns the order of the sections and their fields; `file/blocks.rs` has compression and checksums,
//! `file/numbers.rs` numbers and texts.

mod blocks;
mod numbers;

use super::reach::InvalidHeap;
use super::{HeapEdge, HeapEdgeName, HeapGraph, HeapHeader, HeapNode, HeapPlace, HeapRoot};
use blocks::{BlockReader, BlockWriter};
use gctrace_event::ObjectKind;
use numbers::{NumberReader, write_number, write_text};
use std::io;
use std::io::{Read, Write};

/// First bytes of every file; what follows is the version.
pub const MAGIC: [u8; 8] = *b"\x89gcheap\n";
/// Version of the format: a file with another one is refused.
const VERSION: u32 = 1;

/// Bits 0 to 2 of a node's flags: its place.
const PLACE: u8 = 0b111;
const FROZEN: u8 = 3;
const TRACKED: u8 = 4;
const UNTRACKED: u8 = 5;
/// A label, a reference count, a size follows.
const HAS_LABEL: u8 = 1 << 3;
const HAS_REFERENCES: u8 = 1 << 4;
const HAS_BYTES: u8 = 1 << 5;
/// The address is below the previous node's.
const IS_BELOW: u8 = 1 << 6;

/// Objects are aligned to 16 bytes (`ALIGNMENT` of CPython's `Objects/obmalloc.c`), so the last four
/// bits of the difference between two addresses are usually 0: they come last.
const ALIGNMENT_BITS: u32 = 4;

/// Why a file could not be read as a heap.
#[derive(Debug, thiserror::Error)]
pub enum HeapFileError {
    /// Something else.
    #[error("not a heap: a .gcheap file begins with other bytes")]
    NotAHeap,
    /// Written by a gctrace with another format.
    #[error(
        "written in version {0} of the heap format; this gctrace reads version {VERSION}. Read it \
         with the gctrace that wrote it"
    )]
    Version(u32),
    /// Shorter than it was written.
    #[error("incomplete: it ends in the middle. Take the heap again: gctrace heap -p PID -o FILE")]
    Incomplete,
    /// Bytes that no gctrace wrote.
    #[error("damaged: {0}. Take the heap again: gctrace heap -p PID -o FILE")]
    Damaged(&'static str),
    /// A read failed.
    #[error("cannot be read: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for HeapFileError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Incomplete,
            io::ErrorKind::InvalidData => Self::Damaged("a block does not unpack"),
            _ => Self::Io(error),
        }
    }
}

/// The part of a file that is JSON.
#[derive(serde::Serialize)]
struct Described<'a> {
    header: &'a HeapHeader,
    kinds: &'a [ObjectKind],
}

/// [`Described`], when read.
#[derive(serde::Deserialize)]
struct DescribedOwned {
    header: HeapHeader,
    kinds: Vec<ObjectKind>,
}

impl HeapGraph {
    /// Writes the heap as a `.gcheap` file, in one pass and with about 2 MB of buffers.
    ///
    /// # Errors
    /// A write failed; or `InvalidInput`: an index is out of range, edges are not ordered by `from`,
    /// a kind is missing, or a generation is above 2.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        self.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut out = BlockWriter::new(out);
        let described =
            serde_json::to_vec(&Described { header: &self.header, kinds: &self.kinds })?;
        write_text(&mut out, &described)?;
        write_number(&mut out, self.texts.len() as u64)?;
        for text in &self.texts {
            write_text(&mut out, text.as_bytes())?;
        }
        write_number(&mut out, self.nodes.len() as u64)?;
        let mut address = 0;
        for node in &self.nodes {
            write_node(&mut out, node, address)?;
            address = node.address;
        }
        write_number(&mut out, self.edges.len() as u64)?;
        let mut from = 0;
        for edge in &self.edges {
            write_edge(&mut out, edge, from)?;
            from = edge.from;
        }
        write_number(&mut out, self.roots.len() as u64)?;
        for root in &self.roots {
            write_number(&mut out, root.node.into())?;
            write_number(&mut out, root.name.into())?;
        }
        out.finish()
    }

    /// Reads a `.gcheap` file. Whatever the bytes, the memory for it is at most about 1,000 times
    /// their number. The pid of the kinds is the header's.
    ///
    /// # Errors
    /// The bytes are not a heap of this version, are incomplete or damaged, or a read failed.
    pub fn read(mut input: impl Read) -> Result<Self, HeapFileError> {
        let mut magic = [0; MAGIC.len()];
        match input.read_exact(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            _ => return Err(HeapFileError::NotAHeap),
        }
        let mut version = [0; 4];
        input.read_exact(&mut version)?;
        match u32::from_le_bytes(version) {
            VERSION => {}
            other => return Err(HeapFileError::Version(other)),
        }
        let mut input = NumberReader::new(BlockReader::new(input));
        let graph = Self::read_sections(&mut input)?;
        input.expect_end()?;
        graph.check().map_err(|InvalidHeap(what)| HeapFileError::Damaged(what))?;
        Ok(graph)
    }

    fn read_sections(input: &mut NumberReader<impl Read>) -> Result<Self, HeapFileError> {
        let described = input.bytes()?;
        let described: DescribedOwned = serde_json::from_slice(&described)
            .map_err(|_| HeapFileError::Damaged("its header is not as expected"))?;
        let mut graph =
            Self { header: described.header, kinds: described.kinds, ..Self::default() };
        for kind in &mut graph.kinds {
            kind.pid = graph.header.pid;
        }
        // Counts only end the loops: vectors grow with the data really read.
        for _ in 0..input.number()? {
            let text = String::from_utf8(input.bytes()?)
                .map_err(|_| HeapFileError::Damaged("a text is not UTF-8"))?;
            graph.texts.push(text);
        }
        let mut address = 0;
        for _ in 0..input.number()? {
            let node = read_node(input, address)?;
            address = node.address;
            graph.nodes.push(node);
        }
        let mut from = 0;
        for _ in 0..input.number()? {
            let edge = read_edge(input, from)?;
            from = edge.from;
            graph.edges.push(edge);
        }
        for _ in 0..input.number()? {
            graph.roots.push(HeapRoot { node: input.small()?, name: input.small()? });
        }
        Ok(graph)
    }
}

fn write_node(out: &mut impl Write, node: &HeapNode, before: u64) -> io::Result<()> {
    let mut flags = match node.place {
        HeapPlace::Generation(generation) => generation,
        HeapPlace::Frozen => FROZEN,
        HeapPlace::Tracked => TRACKED,
        HeapPlace::Untracked => UNTRACKED,
    };
    for (is_there, flag) in [
        (node.label.is_some(), HAS_LABEL),
        (node.references.is_some(), HAS_REFERENCES),
        (node.bytes.is_some(), HAS_BYTES),
        (node.address < before, IS_BELOW),
    ] {
        flags |= if is_there { flag } else { 0 };
    }
    out.write_all(&[flags])?;
    let distance = node.address.abs_diff(before);
    write_number(out, distance.rotate_right(ALIGNMENT_BITS))?;
    write_number(out, node.kind.into())?;
    let fields = [node.label.map(u64::from), node.references.map(u64::from), node.bytes];
    for field in fields.into_iter().flatten() {
        write_number(out, field)?;
    }
    Ok(())
}

fn read_node(input: &mut NumberReader<impl Read>, before: u64) -> Result<HeapNode, HeapFileError> {
    let flags = input.byte()?;
    let place = match flags & PLACE {
        FROZEN => HeapPlace::Frozen,
        TRACKED => HeapPlace::Tracked,
        UNTRACKED => HeapPlace::Untracked,
        generation => HeapPlace::Generation(generation),
    };
    let has = |flag| flags & flag != 0;
    let distance = input.number()?.rotate_left(ALIGNMENT_BITS);
    Ok(HeapNode {
        address: if has(IS_BELOW) {
            before.wrapping_sub(distance)
        } else {
            before.wrapping_add(distance)
        },
        kind: input.small()?,
        label: has(HAS_LABEL).then(|| input.small()).transpose()?,
        references: has(HAS_REFERENCES).then(|| input.small()).transpose()?,
        bytes: has(HAS_BYTES).then(|| input.number()).transpose()?,
        place,
    })
}

fn write_edge(out: &mut impl Write, edge: &HeapEdge, before: u32) -> io::Result<()> {
    write_number(out, edge.from.saturating_sub(before).into())?;
    // Most objects refer to objects of their own age: twice the distance, odd if the object is older.
    let distance = u64::from(edge.to.abs_diff(edge.from));
    write_number(out, distance << 1 | u64::from(edge.to < edge.from))?;
    let name = match edge.name {
        HeapEdgeName::Unnamed => 0,
        HeapEdgeName::Item(item) => 1 + (u64::from(item) << 1),
        HeapEdgeName::Text(text) => 2 + (u64::from(text) << 1),
    };
    write_number(out, name)
}

fn read_edge(input: &mut NumberReader<impl Read>, before: u32) -> Result<HeapEdge, HeapFileError> {
    const OUTSIDE: HeapFileError = HeapFileError::Damaged("an edge leads nowhere");
    let from = before.checked_add(input.small()?).ok_or(OUTSIDE)?;
    let distance = input.number()?;
    let steps = u32::try_from(distance >> 1).map_err(|_| OUTSIDE)?;
    let to = match distance & 1 {
        0 => from.checked_add(steps),
        _ => from.checked_sub(steps),
    };
    let small = |number: u64| {
        u32::try_from(number >> 1).map_err(|_| HeapFileError::Damaged("the name of an edge"))
    };
    let name = match input.number()? {
        0 => HeapEdgeName::Unnamed,
        item if item & 1 == 1 => HeapEdgeName::Item(small(item)?),
        text => HeapEdgeName::Text(small(text - 2)?),
    };
    Ok(HeapEdge { from, to: to.ok_or(OUTSIDE)?, name })
}

#[cfg(test)]
mod tests;
