//! Many small reads of another process's memory with one system call.

use nix::sys::uio::RemoteIoVec;
use nix::sys::uio::process_vm_readv;
use nix::unistd::Pid;
use std::io::IoSliceMut;

/// The most vectors of one call (IOV_MAX, include/uapi/linux/uio.h).
const MOST: usize = 1024;

/// A process to read.
pub(crate) struct Remote {
    pid: Pid,
}

impl Remote {
    pub(crate) fn new(pid: u32) -> Self {
        Self {
            pid: Pid::from_raw(pid.cast_signed()),
        }
    }

    /// Reads an object at each address; whether each could be read. 0 is never read.
    pub(crate) fn read<const N: usize>(
        &self,
        addresses: &[u64],
        objects: &mut [[u8; N]],
    ) -> Vec<bool> {
        let mut read = vec![false; addresses.len()];
        let mut next = 0;
        while next < addresses.len() {
            if addresses.get(next) == Some(&0) {
                next += 1;
                continue;
            }
            let remote: Vec<RemoteIoVec> = addresses
                .iter()
                .skip(next)
                .take(MOST)
                .take_while(|address| **address != 0)
                .map(|address| RemoteIoVec {
                    base: *address as usize,
                    len: N,
                })
                .collect();
            let end = next + remote.len();
            let Some(into) = objects.get_mut(next..end) else {
                break;
            };
            let mut local: Vec<IoSliceMut<'_>> = into
                .iter_mut()
                .map(|object| IoSliceMut::new(object))
                .collect();
            let whole = process_vm_readv(self.pid, &mut local, &remote).unwrap_or(0) / N;
            for done in read.iter_mut().skip(next).take(whole) {
                *done = true;
            }
            // The one at which it stopped cannot be read.
            next += whole + usize::from(whole < remote.len());
        }
        read
    }
}
