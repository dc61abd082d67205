//! The sampled blocks, by address, until they are freed, each with its line and how many allocations it
//! stands for.
//!
//! Nothing here allocates or waits: samples are taken, moved and thinned inside the program's allocations.
//!
//! A new sample stands for [`EVERY`] allocations. When there are too many samples, the lightest half or more of them
//! are thinned: by a coin, each is dropped or stands for twice as many. The expected sum stays, whichever are thinned
//! and whenever. If the heaviest were thinned too, the oldest would be halved for every 2,048 new ones, and a few
//! samples would be left with their sum.

use crate::python::next_random;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Mean number of allocations per sample.
pub(super) const EVERY: u32 = 256;

/// Blocks remembered: the bitmap takes 4 KiB of the processor's first cache, the slots 512 KiB of memory at most. A
/// block has two slots side by side; the third sample there displaces one.
const SLOTS: usize = 1 << 15;

/// Samples at most. Both slots are taken for 2.6 % then (Poisson, 1/4 a pair).
pub(super) const MOST_SAMPLES: usize = SLOTS / 8;

/// In a line: an index among fresh lines, otherwise among lines with texts.
pub(super) const FRESH: u32 = 1 << 31;

/// In a line that has texts: an object of another line may be in the block.
pub(super) const UNSURE: u32 = 1 << 30;

/// In a line: how often the sample was kept when others were dropped, above the index.
const HALVINGS: u32 = 16;

/// Times that a sample is kept, at most: each stands for 2^38 allocations then.
const MOST_HALVINGS: usize = 30;

/// A block that was sampled, and the line.
struct Slot {
    /// Address of the block; 0: none.
    block: AtomicUsize,
    line: AtomicU32,
    /// Size of the block in bytes; at most 4 GiB.
    size: AtomicU32,
}

/// A bit per slot.
type Bits = [AtomicU64; SLOTS / 64];

/// Changed by one thread at a time: the thread that holds the main interpreter's lock.
pub(super) struct Samples {
    slots: [Slot; SLOTS],
    /// Slots that have a block.
    used: Bits,
    /// At least the used slots with fresh lines.
    fresh: Bits,
    /// Number of used slots.
    count: AtomicUsize,
}

/// The first of the two slots of a block.
#[inline]
fn slots_of(block: usize) -> usize {
    /// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, 6.4).
    const FIBONACCI: u64 = 0x9e37_79b9_7f4a_7c15;
    // Blocks are aligned to 16 bytes.
    let mixed = (block as u64 >> 4).wrapping_mul(FIBONACCI);
    (mixed >> (u64::BITS - SLOTS.ilog2())) as usize & !1
}

/// The index of a line.
pub(super) fn index_of(line: u32) -> u32 {
    line & ((1 << HALVINGS) - 1)
}

/// The line with an index among lines with texts.
pub(super) fn with_index(line: u32, index: u32) -> u32 {
    (line & !(FRESH | ((1 << HALVINGS) - 1))) | index
}

fn halvings(line: u32) -> usize {
    ((line & !(FRESH | UNSURE)) >> HALVINGS) as usize
}

/// How many new samples the one with this line stands for.
pub(super) fn stands_for(line: u32) -> u32 {
    1 << halvings(line).min(MOST_HALVINGS)
}

/// The line of a sample that stands for twice as many, or is dropped (`None`), by a coin.
fn halve(line: u32, random: &mut u32) -> Option<u32> {
    *random = next_random(*random);
    let is_kept = *random >> 31 != 0 && halvings(line) < MOST_HALVINGS;
    if is_kept { Some(line + (1 << HALVINGS)) } else { None }
}

/// The slots with set bits in a word. The word covers the slots from 64 times its number on.
fn set_bits(word: usize, bits: u64) -> impl Iterator<Item = usize> {
    let rests = std::iter::successors(Some(bits), |rest| Some(rest & rest.wrapping_sub(1)));
    rests.take_while(|rest| *rest != 0).map(move |rest| word * 64 + rest.trailing_zeros() as usize)
}

impl Samples {
    /// None. All zero, so that it is no part of the file.
    pub(super) const fn new() -> Self {
        Self {
            slots: [const {
                Slot {
                    block: AtomicUsize::new(0),
                    line: AtomicU32::new(0),
                    size: AtomicU32::new(0),
                }
            }; SLOTS],
            used: [const { AtomicU64::new(0) }; SLOTS / 64],
            fresh: [const { AtomicU64::new(0) }; SLOTS / 64],
            count: AtomicUsize::new(0),
        }
    }

    /// The slot that has a block.
    #[inline]
    pub(super) fn find(&self, block: usize) -> Option<usize> {
        let first = slots_of(block);
        if self.used[first / 64].load(Relaxed) & (0b11 << (first % 64)) == 0 {
            return None;
        }
        [first, first + 1].into_iter().find(|at| self.slots[*at].block.load(Relaxed) == block)
    }

    /// The line of a slot.
    pub(super) fn line(&self, at: usize) -> u32 {
        self.slots[at].line.load(Relaxed)
    }

    pub(super) fn set_line(&self, at: usize, line: u32) {
        self.slots[at].line.store(line, Relaxed);
    }

    /// Address and size of the block of a slot.
    pub(super) fn block(&self, at: usize) -> (usize, u32) {
        let slot = &self.slots[at];
        (slot.block.load(Relaxed), slot.size.load(Relaxed))
    }

    /// Empties a slot; returns its line.
    #[cold]
    pub(super) fn forget(&self, at: usize) -> u32 {
        let bit = 1 << (at % 64);
        if self.used[at / 64].fetch_and(!bit, Relaxed) & bit != 0 {
            self.count.fetch_sub(1, Relaxed);
        }
        self.slots[at].block.store(0, Relaxed);
        self.line(at)
    }

    /// All slots that have a block, with the line.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, u32)> {
        let words = self.used.iter().enumerate();
        let used = words.flat_map(|(word, bits)| set_bits(word, bits.load(Relaxed)));
        used.map(|at| (at, self.line(at)))
    }

    /// The slots with fresh lines. Afterwards they no longer count as fresh.
    pub(super) fn take_fresh(&self) -> impl Iterator<Item = (usize, u32)> {
        let words = self.fresh.iter().zip(&self.used).enumerate();
        let slots = words.filter(|(_, (fresh, _))| fresh.load(Relaxed) != 0);
        let slots = slots.flat_map(|(word, (fresh, used))| {
            set_bits(word, fresh.swap(0, Relaxed) & used.load(Relaxed))
        });
        slots.map(|at| (at, self.line(at))).filter(|(_, line)| line & FRESH != 0)
    }

    /// Remembers a block for a line, or not, and drops others if there are too many.
    pub(super) fn place(&self, block: usize, size: usize, mut line: u32, random: &mut u32) {
        if self.count.load(Relaxed) >= MOST_SAMPLES {
            self.thin(random);
        }
        let first = slots_of(block);
        let at = loop {
            match self.used[first / 64].load(Relaxed) >> (first % 64) & 0b11 {
                0b11 => {}
                used => break first + usize::from(used == 0b01),
            }
            // Whatever stands for least, the new one too: the others would be ever fewer for each new one.
            let light = first + usize::from(self.halvings(first) > self.halvings(first + 1));
            if self.halvings(light) < halvings(line) {
                self.halve(light, random);
            } else if let Some(kept) = halve(line, random) {
                line = kept;
            } else {
                return;
            }
        };
        let slot = &self.slots[at];
        slot.line.store(line, Relaxed);
        slot.size.store(gctrace_units::u32_or_most(size), Relaxed);
        slot.block.store(block, Relaxed);
        let bit = 1 << (at % 64);
        if line & FRESH != 0 {
            self.fresh[at / 64].fetch_or(bit, Relaxed);
        }
        if self.used[at / 64].fetch_or(bit, Relaxed) & bit == 0 {
            self.count.fetch_add(1, Relaxed);
        }
    }

    fn halvings(&self, at: usize) -> usize {
        halvings(self.line(at))
    }

    fn halve(&self, at: usize, random: &mut u32) {
        match halve(self.line(at), random) {
            Some(line) => self.set_line(at, line),
            None => _ = self.forget(at),
        }
    }

    /// Halves the lightest samples, half of all or more.
    fn thin(&self, random: &mut u32) {
        let mut counts = [0; MOST_HALVINGS + 1];
        for (_, line) in self.all() {
            counts[halvings(line).min(MOST_HALVINGS)] += 1;
        }
        let (all, mut light) = (counts.iter().sum::<usize>(), 0);
        let is_half = |count: &usize| {
            light += count;
            light * 2 >= all
        };
        let most = counts.iter().position(is_half).unwrap_or(MOST_HALVINGS);
        for (at, line) in self.all() {
            if halvings(line) <= most {
                self.halve(at, random);
            }
        }
    }
}

#[cfg(test)]
mod tests;
