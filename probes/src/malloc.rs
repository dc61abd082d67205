//! Memory that a process's C library keeps: freed by the program, and not given back to the kernel.
//!
//! Read from outside, from the chunks of glibc's malloc in `[heap]` (`struct malloc_chunk`), as the kernel shows
//! neither. The process runs on and takes no lock: if a walk does not lead to the end of the heap, chunk by chunk, the
//! memory counts as unknown. With another allocator it is unknown too.

use crate::memory::ProcessMemory;
use crate::proc_status;
use gctrace_cpython::Memory;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Size of a page, the unit that the kernel takes back. glibc has chunks on aarch64 as well, but pages may be larger
/// there.
const PAGE: u64 = 4096;
/// Fields of a free chunk before the memory that may be given back (`sizeof (struct malloc_chunk)`).
const CHUNK_HEAD: u64 = 48;
/// Least size of a chunk, and the unit of all sizes.
const LEAST_CHUNK: u64 = 32;
const ALIGNED: u64 = 16;
/// Flags in a chunk's size: the chunk before is in use; it is a mapping of its own, or of a thread's arena; none.
const BEFORE_IN_USE: u64 = 1;
const ELSEWHERE: u64 = 2 | 4 | 8;
/// Flags of a page in `/proc/PID/pagemap` (pagemap.rst).
const PRESENT: u64 = 1 << 63;
/// Bytes read at a time: more as long as chunks are small.
const LEAST_READ: u64 = 1 << 12;
const MOST_READ: u64 = 1 << 16;
/// Most reads of a walk: they take some 50 ms. Most bytes of a heap: its page table is read.
const MOST_READS: u32 = 1 << 15;
const MOST_BYTES: u64 = 1 << 34;

/// Resident memory in free chunks of the main heap of a process, in bytes: what `malloc_trim(0)` gives back at least.
/// `None` if that is unknown: the process has another allocator, changed its heap meanwhile, or may not be inspected.
pub fn kept_bytes(pid: u32) -> Option<u64> {
    let heap = heap(&proc_status::read(pid, "maps").ok()?)?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    let bytes = heap.end.checked_sub(heap.start)?;
    if bytes > MOST_BYTES {
        return None;
    }
    if u64::try_from(page) != Ok(PAGE) {
        return None;
    }
    let mut pages = vec![0; usize::try_from(bytes / PAGE * 8).ok()?];
    let table = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    table.read_exact_at(&mut pages, heap.start / PAGE * 8).ok()?;
    let pages = pages.chunks_exact(8).map(|entry| {
        let entry: [u8; 8] = entry.try_into().unwrap_or_default();
        u64::from_le_bytes(entry) & PRESENT != 0
    });
    let memory = ProcessMemory::open(pid).ok()?;
    Heap { memory: &memory, range: heap, pages: pages.collect() }.kept()
}

/// The range of `[heap]` in `/proc/PID/maps`.
fn heap(maps: &[u8]) -> Option<Range<u64>> {
    let mut found: Option<Range<u64>> = None;
    let lines = maps.split(|byte| *byte == b'\n').filter(|line| line.ends_with(b"[heap]"));
    for line in lines {
        let (start, rest) = std::str::from_utf8(line).ok()?.split_once('-')?;
        let end = rest.split_ascii_whitespace().next()?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        found = match found {
            None => Some(start..end),
            Some(before) if before.end == start => Some(before.start..end),
            Some(_) => return None,
        };
    }
    found
}

struct Heap<M> {
    memory: M,
    range: Range<u64>,
    /// Whether each of its pages is in memory. Other pages are not read: that would fetch them.
    pages: Vec<bool>,
}

impl<M: Memory> Heap<M> {
    fn kept(&mut self) -> Option<u64> {
        let mut window = Vec::new();
        let mut window_start = self.range.start;
        let mut wanted = LEAST_READ;
        let (mut reads, mut kept) = (0, 0_u64);
        let (mut at, mut before) = (self.range.start, self.range.start);
        loop {
            let offset = usize::try_from(at.checked_sub(window_start)?).ok()?;
            let size = match word(&window, offset) {
                Some(size) => size,
                None => {
                    let follows = at - window_start <= window.len() as u64 + LEAST_READ;
                    wanted = if follows { (wanted * 2).min(MOST_READ) } else { LEAST_READ };
                    reads += 1;
                    if reads > MOST_READS {
                        return None;
                    }
                    window.resize(usize::try_from(self.readable(at, wanted)?).ok()?, 0);
                    self.memory.fill(at, &mut window)?;
                    window_start = at;
                    word(&window, 0)?
                }
            };
            if size & BEFORE_IN_USE == 0 {
                kept += self.resident(before, at);
            }
            let length = size & !(ALIGNED - 1);
            if size & ELSEWHERE != 0 || length < LEAST_CHUNK {
                return None;
            }
            let next = at.checked_add(length)?;
            if next == self.range.end {
                // The last chunk is free: what the next blocks are cut from.
                return Some(kept + self.resident(at, next));
            }
            if next > self.range.end {
                return None;
            }
            (before, at) = (at, next);
        }
    }

    /// How many bytes from an address on are in memory, `wanted` at most; `None` if there is no chunk's head.
    fn readable(&self, at: u64, wanted: u64) -> Option<u64> {
        let end = self.range.end.min(at.checked_add(wanted)?);
        let first = self.page(at)?;
        let absent = self.pages.get(first..)?.iter().position(|is_present| !is_present);
        let present = if let Some(pages) = absent {
            (at / PAGE).saturating_add(pages as u64).saturating_mul(PAGE)
        } else {
            self.range.end
        };
        let bytes = end.min(present).checked_sub(at)?;
        if bytes >= ALIGNED { Some(bytes) } else { None }
    }

    /// Resident bytes of the whole pages of a free chunk.
    fn resident(&self, from: u64, to: u64) -> u64 {
        let first = self.page(from.saturating_add(CHUNK_HEAD + PAGE - 1));
        let (Some(first), Some(end)) = (first, self.page(to)) else { return 0 };
        let pages = self.pages.get(first..end).unwrap_or_default();
        pages.iter().filter(|is_present| **is_present).count() as u64 * PAGE
    }

    /// Number of the page of an address within the heap.
    fn page(&self, at: u64) -> Option<usize> {
        usize::try_from((at / PAGE).checked_sub(self.range.start / PAGE)?).ok()
    }
}

/// The size of the chunk at an offset, with its flags.
fn word(window: &[u8], offset: usize) -> Option<u64> {
    let bytes = window.get(offset.checked_add(8)?..offset.checked_add(16)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x5555_0000_0000;

    /// A heap of chunks, each with its size and whether it is in use; the last one is the top.
    fn kept(chunks: &[(u64, bool)], absent: &[usize]) -> Option<u64> {
        let length: u64 = chunks.iter().map(|(size, _)| size).sum();
        let mut bytes = vec![0xAB_u8; length as usize];
        let (mut at, mut is_used) = (0, true);
        for (size, used) in chunks {
            let head = size | u64::from(is_used);
            bytes[at + 8..at + 16].copy_from_slice(&head.to_le_bytes());
            (at, is_used) = (at + *size as usize, *used);
        }
        let memory = |address: u64, into: &mut [u8]| {
            let from = (address - START) as usize;
            let first = from / PAGE as usize;
            let last = (from + into.len() - 1) / PAGE as usize;
            assert!(!absent.iter().any(|page| (first..=last).contains(page)), "reads page {first}");
            into.copy_from_slice(&bytes[from..from + into.len()]);
            Some(())
        };
        let pages = (0..(length / PAGE) as usize).map(|page| !absent.contains(&page)).collect();
        Heap { memory, range: START..START + length, pages }.kept()
    }

    #[test]
    fn whole_resident_pages_of_free_chunks_count() {
        let small = (0x290, true);
        // Free with 24 whole pages, the rest of the 25th in use, and the top with three.
        let chunks = [small, (25 * PAGE, false), (PAGE - 0x290, true), (4 * PAGE, true)];
        assert_eq!(kept(&chunks, &[]), Some((24 + 3) * PAGE));
        // Memory given back before is not resident.
        assert_eq!(kept(&chunks, &[5, 6, 7]), Some((21 + 3) * PAGE));
        // Many small ones in use, over several reads.
        let many: Vec<(u64, bool)> = std::iter::repeat_n((64, true), 64 * 100).collect();
        assert_eq!(kept(&many, &[]), Some(0));
    }

    #[test]
    fn what_is_no_heap_of_glibc_is_unknown() {
        // The head of a chunk is not in memory.
        assert_eq!(kept(&[(2 * PAGE, true), (PAGE, true)], &[2]), None);
        let read = |word: u64| {
            let memory = move |_: u64, into: &mut [u8]| {
                into.chunks_mut(8).for_each(|one| one.copy_from_slice(&word.to_le_bytes()));
                Some(())
            };
            Heap { memory, range: START..START + 2 * PAGE, pages: vec![true; 2] }.kept()
        };
        assert!(
            [0, 1, 17, 0x23, 0x25, 0x29, u64::MAX, 3 * PAGE].map(read).iter().all(Option::is_none)
        );
        assert_eq!(heap(b"1000-2000 rw-p 0 00:00 0 [heap]\n3000-4000 rw-p 0 00:00 0 [heap]"), None);
        assert_eq!(
            heap(b"0-1000 r-xp 0 00:00 0 /bin/x\n1000-2000 rw-p 0 00:00 0   [heap]\n2000-3000 rw-p 0 00:00 0 [heap]\n"),
            Some(0x1000..0x3000)
        );
    }
}
