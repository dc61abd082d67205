//! Before the process gives up rights without which it could not hand over a ring: one that was forked
//! and is only announced so far hands it over now.
//!
//! A filter of system calls that is installed by the call itself, seccomp(2), is seen by what has to
//! precede it without privileges: `PR_SET_NO_NEW_PRIVS`, as by libseccomp and for Landlock.

use crate::exec::interpose;
use crate::process_ring::settle;
use libc::{c_int, c_uint, c_ulong, pid_t, rlimit, rlimit64, uid_t};
use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process, or one that it was forked from, gave up rights: what it may still open is
/// unknown.
static ARE_GIVEN_UP: AtomicBool = AtomicBool::new(false);

pub(crate) fn are_given_up() -> bool {
    ARE_GIVEN_UP.load(Ordering::Relaxed)
}

fn before_giving_up() {
    ARE_GIVEN_UP.store(true, Ordering::Relaxed);
    settle();
}

interpose! {
    setuid(user: uid_t) before before_giving_up();
    seteuid(user: uid_t) before before_giving_up();
    setreuid(user: uid_t, effective: uid_t) before before_giving_up();
    setresuid(user: uid_t, effective: uid_t, saved: uid_t) before before_giving_up();
    chroot(path: *const c_char) before before_giving_up();
    unshare(namespaces: c_int) before before_giving_up();
    setrlimit(resource: c_uint, limit: *const rlimit) before before_giving_up();
    setrlimit64(resource: c_uint, limit: *const rlimit64) before before_giving_up();
    prlimit(process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit)
        before settle_if(!new.is_null());
    prlimit64(process: pid_t, resource: c_uint, new: *const rlimit64, old: *mut rlimit64)
        before settle_if(!new.is_null());
    // Variadic in C, of up to four such arguments, which are in the same registers either way.
    prctl(option: c_int, second: c_ulong, third: c_ulong, fourth: c_ulong, fifth: c_ulong)
        before settle_if(matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS));
}

fn settle_if(gives_up: bool) {
    if gives_up {
        before_giving_up();
    }
}
