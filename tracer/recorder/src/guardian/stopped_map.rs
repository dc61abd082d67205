//! The map of stopped programs, through bpf(2) alone: the guardian does not need libbpf.

use nix::errno::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Commands of bpf(2) (`enum bpf_cmd`, include/uapi/linux/bpf.h).
const BPF_MAP_LOOKUP_ELEM: i64 = 1;
const BPF_MAP_DELETE_ELEM: i64 = 3;
const BPF_MAP_GET_NEXT_KEY: i64 = 4;

/// More keys than the map can hold mean that it changes as fast as it is read.
const MAX_KEYS: usize = 1 << 20;

/// The part of `union bpf_attr` for commands on map elements. The kernel extends a shorter struct
/// with zeros.
#[repr(C)]
struct ElementAttribute {
    map: u32,
    padding: u32,
    key: u64,
    /// Address of the next key, or of the value.
    other: u64,
    flags: u64,
}

/// A BPF hash map: u32 process id -> u64 time of the stop.
#[derive(Debug)]
pub(super) struct StoppedMap {
    descriptor: OwnedFd,
}

impl StoppedMap {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// All keys, once each, and their values: CLOCK_MONOTONIC in ns.
    pub(super) fn pids_and_times(&self) -> io::Result<Vec<(u32, Duration)>> {
        let pids = self.pids()?;
        let times = pids.into_iter().filter_map(|pid| {
            let mut since_ns = 0_u64;
            // A process that was removed meanwhile is no longer stopped.
            self.call(BPF_MAP_LOOKUP_ELEM, &raw const pid, (&raw mut since_ns).cast()).ok()?;
            Some((pid, Duration::from_nanos(since_ns)))
        });
        Ok(times.collect())
    }

    /// The pids of all stopped processes, each once.
    pub(super) fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        let mut last = None;
        while let Some(pid) = self.next_key(last)? {
            if pids.len() >= MAX_KEYS {
                break;
            }
            pids.push(pid);
            last = Some(pid);
        }
        // A key that is deleted meanwhile restarts the walk (`htab_map_get_next_key`).
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Removes a key, if it is present.
    pub(super) fn remove(&self, pid: u32) {
        let _ = self.call(BPF_MAP_DELETE_ELEM, &raw const pid, std::ptr::null_mut());
    }

    fn next_key(&self, after: Option<u32>) -> io::Result<Option<u32>> {
        let mut next = 0_u32;
        let key = if let Some(of) = &after { std::ptr::from_ref(of) } else { std::ptr::null() };
        match self.call(BPF_MAP_GET_NEXT_KEY, key, (&raw mut next).cast()) {
            Ok(()) => Ok(Some(next)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn call(&self, command: i64, key: *const u32, other: *mut libc::c_void) -> Result<(), Errno> {
        let attribute = ElementAttribute {
            map: u32::try_from(self.descriptor.as_raw_fd()).map_err(|_| Errno::EBADF)?,
            padding: 0,
            key: key as u64,
            other: other as u64,
            flags: 0,
        };
        // SAFETY: `key` is null or points to a live u32, the key size of every map given here. `other` is null, or
        // points to the command's output: a key, or a u64, the value size of every such map. The struct's size is
        // passed.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                &raw const attribute,
                size_of::<ElementAttribute>(),
            )
        };
        Errno::result(result).map(drop)
    }
}
