//! Capabilities of this process, and how it drops them.

use crate::platform::has_more_rights_than_its_user;
use crate::privileges::{Capabilities, FOR_OTHERS, NEEDED};
use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid};
use std::io;

/// Number of bits in a capability set; above any capability.
const CAPABILITIES: u64 = 64;

/// `_LINUX_CAPABILITY_VERSION_3` (include/uapi/linux/capability.h).
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Drops all capabilities of the calling thread permanently, also across exec. Makes system calls
/// only, so that it may run between fork and exec.
///
/// # Errors
/// A capability set could not be cleared.
pub fn renounce() -> io::Result<()> {
    let none: libc::c_ulong = 0;
    // SAFETY: plain numbers.
    unsafe {
        Errno::result(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, none, none, none))?;
        Errno::result(libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            none,
            none,
            none,
        ))?;
        for capability in 0..CAPABILITIES {
            // Fails without CAP_SETPCAP (no_new_privs then makes the set ineffective), and for numbers beyond the last
            // capability.
            let _ = libc::prctl(libc::PR_CAPBSET_DROP, capability, none, none, none);
        }
    }
    keep(0)
}

/// gctrace must not be setuid: every user could run any command as its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "gctrace's file is set-user-ID or set-group-ID and would let every user act as its owner; undo it: sudo chmod ug-s $(command -v gctrace)"
)]
pub(crate) struct SetUserId;

/// Must be called before any thread is started. With file capabilities, drops all except those for
/// loading programs and placing probes, so that the kernel checks accesses to files and `/proc` as
/// the user's. Privileges of the user are kept.
///
/// # Errors
/// A file with the set-user-id bit, or a failed system call.
pub fn keep_what_is_needed() -> anyhow::Result<()> {
    if Uid::current() != Uid::effective() || Gid::current() != Gid::effective() {
        return Err(SetUserId.into());
    }
    if has_more_rights_than_its_user() {
        let needed = NEEDED.iter().fold(0, |bits, needed| bits | 1 << needed.bit);
        keep(permitted()? & needed).context("cannot give up capabilities")?;
    }
    Ok(())
}

/// The permitted capabilities of this thread.
fn permitted() -> io::Result<u64> {
    let [_, low, _, _, high, _] = sets()?;
    Ok(u64::from(high) << 32 | u64::from(low))
}

/// The effective capabilities of this thread. Read by a system call, as opening a file could hit the
/// limit of open files.
pub(super) fn effective() -> io::Result<u64> {
    let [low, _, _, high, _, _] = sets()?;
    Ok(u64::from(high) << 32 | u64::from(low))
}

/// The effective, permitted and inheritable sets: first the lower 32 bits of each, then the upper.
fn sets() -> io::Result<[u32; 6]> {
    let header = [CAPABILITY_VERSION, 0];
    let mut sets = [0; 6];
    // SAFETY: a header for the calling thread and room for two triples of sets, as version 3 has them (capget(2)).
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    Ok(sets)
}

/// Whether the processes of other users can be recorded, as far as `/proc` is concerned: as root, or
/// with CAP_SYS_PTRACE that a service manager gave the user (ambient). File capabilities were
/// dropped at the start ([`keep_what_is_needed`]).
pub fn may_inspect_all_users() -> bool {
    Uid::effective().is_root() || has_ptrace()
}

/// Whether this is root of a container or a service that may not inspect other users' processes.
pub fn is_root_without_ptrace() -> bool {
    Uid::effective().is_root() && !has_ptrace()
}

fn has_ptrace() -> bool {
    let [ptrace, _] = FOR_OTHERS;
    effective().is_ok_and(|effective| Capabilities(effective).allow(ptrace))
}

/// The capability bounding set of this process, one bit per capability.
pub(super) fn bounding() -> u64 {
    // SAFETY: plain numbers. A capability that the kernel does not know is an error, and not in the set.
    let has = |bit: &u64| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *bit, 0, 0, 0) } == 1;
    (0..CAPABILITIES).filter(has).fold(0, |set, bit| set | 1 << bit)
}

/// Whether no exec gives rights: neither sudo nor setcap works.
pub(super) fn gains_no_privileges() -> bool {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// Number of open files that recording by kernel probes needs: about 50 on a machine with two CPUs
/// and one interpreter.
const OPEN_FILES: u64 = 128;

/// Raises the soft limit of open files to the hard limit; the command keeps the original one. Returns
/// why recording by kernel probes is not possible, if the limit is too low.
pub fn too_few_files() -> Option<String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    let limit = if raised.is_ok() { hard } else { soft };
    if limit >= OPEN_FILES {
        return None;
    }
    Some(format!(
        "the limit of open files is {limit}, but {OPEN_FILES} are needed; raise it: ulimit -n 1024"
    ))
}

/// Sets the permitted and effective capabilities to these bits, and empties the inheritable ones.
fn keep(bits: u64) -> io::Result<()> {
    let header = [CAPABILITY_VERSION, 0];
    let (low, high) = (bits as u32, (bits >> 32) as u32);
    let sets = [low, low, 0, high, high, 0];
    // SAFETY: a header for the calling thread and two triples of sets, as version 3 has them (capset(2)).
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities are per thread: the test runner's are not affected.
    #[test]
    fn renounced_capabilities_are_gone() {
        let status = std::thread::spawn(|| {
            renounce().expect("dropping capabilities needs none");
            std::fs::read_to_string("/proc/thread-self/status").expect("own status")
        });
        let status = status.join().expect("the thread ends");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
        }
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }
}
