//! Before the process gives up rights without which it could not hand over a ring: one that was forked
//! and is only announced so far hands it over now.

use crate::exec::interpose;
use crate::process_ring::settle;
use libc::uid_t;
use std::ffi::c_char;

interpose! {
    setuid(user: uid_t) before settle();
    seteuid(user: uid_t) before settle();
    setreuid(user: uid_t, effective: uid_t) before settle();
    setresuid(user: uid_t, effective: uid_t, saved: uid_t) before settle();
    chroot(path: *const c_char) before settle();
}
