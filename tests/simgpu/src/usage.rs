//! One process's use of one device, in a file that others can read: memory in use and the latest
//! intervals of work. NVML, often in another process, reports from these files.
//!
//! `<shared>/gpu<device>.<pid>`: 64-bit words in native order: magic, bytes in use, start of work
//! with an unknown end (0: none), number of intervals ever written, then a ring of intervals of
//! three words: start, end, tag. Timestamps are CLOCK_MONOTONIC nanoseconds. The tag is 0 for a
//! kernel, otherwise 1 + 4 * bytes + direction of a copy (1 to the device, 2 from it, 0 neither).

use memmap2::{Mmap, MmapMut};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: u64 = u64::from_ne_bytes(*b"simgpu01");
const HEADER_WORDS: usize = 8;
/// At 50,000 operations a second, a third of a second.
const RING: usize = 16_384;
const WORDS: usize = 3;
const BYTES: usize = (HEADER_WORDS + RING * WORDS) * 8;

/// An interval of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BusyInterval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) tag: u64,
}

impl BusyInterval {
    pub(crate) fn kernel(start_ns: u64, end_ns: u64) -> Self {
        Self { start_ns, end_ns, tag: 0 }
    }

    /// `kind` as in [`crate::core::OperationKind::Memcpy`].
    pub(crate) fn copy(start_ns: u64, end_ns: u64, bytes: u64, kind: u8) -> Self {
        let direction = if kind <= 2 { u64::from(kind) } else { 0 };
        let tag = 1 + bytes.saturating_mul(4).saturating_add(direction);
        Self { start_ns, end_ns, tag }
    }

    /// Bytes that a copy moved, and the direction; `None` for a kernel.
    pub(crate) fn copied(&self) -> Option<(u64, u64)> {
        let packed = self.tag.checked_sub(1)?;
        Some((packed / 4, packed % 4))
    }
}

/// The words of a mapped file.
fn words(map: &[u8]) -> &[AtomicU64] {
    // SAFETY: any bit pattern is a valid AtomicU64, and mapped files are changed through atomics
    // only; a mapping is page-aligned, so nothing is cut off at its start.
    let (_, words, _) = unsafe { map.align_to::<AtomicU64>() };
    words
}

/// This process's file of one device.
#[derive(Debug)]
pub(crate) struct UsageFile {
    path: PathBuf,
    map: MmapMut,
}

impl UsageFile {
    pub(crate) fn create(shared: &Path, device: u32) -> io::Result<Self> {
        let path = shared.join(format!("gpu{device}.{}", std::process::id()));
        let file =
            OpenOptions::new().create(true).read(true).write(true).truncate(true).open(&path)?;
        file.set_len(BYTES as u64)?;
        // SAFETY: only this process writes it, through atomics; readers use atomics too.
        let map = unsafe { MmapMut::map_mut(&file)? };
        store(words(&map), 0, MAGIC);
        Ok(Self { path, map })
    }

    pub(crate) fn set_memory(&self, bytes: u64) {
        store(words(&self.map), 1, bytes);
    }

    pub(crate) fn set_running_since(&self, start_ns: Option<u64>) {
        store(words(&self.map), 2, start_ns.unwrap_or(0));
    }

    /// One writer at a time.
    pub(crate) fn add(&self, interval: BusyInterval) {
        let written = load(words(&self.map), 3);
        let place = HEADER_WORDS + (written as usize % RING) * WORDS;
        store(words(&self.map), place, interval.start_ns);
        store(words(&self.map), place + 1, interval.end_ns);
        store(words(&self.map), place + 2, interval.tag);
        store(words(&self.map), 3, written.wrapping_add(1));
    }

    /// Removes the file: this process has ended.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn load(words: &[AtomicU64], at: usize) -> u64 {
    words[at].load(Ordering::Acquire)
}

fn store(words: &[AtomicU64], at: usize, value: u64) {
    words[at].store(value, Ordering::Release);
}

/// A live process's use of a device.
#[derive(Clone, Debug)]
pub(crate) struct ProcessUsage {
    pub(crate) pid: u32,
    pub(crate) memory: u64,
    pub(crate) running_since: Option<u64>,
    pub(crate) intervals: Vec<BusyInterval>,
}

/// All live processes that use the device. Files of dead ones are removed.
pub(crate) fn snapshots(shared: &Path, device: u32) -> Vec<ProcessUsage> {
    files(shared, device).into_iter().filter_map(|(pid, path)| read(pid, &path)).collect()
}

/// Bytes that other processes have allocated on the device.
pub(crate) fn other_processes_memory(shared: &Path, device: u32) -> u64 {
    let this_pid = std::process::id();
    files(shared, device)
        .into_iter()
        .filter(|(pid, _)| *pid != this_pid)
        .filter_map(|(_, path)| map(&path))
        .map(|map| load(words(&map), 1))
        .sum()
}

fn files(shared: &Path, device: u32) -> Vec<(u32, PathBuf)> {
    let prefix = format!("gpu{device}.");
    let Ok(entries) = std::fs::read_dir(shared) else {
        return Vec::new();
    };
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let pid: u32 = name.to_str()?.strip_prefix(&prefix)?.parse().ok()?;
        Some((pid, entry.path()))
    });
    named.filter(|(pid, path)| lives(*pid, path)).collect()
}

fn lives(pid: u32, path: &Path) -> bool {
    let alive = Path::new("/proc").join(pid.to_string()).exists();
    if !alive {
        let _ = std::fs::remove_file(path);
    }
    alive
}

fn map(path: &Path) -> Option<Mmap> {
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.len() != BYTES as u64 {
        return None;
    }
    // SAFETY: the file is only ever written through atomics and never gets shorter.
    let map = unsafe { Mmap::map(&file).ok()? };
    (load(words(&map), 0) == MAGIC).then_some(map)
}

fn read(pid: u32, path: &Path) -> Option<ProcessUsage> {
    let map = map(path)?;
    let words = words(&map);
    let written = load(words, 3) as usize;
    let intervals = (written.saturating_sub(RING)..written).map(|index| {
        let place = HEADER_WORDS + (index % RING) * WORDS;
        BusyInterval {
            start_ns: load(words, place),
            end_ns: load(words, place + 1),
            tag: load(words, place + 2),
        }
    });
    Some(ProcessUsage {
        pid,
        memory: load(words, 1),
        running_since: Some(load(words, 2)).filter(|start_ns| *start_ns != 0),
        intervals: intervals.collect(),
    })
}

/// Nanoseconds of `[from_ns, to_ns]` in which any kernel ran in any of the processes.
pub(crate) fn busy_ns(snapshots: &[ProcessUsage], from_ns: u64, to_ns: u64) -> u64 {
    let open = snapshots.iter().filter_map(|snapshot| Some((snapshot.running_since?, to_ns)));
    let kernels = snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.intervals)
        .filter(|interval| interval.copied().is_none())
        .map(|interval| (interval.start_ns, interval.end_ns));
    let mut clipped: Vec<_> = kernels
        .chain(open)
        .map(|(start, end)| (start.max(from_ns), end.min(to_ns)))
        .filter(|(start, end)| start < end)
        .collect();
    clipped.sort_unstable();
    let mut covered = from_ns;
    let mut busy = 0;
    for (start, end) in clipped {
        let end = end.max(covered);
        busy += end - start.max(covered);
        covered = end;
    }
    busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_the_union_inside_the_window() {
        let folder = tempfile::tempdir().expect("folder");
        let usage = UsageFile::create(folder.path(), 3).expect("file");
        usage.add(BusyInterval::kernel(0, 150));
        usage.add(BusyInterval::kernel(120, 200));
        usage.add(BusyInterval::copy(0, 1000, 4096, 1));
        usage.add(BusyInterval::kernel(900, 5000));
        usage.set_memory(77);
        let seen = snapshots(folder.path(), 3);
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].memory, 77);
        assert_eq!(seen[0].intervals[2].copied(), Some((4096, 1)));
        assert_eq!(busy_ns(&seen, 100, 1000), 100 + 100);
        usage.set_running_since(Some(500));
        let seen = snapshots(folder.path(), 3);
        assert_eq!(busy_ns(&seen, 100, 1000), 100 + 500);
        usage.remove();
        assert!(snapshots(folder.path(), 3).is_empty());
    }

    #[test]
    fn files_of_dead_processes_are_removed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("gpu0.4194305");
        std::fs::write(&path, b"x").expect("pids end at 4194304");
        assert!(snapshots(folder.path(), 0).is_empty());
        assert!(!path.exists());
    }
}
