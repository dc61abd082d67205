//! Allocations counted by the library, against a known number.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use gctrace_ring::{HookState, InjectOptions, class_of};
use test_kit::interpreters::interpreters;
use test_kit::preload::{Run, run};

/// Allocates COUNT blocks of SIZE bytes in each of THREADS threads per domain, also by calloc and
/// by realloc.
const SCRIPT: &str = r"
import ctypes, sys, threading
size, count, threads = map(int, sys.argv[1:])
api = ctypes.pythonapi
def function(name, *types):
    found = getattr(api, name)
    found.restype, found.argtypes = ctypes.c_void_p, types
    return found
pointer, number = ctypes.c_void_p, ctypes.c_size_t
def work():
    for domain in ('PyMem', 'PyObject'):
        malloc = function(domain + '_Malloc', number)
        calloc = function(domain + '_Calloc', number, number)
        realloc = function(domain + '_Realloc', pointer, number)
        free = function(domain + '_Free', pointer)
        for _ in range(count):
            free(malloc(size))
            free(calloc(1, size))
            free(realloc(realloc(None, size), size))
workers = [threading.Thread(target=work) for _ in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
";
/// Each count covers two domains with four allocations each.
const EACH: u64 = 8;

fn counting() -> InjectOptions {
    InjectOptions { allocations: true, ..InjectOptions::default() }
}

fn of_class(run: &Run, size: usize) -> (u64, u64) {
    assert!(run.status.success(), "{:?} {}", run.status, run.errors);
    assert_eq!(run.errors, "");
    let (since_ns, totals, _) = run.only().allocations.unwrap();
    assert!(since_ns > 0);
    let class = totals[class_of(size)];
    (class.count, class.bytes)
}

#[test]
fn counts_match_the_requests() {
    /// Nothing else in these programs is as large.
    const LARGE: usize = 20 << 20;
    const SMALL: usize = 500;
    for python in interpreters("counts_match_the_requests") {
        let ask = |size: usize, count: u64, threads: u64| {
            let mut command = python.command(SCRIPT);
            command.args([size as u64, count, threads].map(|number| number.to_string()));
            of_class(&run(counting(), command.env("PYTHONHASHSEED", "0")), size)
        };
        let expected = 10 * 4 * EACH;
        let large = (expected, expected * LARGE as u64);
        // An interpreter without ctypes cannot run this: that must not count as a pass.
        assert_eq!(ask(LARGE, 10, 4), large, "{}", python.name);
        // Small sizes by the difference of two runs: the interpreter allocates some itself.
        let (few, many) = (ask(SMALL, 100, 1), ask(SMALL, 5_100, 1));
        let difference = (many.0 - few.0).abs_diff(5_000 * EACH);
        assert!(difference <= 4, "{}: {difference}", python.name);
    }
}

#[test]
fn other_allocators_keep_working() {
    let script = "import tracemalloc, gc; tracemalloc.start(); kept = [bytearray(900) for _ in range(5000)]; \
                  print(tracemalloc.get_traced_memory()[0]); tracemalloc.stop(); del kept; gc.collect()";
    for python in interpreters("other_allocators_keep_working") {
        for (name, value) in
            [("PYTHONMALLOC", "debug"), ("PYTHONMALLOC", "malloc"), ("PYTHONDEVMODE", "1")]
        {
            let mut command = python.command(script);
            let run = run(counting(), command.env(name, value));
            if run.errors.contains("unknown") || run.errors.contains("not available") {
                eprintln!("{}: no {name}={value}", python.name);
                continue;
            }
            assert_eq!(run.errors, "", "{} {name}={value}", python.name);
            assert!(run.numbers()[0] > 5000 * 900, "{}", python.name);
            let (_, totals, _) = run.only().allocations.unwrap();
            assert!(totals[class_of(901)].count >= 5000, "{}", python.name);
        }
    }
}

#[test]
fn a_forked_childs_table_starts_at_zero() {
    let script = "import os\nkept = [bytearray(3000) for _ in range(10000)]\nif os.fork() == 0:\n \
                  more = [bytearray(3000) for _ in range(100)]\n os._exit(0)\nos.wait()\nprint(os.getpid())";
    for python in interpreters("a_forked_childs_table_starts_at_zero") {
        let run = run(counting(), &mut python.command(script));
        let parent = run.numbers()[0] as u32;
        let of = |parents: bool| {
            let ring = run.rings.iter().find(|ring| (ring.pid == parent) == parents);
            let (since_ns, totals, _) = ring.unwrap().allocations.unwrap();
            (since_ns, totals[class_of(3001)].count)
        };
        let (parents, childs) = (of(true), of(false));
        assert!(parents.1 >= 10_000, "{}", python.name);
        assert!((100..200).contains(&childs.1), "{}: {childs:?}", python.name);
        assert!(childs.0 > parents.0);
    }
}

#[test]
fn reported_when_it_starts() {
    for python in interpreters("reported_when_it_starts") {
        let only = InjectOptions { collections: false, ..counting() };
        let run = run(only, &mut python.command("import gc; gc.collect(); print(gc.callbacks)"));
        assert_eq!((run.output.trim(), run.errors.as_str()), ("[]", ""), "{}", python.name);
        let hooks: Vec<_> = run.only().hooks().into_iter().map(|hook| hook.0).collect();
        assert_eq!(hooks, [HookState::CountingAllocations]);
    }
}
