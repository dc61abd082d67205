//! The rights of this process beyond its user's, and how it gives them up.

use nix::errno::Errno;
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
