//! A copy of the memory that a heap is read from.
//!
//! Made of blocks of 64 KiB. The first pass over a running program copies each block that it reads from. Tensors and
//! other data are never copied: no object's layout leads into them. While the program is stopped, the same blocks are
//! copied again ([`Image::refresh`]). Owns how bytes are fetched and found, not their meaning.

use crate::take::limits::{Exceeded, Limits, MOST_WORDS};
use crate::take::regions::Regions;
use crate::take::{FastMap, FastSet};
use gctrace_cpython::Memory;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;
use std::time::Instant;

/// Bytes in a block: four pools of 3.8, a sixteenth of an arena of 3.10 and later.
pub(crate) const BLOCK: u64 = 1 << SHIFT;
const SHIFT: u32 = 16;

/// Blocks that one call of `process_vm_readv` copies, in about 2 ms; the kernel takes up to 1024 ranges
/// (IOV_MAX).
const BATCH: usize = 64;

/// Bytes that may be read between two looks at the clock and at the limits: some 10 us.
const FUEL: u64 = 1 << 16;
/// Bytes charged for a check whether a block exists.
const SIZE_OF_LOOK: u64 = 64;

/// Most blocks of one table: of the largest that is read ([`MOST_WORDS`]).
const MOST_COVERED: u64 = MOST_WORDS * 8 / BLOCK;

/// Where an image takes blocks from that it does not have.
#[derive(Debug)]
enum BlockSource {
    /// From the process.
    Process { pid: Pid, regions: Regions },
    /// From nowhere: missing blocks of these regions are noted.
    Closed(Regions),
}

/// Copied memory.
#[derive(Debug)]
pub(crate) struct Image {
    blocks: Vec<(u64, Box<[u8]>)>,
    /// Number of an address's block (address >> SHIFT) -> position in `blocks`.
    positions: FastMap<u64, u32>,
    /// The last block used: its number and position.
    last: (u64, u32),
    source: BlockSource,
    missing: FastSet<u64>,
    limits: Limits,
    /// Until when the process may be read: while it is stopped.
    deadline: Option<Instant>,
    /// Bytes that may be read before the limits are looked at, and after that.
    fuel: u64,
    reserve: u64,
    exceeded: Option<Exceeded>,
}

impl Image {
    /// An empty image; it copies the blocks that are read, while the process runs.
    pub(crate) fn of_process(pid: u32, regions: Regions, limits: Limits) -> Self {
        let pid = Pid::from_raw(pid.cast_signed());
        Self::new(BlockSource::Process { pid, regions }, limits)
    }

    /// The limit that was reached in this pass: from then on nothing can be read.
    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded
    }

    /// Its limits.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Begins a pass: as much may be read again, until the deadline.
    pub(crate) fn refill(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
        self.exceeded = None;
        (self.fuel, self.reserve) = (0, self.limits.read);
    }

    /// Counts bytes that are about to be read; `None` if that is too much, or too late.
    fn spend(&mut self, bytes: u64) -> Option<()> {
        match self.fuel.checked_sub(bytes) {
            Some(left) => self.fuel = left,
            None => self.refuel(bytes)?,
        }
        Some(())
    }

    #[cold]
    fn refuel(&mut self, bytes: u64) -> Option<()> {
        let left = self.reserve.checked_sub(FUEL + bytes);
        match left.filter(|_| self.exceeded.is_none()) {
            Some(_) if self.is_late() => self.give_up(Exceeded::Time),
            Some(left) => {
                (self.fuel, self.reserve) = (FUEL, left);
                Some(())
            }
            None => self.give_up(Exceeded::Read),
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    /// Nothing is there any more, for the reason that came first.
    pub(crate) fn give_up(&mut self, why: Exceeded) -> Option<()> {
        self.exceeded.get_or_insert(why);
        (self.fuel, self.last) = (0, (u64::MAX, 0));
        None
    }

    fn new(source: BlockSource, limits: Limits) -> Self {
        Self {
            blocks: Vec::new(),
            positions: FastMap::default(),
            last: (u64::MAX, 0),
            source,
            missing: FastSet::default(),
            limits,
            deadline: None,
            fuel: 0,
            reserve: limits.read,
            exceeded: None,
        }
    }

    /// An image of these bytes, from an address divisible by [`BLOCK`].
    #[cfg(test)]
    pub(crate) fn of_bytes(start: u64, bytes: &[u8]) -> Self {
        let mut image = Self::new(BlockSource::Closed(Regions::default()), Limits::default());
        for (index, part) in bytes.chunks(BLOCK as usize).enumerate() {
            let mut block = part.to_vec();
            block.resize(BLOCK as usize, 0);
            image.insert((start >> SHIFT) + index as u64, block.into());
        }
        image
    }

    /// Changes a word somewhere: to anything, or to another one of the image.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, random: u64) {
        let count = self.blocks.len() as u64;
        let words = BLOCK / 8;
        let (to, from) = (random % (count * words), random.rotate_left(29) % (count * words));
        let value = match random >> 62 {
            0 => random,
            1 => random >> 56,
            _ => {
                let (number, block) = &self.blocks[(from / words) as usize];
                let word = (from % words * 8) as usize;
                let copied = block[word..word + 8].try_into().expect("a word");
                match random >> 61 & 1 {
                    0 => u64::from_le_bytes(copied),
                    _ => (number << SHIFT) + word as u64,
                }
            }
        };
        let word = (to % words * 8) as usize;
        let block = &mut self.blocks[(to / words) as usize].1;
        block[word..word + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Forgets all blocks.
    pub(crate) fn clear(&mut self) {
        (self.blocks, self.positions, self.last) = (Vec::new(), FastMap::default(), (u64::MAX, 0));
    }

    /// From now on nothing more is copied.
    pub(crate) fn close(&mut self) {
        self.refill(None);
        if let BlockSource::Process { regions, .. } = &self.source {
            self.source = BlockSource::Closed(regions.clone());
        }
        self.missing.clear();
    }

    /// Number of blocks that were needed after [`Image::close`] and are not there.
    pub(crate) fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Bytes that are copied.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the block of an address was copied after the first `known` ones.
    pub(crate) fn is_in_later_block(&self, address: u64, known: usize) -> bool {
        let position = self.positions.get(&(address >> SHIFT));
        position.is_some_and(|position| *position as usize >= known)
    }

    /// Copies the blocks of these bytes, at most [`MOST_COVERED`], unless it has them.
    pub(crate) fn cover(&mut self, address: u64, bytes: u64) {
        let first = address >> SHIFT;
        let last = address.saturating_add(bytes.saturating_sub(1)) >> SHIFT;
        if bytes == 0 {
            return;
        }
        for number in first..=last.min(first + MOST_COVERED) {
            if self.spend(SIZE_OF_LOOK).is_none() {
                return;
            }
            if !self.positions.contains_key(&number) {
                let _absent = self.fetch(number);
            }
        }
    }

    /// Opens it again, for the process as it is mapped now, until a deadline; adds the blocks that were
    /// missing.
    pub(crate) fn reopen(&mut self, pid: u32, regions: Regions, deadline: Option<Instant>) {
        self.refill(deadline);
        let pid = Pid::from_raw(pid.cast_signed());
        self.source = BlockSource::Process { pid, regions };
        let missing: Vec<u64> = self.missing.drain().collect();
        for number in missing {
            let _absent = self.fetch(number);
        }
    }

    /// Copies all blocks again.
    pub(crate) fn refresh(&mut self) {
        let BlockSource::Process { pid, regions } = &self.source else {
            return;
        };
        let mut order: Vec<&mut (u64, Box<[u8]>)> = self.blocks.iter_mut().collect();
        order.sort_unstable_by_key(|block| block.0);
        for batch in order.chunks_mut(BATCH) {
            if self.deadline.is_some_and(|end| Instant::now() >= end) {
                let _late = self.give_up(Exceeded::Time);
                return;
            }
            let whole = read_batch(*pid, regions, batch);
            if !whole {
                for one in batch.iter_mut() {
                    if !read_batch(*pid, regions, std::slice::from_mut(one)) {
                        // Unmapped meanwhile.
                        one.1.fill(0);
                    }
                }
            }
        }
    }

    fn insert(&mut self, number: u64, block: Box<[u8]>) -> Option<u32> {
        let position = u32::try_from(self.blocks.len()).ok()?;
        if self.blocks.try_reserve(1).is_err() || self.positions.try_reserve(1).is_err() {
            self.give_up(Exceeded::Memory)?;
        }
        self.blocks.push((number, block));
        self.positions.insert(number, position);
        Some(position)
    }

    /// Copies a block from the process.
    fn fetch(&mut self, number: u64) -> Option<u32> {
        if let BlockSource::Closed(regions) = &self.source {
            let start = number << SHIFT;
            let mut parts = regions.within(start, start.saturating_add(BLOCK));
            if parts.next().is_some() {
                self.missing.insert(number);
            }
            return None;
        }
        if self.missing.contains(&number) {
            return None;
        }
        if self.bytes() + BLOCK > self.limits.copied {
            self.give_up(Exceeded::Copied(self.limits.copied))?;
        }
        if self.is_late() {
            self.give_up(Exceeded::Time)?;
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(BLOCK as usize).is_err() {
            self.give_up(Exceeded::Memory)?;
        }
        bytes.resize(BLOCK as usize, 0);
        let mut block = (number, bytes.into_boxed_slice());
        let BlockSource::Process { pid, regions } = &self.source else {
            return None;
        };
        if !read_batch(*pid, regions, &mut [&mut block]) {
            // Not asked for again in this pass.
            self.missing.insert(number);
            return None;
        }
        self.insert(number, block.1)
    }

    fn block(&mut self, number: u64) -> Option<&[u8]> {
        if self.last.0 != number {
            let position = match self.positions.get(&number) {
                Some(position) => *position,
                None => self.fetch(number)?,
            };
            self.last = (number, position);
        }
        Some(&self.blocks.get(self.last.1 as usize)?.1)
    }

    /// The C string at an address, at most `longest` bytes of it.
    pub(crate) fn c_string(&mut self, address: u64, longest: usize) -> Option<String> {
        let mut text = Vec::new();
        for index in 0..longest as u64 {
            match self.byte(address.checked_add(index)?)? {
                0 => break,
                byte => text.push(byte),
            }
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Memory for Image {
    fn array<const SIZE: usize>(&mut self, address: u64) -> Option<[u8; SIZE]> {
        self.spend(SIZE as u64)?;
        let start = (address % BLOCK) as usize;
        if let Some(end) = start.checked_add(SIZE).filter(|end| *end <= BLOCK as usize) {
            let block = self.block(address >> SHIFT)?;
            return block.get(start..end)?.try_into().ok();
        }
        let mut bytes = [0; SIZE];
        self.fill(address, &mut bytes)?;
        Some(bytes)
    }

    fn fill(&mut self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let mut at = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let start = (at % BLOCK) as usize;
            let size = rest.len().min(BLOCK as usize - start);
            self.spend(size as u64)?;
            let (now, later) = rest.split_at_mut(size);
            now.copy_from_slice(self.block(at >> SHIFT)?.get(start..start + size)?);
            at = at.checked_add(size as u64)?;
            rest = later;
        }
        Some(())
    }

    fn words(&mut self, address: u64, count: usize, words: &mut Vec<u64>) {
        words.clear();
        let mut at = address;
        while words.len() < count {
            let start = (at % BLOCK) as usize;
            let size = (count - words.len()).min((BLOCK as usize - start) / 8);
            if size == 0 {
                // A word across two blocks: memory is never laid out like that.
                return;
            }
            if self.spend(size as u64 * 8).is_none() {
                return;
            }
            let Some(block) = self.block(at >> SHIFT) else {
                return;
            };
            let part = gctrace_units::part(block, start..start + size * 8);
            words.extend(part.chunks_exact(8).map(|word| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(word);
                u64::from_le_bytes(bytes)
            }));
            let Some(next) = at.checked_add(size as u64 * 8) else {
                return;
            };
            at = next;
        }
    }
}

/// Reads blocks; parts of them that are not mapped become zero. Whether all mapped parts were read.
fn read_batch(pid: Pid, regions: &Regions, blocks: &mut [&mut (u64, Box<[u8]>)]) -> bool {
    let mut remote = Vec::new();
    let mut local = Vec::new();
    let mut expected = 0;
    for (number, bytes) in blocks.iter_mut().map(|block| (block.0, &mut block.1)) {
        let start = number << SHIFT;
        let mut rest: &mut [u8] = bytes;
        let mut at = start;
        for (from, to) in regions.within(start, start.saturating_add(BLOCK)) {
            let (gap, tail) = rest.split_at_mut((from - at) as usize);
            gap.fill(0);
            let (part, tail) = tail.split_at_mut((to - from) as usize);
            expected += part.len();
            remote.push(RemoteIoVec { base: from as usize, len: part.len() });
            local.push(IoSliceMut::new(part));
            rest = tail;
            at = to;
        }
        rest.fill(0);
    }
    expected > 0 && process_vm_readv(pid, &mut local, &remote) == Ok(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|byte| (byte % 251) as u8).collect();
        let start = bytes.as_ptr() as u64;
        let pid = std::process::id();
        let mut image = Image::of_process(pid, Regions::of(pid).unwrap(), Limits::default());
        let mut copy = vec![0; bytes.len()];
        image.fill(start, &mut copy).unwrap();
        assert_eq!(copy, bytes);
        assert_eq!(image.array::<4>(start + 70_000), bytes[70_000..70_004].try_into().ok());
        assert!(image.bytes() >= 300_000 && image.bytes() < 450_000);
        assert_eq!(image.word(8), None);
        image.refresh();
        assert_eq!(image.exceeded(), None);
        image.reopen(pid, Regions::of(pid).unwrap(), Some(Instant::now()));
        assert_eq!(image.word(start), None);
        assert_eq!(image.exceeded(), Some(Exceeded::Time));
        image.reopen(pid, Regions::of(pid).unwrap(), Some(Instant::now()));
        image.refresh();
        assert_eq!(image.exceeded(), Some(Exceeded::Time));
        image.close();
        assert_eq!(image.word(8), None);
        assert_eq!(image.missing(), 0);
        assert_eq!(image.word(own_memory as fn() as usize as u64), None);
        assert_eq!(image.missing(), 1);
        image.fill(start, &mut copy).unwrap();
        assert_eq!(copy, bytes);
    }

    #[test]
    fn limits_end_all() {
        let bytes = vec![1_u8; 10 * BLOCK as usize];
        let start = bytes.as_ptr() as u64;
        let pid = std::process::id();
        let regions = || Regions::of(pid).unwrap();
        let read = 4 * BLOCK;
        let mut image = Image::of_process(pid, regions(), Limits { read, ..Limits::default() });
        for _ in 0..read / 8 {
            image.word(start);
        }
        assert_eq!(image.word(start), None);
        assert_eq!(image.exceeded(), Some(Exceeded::Read));
        let copied = 5 * BLOCK;
        let limits = Limits { copied, ..Limits::default() };
        let mut image = Image::of_process(pid, regions(), limits);
        image.cover(start, bytes.len() as u64);
        assert_eq!(image.bytes(), copied);
        assert_eq!(image.exceeded(), Some(Exceeded::Copied(copied)));
        assert_eq!(image.word(start), None);
        image.close();
        assert_eq!(image.word(start), Some(0x0101_0101_0101_0101));
    }

    #[test]
    fn words_end_where_memory_does() {
        let mut image = Image::of_bytes(BLOCK, &[1; 24]);
        let mut words = Vec::new();
        image.words(BLOCK + 8, 3, &mut words);
        assert_eq!(words, [0x0101_0101_0101_0101, 0x0101_0101_0101_0101, 0]);
        image.words(2 * BLOCK - 8, 5, &mut words);
        assert_eq!(words, [0]);
        assert_eq!(image.c_string(BLOCK, 5).as_deref(), Some("\u{1}\u{1}\u{1}\u{1}\u{1}"));
    }
}
