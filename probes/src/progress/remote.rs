//! Reads many small pieces of another process's memory with one system call.

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;

/// Maximum number of vectors per call (IOV_MAX, include/uapi/linux/uio.h).
const MOST: usize = 1024;

/// The process to read from.
pub(crate) struct RemoteProcess {
    pid: Pid,
}

impl RemoteProcess {
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid: Pid::from_raw(pid.cast_signed()) }
    }

    /// Reads an object at each address; returns whether each could be read. Address 0 is never read.
    pub(crate) fn read<const N: usize>(
        &self,
        addresses: &[u64],
        objects: &mut [[u8; N]],
    ) -> Vec<bool> {
        let mut read = vec![false; addresses.len()];
        let mut next = 0;
        while next < addresses.len() {
            if addresses[next] == 0 {
                next += 1;
                continue;
            }
            let remote: Vec<RemoteIoVec> = addresses
                .iter()
                .skip(next)
                .take(MOST)
                .take_while(|address| **address != 0)
                .map(|address| RemoteIoVec { base: *address as usize, len: N })
                .collect();
            let end = next + remote.len();
            let mut local: Vec<IoSliceMut<'_>> =
                objects[next..end].iter_mut().map(|object| IoSliceMut::new(object)).collect();
            let whole = process_vm_readv(self.pid, &mut local, &remote).unwrap_or(0) / N;
            for done in read.iter_mut().skip(next).take(whole) {
                *done = true;
            }
            // The call stopped at an unreadable vector.
            next += whole + usize::from(whole < remote.len());
        }
        read
    }

    /// Reads each object and then each word, in one call if all of them can be read, so that little
    /// time passes in between. Nothing is read at address 0.
    pub(crate) fn read_pairs<const N: usize>(&self, objects: &[u64], words: &[u64]) -> Pairs<N> {
        let wanted: Vec<usize> = (0..objects.len()).filter(|index| objects[*index] != 0).collect();
        let vector =
            |of: &[u64], index: usize, len: usize| RemoteIoVec { base: of[index] as usize, len };
        let of_objects = wanted.iter().map(|index| vector(objects, *index, N));
        let of_words = wanted.iter().map(|index| vector(words, *index, 8));
        let remote: Vec<RemoteIoVec> = of_objects.chain(of_words).collect();
        let mut bytes = vec![0; wanted.len() * (N + 8)];
        let mut local = [IoSliceMut::new(&mut bytes)];
        let possible = !wanted.is_empty() && remote.len() <= MOST;
        let all = possible
            && process_vm_readv(self.pid, &mut local, &remote) == Ok(wanted.len() * (N + 8));
        if !all {
            return self.read_in_turn(objects, words);
        }
        let mut pairs = vec![None; objects.len()];
        let (of_objects, of_words) = bytes.split_at(wanted.len() * N);
        let read = of_objects.as_chunks::<N>().0.iter().zip(of_words.as_chunks::<8>().0);
        for (index, (object, word)) in wanted.iter().zip(read) {
            pairs[*index] = Some((*object, *word));
        }
        pairs
    }

    fn read_in_turn<const N: usize>(&self, objects: &[u64], words: &[u64]) -> Pairs<N> {
        let mut of_objects = vec![[0; N]; objects.len()];
        let mut of_words = vec![[0; 8]; words.len()];
        let objects_read = self.read(objects, &mut of_objects);
        let words_read = self.read(words, &mut of_words);
        let pairs = of_objects.into_iter().zip(of_words);
        let read = objects_read.into_iter().zip(words_read);
        let pairs = pairs.zip(read);
        pairs.map(|(pair, read)| if read == (true, true) { Some(pair) } else { None }).collect()
    }
}

/// Objects and words; `None` if either cannot be read.
pub(crate) type Pairs<const N: usize> = Vec<Option<([u8; N], [u8; 8])>>;
