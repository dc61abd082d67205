//! Kernel tier: what gctrace reports about the running kernel matches what it does there.

use gctrace_ebpf::KernelSupport;
use std::fs;
use std::path::Path;
use std::process::Output;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// Collects 20 times and exits with 7.
const PROGRAM: &str = "import gc, os\nfor _ in range(20): gc.collect()\nraise SystemExit(7)";

/// `None`, with a skip message, if this process may not load BPF programs at all.
fn kernel(test: &str) -> Option<KernelSupport> {
    let support = KernelSupport::probe();
    if !support.permitted {
        eprintln!("skipped {test}: only root can try the kernel");
    }
    support.permitted.then_some(support)
}

fn run(arguments: &[&str], place: &Path) -> Output {
    recording::gctrace(arguments, place)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn manual_pauses(trace: &Path) -> usize {
    let pauses = Trace::read(trace).pauses();
    let manual = pauses.iter().filter(|pause| pause.reason == "manual");
    manual.count()
}

#[test]
fn doctor_agrees_with_what_recording_does() {
    let test = "doctor_agrees_with_what_recording_does";
    if kernel(test).is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let python = interpreters::any_python();
    let python = python.to_str().unwrap();
    let doctor = run(&["doctor"], place.path());
    let printed = text(&doctor.stdout);
    println!("{printed}");
    let command = ["--mode", "ebpf", "--", python, "-c", PROGRAM];
    let recording = run(&command, place.path());
    let recorded = recording.status.code() == Some(7);
    assert_eq!(
        printed.contains("Recording will work, ") || printed.contains("Recording will work;"),
        recorded,
        "{printed}{recording:?}"
    );
    if recorded {
        assert_eq!(manual_pauses(&place.path().join("trace.json")), 20);
    }
}

/// And `auto` falls back to in-process recording.
#[test]
fn a_kernel_that_lacks_something_is_refused_in_one_sentence() {
    let test = "a_kernel_that_lacks_something_is_refused_in_one_sentence";
    let Some(support) = kernel(test) else { return };
    if support.missing().is_empty() {
        eprintln!("skipped {test}: this kernel lacks nothing");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let python = interpreters::any_python();
    let python = python.to_str().unwrap();
    let pid = std::process::id().to_string();
    let commands: [&[&str]; 4] = [
        &["--mode", "ebpf", "--", python, "-c", PROGRAM],
        &["record", "-p", &pid, "-d", "1"],
        &["top", "--format", "text", "-n", "1", "-p", &pid],
        &["top", "--format", "text", "-n", "1"],
    ];
    for command in commands {
        let output = run(command, place.path());
        let printed = text(&output.stderr);
        println!("{command:?}:\n{printed}");
        assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
        let errors = printed.lines().filter(|line| line.contains("kernel"));
        let errors: Vec<&str> = errors.collect();
        let [error] = errors.as_slice() else {
            assert_eq!(errors.len(), 1, "one sentence: {printed}");
            continue;
        };
        assert!(error.contains(&support.release), "{printed}");
        assert!(error.contains("5.15"), "the version wanted: {printed}");
    }
    let doctor = text(&run(&["doctor"], place.path()).stdout);
    println!("{doctor}");
    assert!(doctor.contains("5.15"), "{doctor}");
    let output = run(&["--", python, "-c", PROGRAM], place.path());
    let printed = text(&output.stderr);
    println!("auto:\n{printed}");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(printed.contains("5.15"), "why: {printed}");
    let trace = Trace::read(&place.path().join("trace.json"));
    assert_eq!(trace.named("gctrace_header")[0].1["mode"], "inject");
    assert!(trace.pauses().len() >= 20);
}

/// A filter like a sandbox's: kills the process at the system calls by which kernels implement
/// probes (uretprobe is 335, uprobe 336 on x86-64).
const SANDBOXED: &str = "
import ctypes, gc, struct
libc = ctypes.CDLL(None, use_errno=True)
load, jump_at_least, jump_above, give = 0x20, 0x35, 0x25, 0x06
lines = [(load, 0, 0, 0), (jump_at_least, 0, 2, 335), (jump_above, 1, 0, 336), (give, 0, 0, 0x80000000), (give, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(lines), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
for _ in range(20): gc.collect()
raise SystemExit(7)
";

#[test]
fn return_probes_pass_seccomp_filters() {
    let test = "return_probes_pass_seccomp_filters";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let python = python.to_str().unwrap();
    let line = ["--mode", "ebpf", "--", python, "-c", SANDBOXED];
    let output = run(&line, place.path());
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(manual_pauses(&place.path().join("trace.json")), 20);
}

/// To be run alone, after others: no process is stopped, no gctrace program is loaded, no probe is
/// listed.
#[test]
fn nothing_is_left_behind() {
    let ours = || {
        libbpf_rs::query::ProgInfoIter::default()
            .filter(|program| program.name.to_string_lossy() == "at_entry")
            .count()
    };
    recording::wait_until("no program of ours is loaded", || ours() == 0);
    let events = fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap_or_default();
    assert_eq!(events, "", "uprobe_events");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stopped = processes.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let state = stat.rsplit_once(") ")?.1.chars().next()?;
        (state == 'T').then_some(stat)
    });
    assert_eq!(stopped.collect::<Vec<_>>(), Vec::<String>::new());
}
