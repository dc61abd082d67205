//! `libgctrace_inject.so`: in-process recording, and settings of the collector applied, without
//! root.
//!
//! Loaded by `LD_PRELOAD` into every program that gctrace starts, and by the CUDA driver if `CUDA_INJECTION64_PATH`
//! names it. Without `GCTRACE_RENDEZVOUS` or `GCTRACE_APPLY` in the environment it does nothing. It prints nothing,
//! installs no signal handler, starts no thread in programs that do not use CUDA, opens nothing but its rings and
//! CUPTI, and never lets a panic escape.
//!
//! - `dlopen`: libraries that the program opens at run time;
//! - `environment`: gctrace's variables; `confined`, `filters`: whether system calls may be made; `exec`: programs
//!   started without them; `exit`: the end;
//! - `rights`: hands over rings while that is possible;
//! - `process_ring`: the rings, and forks;
//! - `recording`: panics and broken invariants end the recording, not the program;
//! - `python`: the interpreter's hooks; `apply`: settings, as far as they need no interpreter;
//! - `loaded`: what the loader has mapped;
//! - `memory`: a heap of our own;
//! - `turns`: turns of loops;
//! - `cupti`: GPU work.
//!
//! Exports `dlopen` and `setlocale` (see `dlopen`), the functions that start programs (see `exec`) or give up rights
//! (see `rights`), `prctl`, `syscall` and `dlsym` (see `filters`), `_exit` (see `exit`), the
//! functions in which loops wait (see `turns`),
//! `torch::autograd::Engine::execute` (see `python/steps/backward`), and nothing else of its own. Needs the C library
//! and its loader, of the version that it was linked with or newer, and no other library: libgcc is linked statically,
//! see build.rs. Linked on Debian 12 (glibc 2.36, gcc 12) it requires glibc 2.35, for `_dl_find_object` (see `objdump
//! -T`): to run in older containers it must be linked on a system as old. With an older C library the loader would
//! refuse to start the whole program, so gctrace first loads the library into a process of its own.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod apply;
mod arch;
mod confined;
mod cupti;
mod dlopen;
mod environment;
mod exec;
mod exit;
mod filters;
mod loaded;
mod memory;
mod names;
mod process_ring;
mod python;
mod recording;
mod rights;
mod turns;

/// Run by the loader before the program's own code.
extern "C" fn begin() {
    recording::guarded(|| {
        let begun_ns = process_ring::thread_cpu_ns();
        exit::begin();
        turns::resolve();
        let (request, settings) = (environment::request(), environment::apply_options());
        if request.is_none() && settings.is_none() {
            return;
        }
        memory::begin();
        recording::begin();
        exec::begin();
        crate::rights::begin();
        filters::begin();
        let of_gctrace = match (&request, &settings) {
            (Some((options, _)), _) => options.filters,
            (None, Some(Ok(settings))) => settings.filters,
            _ => u32::MAX,
        };
        if confined::begins_confined(of_gctrace) {
            if let Some((_, rendezvous)) = request {
                gctrace_ring::Absence::Confined.report(&rendezvous);
            }
            return;
        }
        let applies = settings.is_some();
        if let Some(settings) = settings {
            apply::files::begin();
            python::apply::request(settings);
        }
        let records = request.is_some_and(|(options, rendezvous)| record(options, rendezvous));
        if records || applies {
            python::steps::begin();
            python::layers::begin();
            python::begin();
        }
        python::loaded(begun_ns);
    });
}

/// Starts to record; returns whether CPython is to be recorded.
fn record(options: gctrace_ring::InjectOptions, rendezvous: Vec<u8>) -> bool {
    process_ring::begin(options, rendezvous);
    turns::begin();
    if !options.follow {
        // SAFETY: the loader runs this before any thread of the program exists.
        unsafe { environment::scrub() };
        cupti::watch_for_driver();
    }
    options.collections || options.allocations || options.steps || options.heap > 0
}

/// Only in the library: programs that link the crate (tests) do not record themselves.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
