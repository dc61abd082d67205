//! The rights of this process beyond its user's, and how it gives them up.

use crate::privileges::NEEDED;
use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::resource::Resource;
use nix::sys::resource::getrlimit;
use nix::sys::resource::setrlimit;
use nix::unistd::Gid;
use nix::unistd::Uid;
use std::io;

/// Above every capability there can be: the sets have 64 bits.
const CAPABILITIES: u64 = 64;

/// `_LINUX_CAPABILITY_VERSION_3` (include/uapi/linux/capability.h).
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Whether this process has rights that its user lacks, by file capabilities or a setuid file
/// (`AT_SECURE`, getauxval(3)).
pub(crate) fn has_more_rights_than_its_user() -> bool {
    // SAFETY: reads a number from the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Gives up every capability for good: no exec can bring one back. System calls only, so that it
/// may run between fork and exec; the calling thread's alone.
///
/// # Errors
/// The kernel's, where a set could not be emptied.
pub(crate) fn renounce() -> io::Result<()> {
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
            // Without CAP_SETPCAP the set stays, and no_new_privs keeps it from having an effect; beyond
            // the last capability there is nothing to drop.
            let _ = libc::prctl(libc::PR_CAPBSET_DROP, capability, none, none, none);
        }
    }
    keep(0)
}

/// This is no program to be made setuid: whoever runs it would run everything as its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "gctrace's file is set-user-ID or set-group-ID, which would make every user its owner; undo it: sudo chmod ug-s $(command -v gctrace)"
)]
pub(crate) struct SetUserId;

/// To be called before there is any thread. With file capabilities it gives up all but those that loading
/// programs and placing probes need: what gctrace then reads of files and of `/proc`, the kernel checks as its
/// user's. Rights that the user has are kept.
///
/// # Errors
/// [`SetUserId`], or the kernel's.
pub(crate) fn keep_what_is_needed() -> anyhow::Result<()> {
    if Uid::current() != Uid::effective() || Gid::current() != Gid::effective() {
        return Err(SetUserId.into());
    }
    if has_more_rights_than_its_user() {
        let needed = NEEDED.iter().fold(0, |bits, needed| bits | 1 << needed.bit);
        keep(permitted()? & needed).context("cannot give up capabilities")?;
    }
    Ok(())
}

/// The capabilities that this thread may have in effect.
fn permitted() -> io::Result<u64> {
    let [_, low, _, _, high, _] = sets()?;
    Ok(u64::from(high) << 32 | u64::from(low))
}

/// The capabilities that this thread has in effect. Asked for without a file, of which there may be too many open.
pub(super) fn effective() -> io::Result<u64> {
    let [low, _, _, high, _, _] = sets()?;
    Ok(u64::from(high) << 32 | u64::from(low))
}

/// Effective, permitted and inheritable, of the lower 32 capabilities and then of the others.
fn sets() -> io::Result<[u32; 6]> {
    let header = [CAPABILITY_VERSION, 0];
    let mut sets = [0; 6];
    // SAFETY: a header for the calling thread and room for two triples of sets, as version 3 has them (capget(2)).
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    Ok(sets)
}

/// The capabilities that no exec can go beyond.
pub(super) fn bounding() -> u64 {
    // SAFETY: plain numbers. What the kernel does not know is an error, and not in the set.
    let has = |bit: &u64| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *bit, 0, 0, 0) } == 1;
    (0..CAPABILITIES)
        .filter(has)
        .fold(0, |set, bit| set | 1 << bit)
}

/// Whether no exec gives rights: neither sudo nor setcap works.
pub(super) fn gains_no_privileges() -> bool {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// Files that gctrace has open while it records from the kernel: some 50 on a machine with two CPUs and one interpreter.
const OPEN_FILES: u64 = 128;

/// Raises the limit of open files as far as it may be; the command gets the one it would have had. Why recording
/// from the kernel is not possible, if that is too little.
pub(crate) fn too_few_files() -> Option<String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    let limit = if raised.is_ok() { hard } else { soft };
    (limit < OPEN_FILES).then(|| {
        format!(
            "only {limit} files may be open at once, {OPEN_FILES} are needed; raise the limit: ulimit -n 1024"
        )
    })
}

/// Sets the permitted and effective capabilities to these bits, and empties the inheritable ones.
fn keep(bits: u64) -> io::Result<()> {
    let header = [CAPABILITY_VERSION, 0];
    let word = |half: u64| u32::try_from(half & 0xffff_ffff).unwrap_or_default();
    let (low, high) = (word(bits), word(bits >> 32));
    let sets = [low, low, 0, high, high, 0];
    // SAFETY: a header for the calling thread and two triples of sets, as version 3 has them (capset(2)).
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities belong to threads: those of the test runner stay.
    #[test]
    fn what_is_renounced_is_gone() {
        let status = std::thread::spawn(|| {
            renounce().expect("giving up needs no right");
            std::fs::read_to_string("/proc/thread-self/status").expect("own status")
        });
        let status = status.join().expect("the thread ends");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(
                status.contains(&format!("{set}:\t0000000000000000")),
                "{status}"
            );
        }
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }
}
