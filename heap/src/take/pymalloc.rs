//! Arenas of pymalloc, CPython's allocator of small objects, and the blocks in their pools.
//!
//! In stripped builds no symbol leads to the table of arenas, and the table moved with each version. So it is found by
//! its content: a word of the interpreter's data leads to a table, and the first pools of the table's arenas contain
//! the arena's number. An interpreter with an allocator of its own (3.12 and later) has such a word in its state, or in
//! memory that a word of its state leads to. The table is read while the program runs, so counted blocks may be freed
//! meanwhile.
//!
//! Source: Objects/obmalloc.c of 3.8 - 3.11, Include/internal/pycore_obmalloc.h of 3.12 - 3.15. The structures are the
//! same in all, on 64-bit machines.

use crate::state::{BlockSizes, PymallocState};
use crate::take::limits::CpuBudget;
use gctrace_cpython::Memory as _;
use gctrace_probes::{ProcessMemory, proc_status};
use gctrace_units::part;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::IoSliceMut;
use std::time::Duration;

/// CPU time for the search and the count: an arena takes about 10 us.
const LIMIT: Duration = Duration::from_millis(200);
/// Most bytes of the interpreter's data that are searched, before and after `_PyRuntime`; they are 2 MiB at most.
const MOST_DATA: u64 = 16 << 20;
/// Most arenas: 1 TiB.
const MOST_ARENAS: u64 = 1 << 20;
/// `struct arena_object`: `address`, `pool_address`, `nfreepools` and `ntotalpools`, three links.
const ARENA: usize = 48;
/// `INITIAL_ARENA_OBJECTS`: the table has a multiple of so many.
const TABLE: usize = 16;
/// `nextarena`.
const NEXT: usize = 32;
/// `struct pool_header`: `ref.count`, two links and a list, `arenaindex`, `szidx`.
const POOL_HEADER: usize = 48;
const POOL_ARENA: usize = 32;
const POOL_SIZE_INDEX: usize = 36;
/// `ALIGNMENT`: blocks of size index 0; `SMALL_REQUEST_THRESHOLD`: the largest.
const STEP: u64 = 16;
const LARGEST: u64 = 512;
/// Bytes of an interpreter's state that are searched; in 3.12 it has the allocator itself, 310,000 bytes.
const MOST_STATE: u64 = 1 << 20;
/// From the start of an allocator to its table of arenas: `struct _obmalloc_pools`, two links for each size.
const TO_TABLE: u64 = 64 * 8;
/// A page: what `mmap` aligns arenas to.
const PAGE: u64 = 4096;

/// `ARENA_SIZE` and `POOL_SIZE` in bytes: larger since 3.10 and its radix tree.
fn sizes(minor: u8) -> (u64, u64) {
    if minor >= 10 { (1 << 20, 1 << 14) } else { (1 << 18, 1 << 12) }
}

/// Figures of pymalloc, of the main interpreter and all others; `interpreters`: the addresses of their states.
///
/// # Errors
/// Why that is unknown.
pub(crate) fn pymalloc(
    pid: u32,
    minor: u8,
    is_free_threaded: bool,
    memory: &ProcessMemory,
    runtime: u64,
    interpreters: &[u64],
) -> Result<PymallocState, &'static str> {
    if is_free_threaded {
        return Err("free-threaded builds have mimalloc; its memory is not read");
    }
    let allocator = Allocator {
        pid,
        memory,
        maps: Mappings::of(pid),
        sizes: sizes(minor),
        budget: CpuBudget::of(LIMIT),
    };
    let table = allocator.table(runtime)?.ok_or(
        "no arenas were found: the program has another allocator (PYTHONMALLOC=malloc), or this build \
         has other structures",
    )?;
    let others = interpreters.iter().filter_map(|state| allocator.table_of(*state));
    let tables: BTreeSet<u64> = std::iter::once(table).chain(others).collect();
    Ok(allocator.count(&tables))
}

struct Allocator<'memory> {
    pid: u32,
    memory: &'memory ProcessMemory,
    maps: Mappings,
    /// Of an arena and a pool, in bytes.
    sizes: (u64, u64),
    budget: CpuBudget,
}

/// An arena in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FoundArena {
    first_pool: u64,
    /// Pools that were in use at some time; the others were never written.
    pools: u64,
}

impl Allocator<'_> {
    /// Where the table of arenas is; `None`: nowhere in the interpreter's data.
    ///
    /// # Errors
    /// The search takes too long.
    fn table(&self, runtime: u64) -> Result<Option<u64>, &'static str> {
        let mut tried = HashSet::new();
        for (start, end) in self.maps.data(runtime) {
            let Ok(length) = usize::try_from(end - start) else { continue };
            let mut bytes = vec![0; length];
            if (&*self.memory).fill(start, &mut bytes).is_none() {
                continue;
            }
            for address in bytes.chunks_exact(8).map(|word| number(word, 0)) {
                let leads = address.is_multiple_of(8) && self.maps.is_anonymous(address);
                if !(leads && tried.insert(address)) {
                    continue;
                }
                if self.is_table(address) {
                    return Ok(Some(address));
                }
                if tried.len().is_multiple_of(256) && self.budget.is_spent() {
                    return Err("its arenas were not found in the time for their search");
                }
            }
        }
        Ok(None)
    }

    /// Address of an interpreter's table of arenas, found from its state in allocated memory. If the interpreter shares
    /// the main interpreter's allocator: the main interpreter's table, or `None`.
    fn table_of(&self, state: u64) -> Option<u64> {
        let most = state.saturating_add(MOST_STATE).min(self.maps.end_of(state)?);
        let mut bytes = vec![0; usize::try_from(most - state).ok()?];
        (&*self.memory).fill(state, &mut bytes)?;
        let mut tried = HashSet::new();
        for address in bytes.chunks_exact(8).map(|word| number(word, 0)) {
            let leads = address.is_multiple_of(8) && self.maps.is_anonymous(address);
            if !(leads && tried.insert(address)) {
                continue;
            }
            let next = (&*self.memory).field(address, TO_TABLE);
            let next = next.filter(|at| at.is_multiple_of(8) && self.maps.is_anonymous(*at));
            let tables = [Some(address), next].into_iter().flatten();
            if let Some(table) = tables.into_iter().find(|table| self.is_table(*table)) {
                return Some(table);
            }
            if self.budget.is_spent() {
                break;
            }
        }
        None
    }

    /// Whether the first arena in use among the first ones is one, and has its own number.
    fn is_table(&self, address: u64) -> bool {
        let Some(table) = self.part(address) else { return false };
        let found = table
            .chunks_exact(ARENA)
            .zip(0..)
            .find_map(|(entry, index)| (number(entry, 0) != 0).then(|| (self.arena(entry), index)));
        matches!(found, Some((Some(arena), index)) if self.number_of(arena) == Some(index))
    }

    /// The next entries of a table.
    fn part(&self, address: u64) -> Option<[u8; ARENA * TABLE]> {
        (&*self.memory).array(address)
    }

    /// The arena of an entry; `None`: it is none.
    fn arena(&self, entry: &[u8]) -> Option<FoundArena> {
        let (arena_size, pool_size) = self.sizes;
        let (address, next_pool) = (number(entry, 0), number(entry, 8));
        let (free, all) = (number(entry, 16) & 0xffff_ffff, number(entry, 16) >> 32);
        let is_mapped = address.is_multiple_of(PAGE) && self.maps.is_anonymous(address);
        let first_pool = address.checked_next_multiple_of(pool_size).filter(|_| is_mapped)?;
        let end = first_pool.checked_add(all.checked_mul(pool_size)?)?;
        let fits =
            (address.checked_add(arena_size)? - first_pool) / pool_size == all && free <= all;
        let is_right =
            fits && (first_pool..=end).contains(&next_pool) && next_pool.is_multiple_of(pool_size);
        is_right.then(|| FoundArena { first_pool, pools: (next_pool - first_pool) / pool_size })
    }

    /// The number that its first pool has of it.
    fn number_of(&self, arena: FoundArena) -> Option<u64> {
        let header: [u8; POOL_HEADER] = (&*self.memory).array(arena.first_pool)?;
        Some(number(&header, POOL_ARENA) & 0xffff_ffff)
    }

    fn count(&self, tables: &BTreeSet<u64>) -> PymallocState {
        let mut counted = CountedPools::default();
        let (mut arenas, mut is_late) = (0, false);
        for table in tables {
            self.each_arena(*table, |arena| {
                arenas += 1;
                is_late |= self.budget.is_spent();
                if !is_late {
                    self.count_pools(arena, &mut counted);
                }
            });
        }
        let (blocks, bytes) = counted.used();
        PymallocState {
            allocators: tables.len() as u64,
            arenas,
            arena_bytes: arenas * self.sizes.0,
            used_blocks: (!is_late).then_some(blocks),
            used_bytes: (!is_late).then_some(bytes),
            sizes: if is_late { Vec::new() } else { counted.0.into_values().collect() },
        }
    }

    fn each_arena(&self, table: u64, mut each: impl FnMut(FoundArena)) {
        let mut ends = 0;
        for first in (0..MOST_ARENAS).step_by(TABLE) {
            let Some(part) = self.part(table.wrapping_add(first * ARENA as u64)) else { return };
            for (entry, index) in part.chunks_exact(ARENA).zip(first..) {
                if number(entry, 0) == 0 {
                    // The list of unused ones has one end; beyond the table there may be more zeros.
                    ends += u32::from(number(entry, NEXT) == 0);
                    if ends > 1 {
                        return;
                    }
                    continue;
                }
                let Some(arena) = self.arena(entry) else { return };
                // Not so: a table from before it grew.
                if self.number_of(arena) == Some(index) {
                    each(arena);
                }
            }
        }
    }

    fn count_pools(&self, arena: FoundArena, counted: &mut CountedPools) {
        let pools = usize::try_from(arena.pools).unwrap_or(0);
        let mut headers = vec![0; pools * POOL_HEADER];
        let place = |pool: u64| (arena.first_pool + pool * self.sizes.1) as usize;
        let remote: Vec<RemoteIoVec> = (0..arena.pools)
            .map(|pool| RemoteIoVec { base: place(pool), len: POOL_HEADER })
            .collect();
        let pid = Pid::from_raw(self.pid.cast_signed());
        // Unmapped meanwhile: nothing in it is in use.
        let read =
            process_vm_readv(pid, &mut [IoSliceMut::new(&mut headers)], &remote).unwrap_or(0);
        for header in part(&headers, ..read).chunks_exact(POOL_HEADER) {
            counted.add(header, self.sizes.1);
        }
    }
}

/// Pools by the size of their blocks.
#[derive(Default)]
struct CountedPools(BTreeMap<u64, BlockSizes>);

impl CountedPools {
    fn add(&mut self, header: &[u8], pool_size: u64) {
        let used = number(header, 0) & 0xffff_ffff;
        let block_bytes = ((number(header, POOL_SIZE_INDEX) & 0xffff_ffff) + 1) * STEP;
        // Free pools have the size that their blocks last had, or none.
        if used == 0 || block_bytes > LARGEST {
            return;
        }
        let room = (pool_size - POOL_HEADER as u64) / block_bytes;
        let used = used.min(room);
        let of = self.0.entry(block_bytes).or_default();
        of.block_bytes = block_bytes;
        of.pools += 1;
        of.used_blocks += used;
        of.free_blocks += room - used;
    }

    /// Blocks and their bytes.
    fn used(&self) -> (u64, u64) {
        self.0.values().fold((0, 0), |(blocks, bytes), of| {
            (blocks + of.used_blocks, bytes + of.used_blocks * of.block_bytes)
        })
    }
}

/// The word at a place in a structure; 0 if it is not that long.
fn number(bytes: &[u8], at: usize) -> u64 {
    let word = part(bytes, at..).iter().take(8).rev();
    word.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Private memory that a process may write.
#[derive(Debug, Default)]
struct Mappings(Vec<Mapping>);

#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    /// Neither of a file nor the kernel's.
    is_anonymous: bool,
    /// The heap of `malloc`: it grows, and is no data of the interpreter, even next to it.
    is_heap: bool,
}

impl Mappings {
    fn of(pid: u32) -> Self {
        Self::parse(&proc_status::maps(pid))
    }

    fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(mapping).collect())
    }

    fn is_anonymous(&self, address: u64) -> bool {
        self.end_of(address).is_some()
    }

    /// Where the mapping ends that has this address; `None`: none, or it is of a file.
    fn end_of(&self, address: u64) -> Option<u64> {
        let after = self.0.partition_point(|one| one.start <= address);
        let found = after.checked_sub(1).and_then(|at| self.0.get(at));
        found.filter(|one| one.is_anonymous && address < one.end).map(|one| one.end)
    }

    /// The data of the file that `runtime` is in: all mappings around it without a gap.
    fn data(&self, runtime: u64) -> Vec<(u64, u64)> {
        let data: Vec<&Mapping> = self.0.iter().filter(|one| !one.is_heap).collect();
        let mut groups = data.chunk_by(|one, next| one.end == next.start);
        let own =
            groups.find(|group| group.iter().any(|one| (one.start..one.end).contains(&runtime)));
        let least = runtime.saturating_sub(MOST_DATA);
        let most = runtime.saturating_add(MOST_DATA);
        let parts = own.into_iter().flatten().map(|one| (one.start.max(least), one.end.min(most)));
        parts.filter(|(start, end)| start < end).collect()
    }
}

fn mapping(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    fields.next()?.starts_with("rw-p").then_some(())?;
    let path = fields.nth(3).unwrap_or_default();
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        is_anonymous: path.is_empty() || path == "[heap]" || path.starts_with("[anon"),
        is_heap: path == "[heap]",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_the_interpreter_is_searched_alone() {
        let maps = Mappings::parse(
            b"\
1000-3000 r-xp 00000000 fe:01 12 /usr/lib/libpython3.12.so
3000-4000 rw-p 00002000 fe:01 12 /usr/lib/libpython3.12.so
4000-5000 rw-p 00000000 00:00 0
5000-9000 rw-p 00000000 00:00 0          [heap]
9000-a000 rw-p 00000000 00:00 0
b000-c000 rw-s 00000000 00:01 7 /dev/shm/queue
nonsense",
        );
        assert_eq!(maps.data(0x3800), [(0x3000, 0x4000), (0x4000, 0x5000)]);
        assert_eq!(maps.data(0x1800), []);
        let anonymous = [0x3800, 0x4800, 0x5000, 0x9fff, 0xa000, 0xb800, 0];
        assert_eq!(
            anonymous.map(|address| maps.is_anonymous(address)),
            [false, true, true, true, false, false, false]
        );
    }

    /// A program has an allocator of its own, or there was no time to find out.
    #[test]
    fn a_search_that_ends_early_is_no_answer() {
        let mut words = vec![0_u64; 1 << 18];
        let start = words.as_ptr().addr() as u64;
        words.iter_mut().zip(0..).for_each(|(word, index)| *word = start + index % 4096 * 8);
        let pid = std::process::id();
        let memory = ProcessMemory::open(pid).expect("this process");
        let found = |limit| {
            let budget = CpuBudget::of(limit);
            Allocator { pid, memory: &memory, maps: Mappings::of(pid), sizes: sizes(13), budget }
                .table(start)
        };
        assert_eq!(found(Duration::from_secs(60)), Ok(None));
        assert!(found(Duration::ZERO).is_err());
    }

    /// As on a machine where other programs have the CPUs.
    #[test]
    fn waiting_takes_nothing_of_the_budget() {
        let budget = CpuBudget::of(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(1_100));
        assert!(!budget.is_spent());
        assert!(CpuBudget::of(Duration::ZERO).is_spent());
    }

    #[test]
    fn pools_of_no_size_are_not_counted() {
        let header = |used: u32, size_index: u32| {
            let mut header = [0; POOL_HEADER];
            header[..4].copy_from_slice(&used.to_le_bytes());
            header[POOL_SIZE_INDEX..POOL_SIZE_INDEX + 4].copy_from_slice(&size_index.to_le_bytes());
            header
        };
        let mut counted = CountedPools::default();
        // Free; never used (`DUMMY_SIZE_IDX`); of no size.
        for (used, size_index) in [(0, 3), (1, 0xffff), (1, 32), (u32::MAX, u32::MAX)] {
            counted.add(&header(used, size_index), 4096);
        }
        assert_eq!(counted.used(), (0, 0));
        counted.add(&header(10, 3), 4096);
        counted.add(&header(u32::MAX, 3), 4096);
        assert_eq!(counted.used(), (73, 73 * 64));
        let of = counted.0.get(&64).copied().unwrap_or_default();
        assert_eq!((of.pools, of.free_blocks), (2, 53));
    }
}
