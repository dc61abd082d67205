//! Kernel tier: `--alloc` on loops with known allocations, and that no probe is left behind.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use gctrace_ebpf::KernelSupport;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording::allocations::the_rate_is_estimated;
use test_kit::{interpreters, recording};

macro_rules! on_interpreters {
    ($($test:ident => $kind:literal on $name:literal,)*) => {$(
        #[test]
        fn $test() {
            let test = stringify!($test);
            if let Some(python) = interpreters::python(test, $name) {
                the_rate_is_estimated(test, &python.path, $kind);
            }
        }
    )*};
}

on_interpreters! {
    integers_on_a_stripped_python => "integers" on "system-3.11",
    integers_on_3_10 => "integers" on "pyenv-3.10",
    integers_on_3_11 => "integers" on "pyenv-3.11",
    integers_on_3_12 => "integers" on "pyenv-3.12",
    integers_on_3_13 => "integers" on "pyenv-3.13",
    growing_dictionaries_on_a_stripped_python => "growing" on "system-3.11",
    growing_dictionaries_on_3_12 => "growing" on "pyenv-3.12",
    json_loads_on_3_10 => "loads" on "pyenv-3.10",
    json_loads_on_3_13 => "loads" on "pyenv-3.13",
    json_dumps_on_a_stripped_python => "dumps" on "system-3.11",
    json_dumps_on_3_12 => "dumps" on "pyenv-3.12",
}

#[test]
fn a_kernel_without_multi_links_is_named() {
    let test = "a_kernel_without_multi_links_is_named";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    if KernelSupport::probe().uprobe_multi {
        eprintln!("skipped {test}: this kernel has uprobe multi links");
        return;
    }
    let line = ["--alloc", "--", python.to_str().unwrap(), "-c"];
    let script = "import gc; [gc.collect() for _ in range(20)]; raise SystemExit(7)";
    let output = recording::gctrace(&[&line[..], &[script]].concat(), place.path());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{printed}");
    let named = printed.matches("allocations are not counted").count();
    assert_eq!(named, 1, "{printed}");
    assert!(printed.contains("Linux 6.6"), "{printed}");
    let trace = recording::Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    assert!(trace.pauses().len() >= 20);
}

/// A limitation is reported once, and the program runs as before.
#[test]
fn a_free_threaded_interpreter_is_named() {
    let test = "a_free_threaded_interpreter_is_named";
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::python(test, "manylinux-3.14t") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let line = ["--alloc", "--", python.path.to_str().unwrap(), "-c"];
    let script = "import multiprocessing as m; [p.start() or p.join() for p in [m.Process(target=print)] * 1]; print('done')";
    let output = recording::gctrace(&[&line[..], &[script]].concat(), place.path());
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed.matches("allocations are not counted").count(), 1, "{printed}");
    assert!(printed.contains("free-threaded"), "{printed}");
}

/// Number of bytes in which the interpreter's code differs from its files, because of breakpoints:
/// one on x86-64 for each probe; `None` before the interpreter is loaded. Whole pages are compared
/// first: windows are open for some 20 ms, and this has to see one.
fn breakpoints(pid: u32) -> Option<usize> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut differing = None;
    for line in maps.lines().filter(|line| line.contains("r-xp") && line.contains("python")) {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = parts[0].split_once('-').unwrap();
        let (start, end, offset) = (number(start), number(end), number(parts[2]));
        // The last page may extend beyond the file.
        let file = std::fs::File::open(parts[5]).unwrap();
        let size = (end - start).min(file.metadata().unwrap().len() - offset);
        let mut loaded = vec![0; usize::try_from(size).unwrap()];
        let mut stored = loaded.clone();
        memory.read_exact_at(&mut loaded, start).unwrap();
        file.read_exact_at(&mut stored, offset).unwrap();
        let differing = differing.get_or_insert(0);
        for (loaded, stored) in loaded.chunks(4096).zip(stored.chunks(4096)) {
            if loaded != stored {
                *differing += loaded.iter().zip(stored).filter(|(a, b)| a != b).count();
            }
        }
    }
    differing
}

#[test]
fn no_probe_is_left_when_gctrace_is_killed_in_a_window() {
    let test = "no_probe_is_left_when_gctrace_is_killed_in_a_window";
    if !recording::privileged(test) {
        return;
    }
    if !KernelSupport::probe().uprobe_multi {
        eprintln!("skipped {test}: this kernel has no uprobe multi links");
        return;
    }
    let python = interpreters::any_python();
    let place = tempfile::tempdir().unwrap();
    let mut program = Command::new(&python)
        .arg(recording::scripts().join("allocate.py"))
        .args(["integers", "600"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The kernel removes probes of an earlier test's recording a little later.
    recording::wait_until("the code is at rest", || breakpoints(program.id()) == Some(0));
    // The first breakpoints of a window are seen while the kernel places others, or removes them.
    for _ in 0..5 {
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_gctrace"))
            .args(["--alloc", "--alloc-budget", "50", "-p", &program.id().to_string()])
            .current_dir(place.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // In a window more places have breakpoints than the collector's few.
        let mut fewest = None;
        recording::wait_until("a window is open", || {
            let now = breakpoints(program.id()).filter(|&number| number > 0);
            fewest = fewest.or(now).min(now.or(fewest));
            now > fewest
        });
        recorder.kill().unwrap();
        recorder.status_in_time().unwrap();
        recording::wait_until("all code is as before", || breakpoints(program.id()) == Some(0));
    }
    program.kill().unwrap();
    program.status_in_time().unwrap();
}
