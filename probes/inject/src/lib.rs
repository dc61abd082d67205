//! `libgctrace_inject.so`: what gctrace sees from within a program, without root.
//!
//! Loaded by `LD_PRELOAD` into every program that gctrace starts, and by the CUDA driver where
//! `CUDA_INJECTION64_PATH` names it. Without `GCTRACE_RENDEZVOUS` in the environment it does nothing. It prints
//! nothing, installs no signal handler, starts no thread in programs that use no CUDA, opens nothing but its rings
//! and CUPTI, and never lets a panic out.
//!
//! - `dlopen`: libraries that the program opens while it runs;
//! - `environment`: what is asked, by which variables; `exec`: programs that are started without them;
//! - `seccomp`: whether it has to keep still;
//! - `process`: the rings, and forks;
//! - `python`: the interpreter's hooks;
//! - `cupti`: GPU work.
//!
//! Exports `dlopen` and `setlocale` (see `dlopen`), the functions that start programs (see `exec`), and nothing else of
//! its own. Needs the C library and its loader, of the
//! version that it was linked with or newer, and no other library: libgcc is inside, see build.rs. Linked on
//! Debian 12 (glibc 2.36, gcc 12) it asks for glibc 2.35, for `_dl_find_object` (`objdump -T` tells): to run in
//! older containers it must be linked on as old a system. Where a program's C library is older the loader would
//! refuse the whole program, so gctrace first has the loader load it into itself.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cupti;
mod dlopen;
mod environment;
mod exec;
mod find;
mod names;
mod process_ring;
mod python;
mod seccomp;

pub use find::NotBuilt;
pub use find::find_library;

/// Run by the loader before the program's own code.
extern "C" fn begin() {
    // What unwinds is caught: the loader could not handle it. Nothing here is known to.
    let _ = std::panic::catch_unwind(|| {
        let Some((options, rendezvous)) = environment::request() else {
            return;
        };
        // The program's terminal is not ours. This is the standard library's copy inside of this file.
        std::panic::set_hook(Box::new(|_| {}));
        if seccomp::is_confined(options.filters) {
            return gctrace_ring::Absence::Confined.report(&rendezvous);
        }
        exec::begin();
        process_ring::begin(options, rendezvous);
        if options.collections || options.allocations {
            python::begin();
        }
        if !options.follow {
            // SAFETY: the loader runs this before any thread of the program can be.
            unsafe { environment::scrub() };
            cupti::watch_for_driver();
        }
    });
}

/// Only in the library: programs that link the crate (tests) are not observed by themselves.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
