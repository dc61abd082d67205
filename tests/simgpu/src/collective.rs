//! Synchronizes the ranks of a communicator: through a file that all of them map.
//!
//! `<shared>/nccl.<key>`: 64-bit words in native order: number of ranks that have joined, number
//! that have left, then a ring of 64 meetings of one pair of words per rank: the meeting's number
//! plus one, the start of this rank's kernel. A rank cannot be more than one meeting ahead of
//! another, because its stream waits for the end of the previous one.

use crate::core::Rendezvous;
use crate::error::CudaError;
use memmap2::MmapMut;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const HEADER_WORDS: usize = 8;
const RING: u64 = 64;

/// One rank's view of a communicator.
#[derive(Debug)]
pub(crate) struct Communicator {
    key: Arc<str>,
    path: PathBuf,
    map: MmapMut,
    ranks: u32,
    rank: u32,
    /// Number of collectives that this rank has enqueued.
    enqueued: AtomicU64,
}

impl Communicator {
    pub(crate) fn open(shared: &Path, key: &str, ranks: u32, rank: u32) -> io::Result<Self> {
        let path = shared.join(format!("nccl.{key}"));
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path)?;
        let words = HEADER_WORDS as u64 + RING * u64::from(ranks) * 2;
        file.set_len(words * 8)?;
        // SAFETY: all ranks change the file through atomics only and give it the same length.
        let map = unsafe { MmapMut::map_mut(&file)? };
        let communicator =
            Self { key: key.into(), path, map, ranks, rank, enqueued: AtomicU64::new(0) };
        communicator.word(0).fetch_add(1, Ordering::AcqRel);
        Ok(communicator)
    }

    pub(crate) fn all_joined(&self) -> bool {
        self.word(0).load(Ordering::Acquire) >= u64::from(self.ranks)
    }

    /// Leaves the communicator; the last rank removes the file.
    pub(crate) fn leave(&self) {
        if self.word(1).fetch_add(1, Ordering::AcqRel) + 1 >= u64::from(self.ranks) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// The next collective of this rank.
    pub(crate) fn meeting(self: &Arc<Self>) -> Box<dyn Rendezvous> {
        Box::new(RankRendezvous {
            number: self.enqueued.fetch_add(1, Ordering::Relaxed),
            communicator: Arc::clone(self),
        })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: any bit pattern is a valid AtomicU64, and ranks change the file through atomics
        // only; a mapping is page-aligned, so nothing is cut off at its start.
        let (_, words, _) = unsafe { self.map.align_to::<AtomicU64>() };
        &words[at]
    }

    /// Index of a rank's words of a meeting.
    fn place(&self, number: u64, rank: u32) -> usize {
        let index = (number % RING) * u64::from(self.ranks) + u64::from(rank);
        HEADER_WORDS + index as usize * 2
    }
}

#[derive(Debug)]
struct RankRendezvous {
    communicator: Arc<Communicator>,
    number: u64,
}

impl Rendezvous for RankRendezvous {
    fn arrive(&mut self, start_ns: u64) {
        let place = self.communicator.place(self.number, self.communicator.rank);
        let communicator = &self.communicator;
        communicator.word(place + 1).store(start_ns, Ordering::Release);
        communicator.word(place).store(self.number + 1, Ordering::Release);
    }

    fn last_start_ns(&mut self) -> Option<u64> {
        let mut last_ns = 0;
        for rank in 0..self.communicator.ranks {
            let place = self.communicator.place(self.number, rank);
            if self.communicator.word(place).load(Ordering::Acquire) != self.number + 1 {
                return None;
            }
            last_ns = last_ns.max(self.communicator.word(place + 1).load(Ordering::Acquire));
        }
        Some(last_ns)
    }

    fn identity(&self) -> (Arc<str>, u64) {
        (Arc::clone(&self.communicator.key), self.number)
    }
}

/// Id of a communicator, the same in all its ranks.
pub(crate) fn fresh_key() -> Result<String, CudaError> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|_| CudaError::UNKNOWN)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_learn_the_latest_start_once_all_have_come() {
        let folder = tempfile::tempdir().expect("folder");
        let open = |rank| Arc::new(Communicator::open(folder.path(), "k", 2, rank).expect("file"));
        let (first, second) = (open(0), open(1));
        assert!(first.all_joined());
        for number in 1..200_u64 {
            let (mut here, mut there) = (first.meeting(), second.meeting());
            here.arrive(number * 10);
            assert_eq!(here.last_start_ns(), None);
            there.arrive(number * 10 + 5);
            assert_eq!(here.last_start_ns(), Some(number * 10 + 5));
            assert_eq!(there.last_start_ns(), Some(number * 10 + 5));
        }
        first.leave();
        second.leave();
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    }
}
