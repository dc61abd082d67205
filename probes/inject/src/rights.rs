//! Before the process gives up rights needed to hand over a ring: a forked process that is only announced so far hands
//! over its ring now.
//!
//! Filters of system calls: see `filters`, another caller.

use crate::exec::interpose;
use crate::process_ring::settle;
use libc::{c_int, c_uint, pid_t, rlimit, rlimit64, uid_t};
use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process, or an ancestor by fork, gave up rights: it is unknown what it may still open.
static ARE_GIVEN_UP: AtomicBool = AtomicBool::new(false);

pub(crate) fn are_given_up() -> bool {
    ARE_GIVEN_UP.load(Ordering::Relaxed)
}

/// The process is about to give up rights.
pub(crate) fn give_up() {
    ARE_GIVEN_UP.store(true, Ordering::Relaxed);
    settle();
}

interpose! {
    setuid(user: uid_t) before give_up();
    seteuid(user: uid_t) before give_up();
    setreuid(user: uid_t, effective: uid_t) before give_up();
    setresuid(user: uid_t, effective: uid_t, saved: uid_t) before give_up();
    chroot(path: *const c_char) before give_up();
    unshare(namespaces: c_int) before give_up();
    setrlimit(resource: c_uint, limit: *const rlimit) before give_up();
    setrlimit64(resource: c_uint, limit: *const rlimit64) before give_up();
    prlimit(process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit)
        before give_up_if(!new.is_null());
    prlimit64(process: pid_t, resource: c_uint, new: *const rlimit64, old: *mut rlimit64)
        before give_up_if(!new.is_null());
}

fn give_up_if(gives_up: bool) {
    if gives_up {
        give_up();
    }
}
