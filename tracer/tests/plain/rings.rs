//! Plain tier: how gctrace handles rings that a process hands over. The process is this test
//! itself, run as the command: it writes what the injected library would, so that the expected
//! trace is known exactly.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use gctrace_ring::{
    GpuMessage, GpuRecord, InjectOptions, Message, PYTHON_RECORDS, PythonMessage, RingGpuOp,
    RingHello, RingPause, RingProducer, RingRole, TimeInterval,
};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Output;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::Trace;

/// Names the part that a process started as the command plays.
const PART: &str = "GCTRACE_TEST_PART";

/// Not a test: what the recorded process does.
#[test]
#[ignore = "run by the other tests as the command that is recorded"]
fn command() {
    match std::env::var(PART).as_deref() {
        Ok("collects") => collects(),
        Ok("dies") => dies(),
        Ok("floods") => floods(),
        Ok("forks") => forks(),
        Ok("lies") => lies(),
        Ok("stays silent") => stays_silent(),
        Ok("offers twice") => offers_twice(),
        Ok("switches off") => switches_off(),
        part => panic!("{part:?} is not a part"),
    }
}

/// Records that do not fit into the ring.
const LOST: u64 = 936;

/// The options that gctrace passed to the library.
fn asked() -> InjectOptions {
    let options = std::env::var_os(gctrace_ring::OPTIONS_VARIABLE).unwrap();
    InjectOptions::parse(options.as_bytes())
}

fn now_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let now = nix::time::clock_gettime(clock).unwrap();
    u64::try_from(std::time::Duration::from(now).as_nanos()).unwrap()
}

fn ring<M: Message>(own_pid: u32) -> RingProducer<M> {
    let role = M::ROLE;
    let records = role.records(&asked());
    let (ring, descriptor) = RingProducer::create(records).unwrap();
    let hello = RingHello { time_namespace: 0, role, own_pid, at_ns: now_ns(), is_fork: false };
    let socket = std::env::var_os(gctrace_ring::RENDEZVOUS_VARIABLE).unwrap();
    assert!(gctrace_ring::offer(socket.as_bytes(), descriptor.as_fd(), &hello));
    ring
}

fn push_text<M: Message>(ring: &RingProducer<M>, text: &str, id: u32) {
    assert!(ring.push(&M::text(id, text.into())));
}

fn start(at_ns: u64, tid: u32) -> PythonMessage {
    PythonMessage::PauseStart { at_ns, tid, generation: 2, interpreter: 0 }
}

fn pause(start_ns: u64, end_ns: u64, tid: u32, frame: u32) -> PythonMessage {
    PythonMessage::Pause(RingPause {
        interval: TimeInterval { start_ns, end_ns },
        tid,
        generation: 2,
        collected: Some(3),
        frame,
        ..RingPause::default()
    })
}

/// An interpreter, a line, two collections, a kernel.
fn collects() {
    let pid = std::process::id();
    let python = ring::<PythonMessage>(pid);
    push_text(&python, "3.11.7 (main, Dec  4 2023)", 1);
    push_text(&python, "/opt/python/libpython3.11.so.1.0", 2);
    push_text(&python, "Trainer.step", 3);
    push_text(&python, "/home/me/train.py", 4);
    let records = [
        PythonMessage::Interpreter { at_ns: now_ns(), version: 1, file: 2, free_threaded: false },
        PythonMessage::Frame { id: 1, parent: 0, function: 3, file: 4, line: 12 },
        start(1_000_000, pid),
        pause(1_000_000, 3_000_000, pid, 1),
        start(5_000_000, pid),
        pause(5_000_000, 5_000_250, pid, 1),
    ];
    assert!(records.iter().all(|record| python.push(record)));
    let gpu = ring::<GpuMessage>(pid);
    push_text(&gpu, "_Z10add_kernelPfS_i", 1);
    assert!(gpu.push(&GpuMessage::Gpu(RingGpuOp {
        interval: TimeInterval { start_ns: 2_000_000, end_ns: 2_500_000 },
        work: GpuRecord::Kernel,
        copy_kind: 0,
        device: 1,
        context: 1,
        stream: 7,
        correlation: 9,
        bytes: 0,
        name: 1,
        graph: 0,
    })));
    std::process::exit(3);
}

/// Killed in a collection, right after reporting its start.
fn dies() {
    let pid = std::process::id();
    let python = ring::<PythonMessage>(pid);
    assert!(python.push(&start(now_ns(), pid)));
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// Writes more than its ring can hold before gctrace polls.
fn floods() {
    let pid = std::process::id();
    let (python, descriptor) = RingProducer::create(PYTHON_RECORDS).unwrap();
    for index in 0..PYTHON_RECORDS as u64 + LOST {
        python.push(&pause(index * 1000, index * 1000 + 10, pid, 0));
    }
    let hello = RingHello {
        time_namespace: 0,
        role: RingRole::Python,
        own_pid: pid,
        at_ns: now_ns(),
        is_fork: false,
    };
    let socket = std::env::var_os(gctrace_ring::RENDEZVOUS_VARIABLE).unwrap();
    assert!(gctrace_ring::offer(socket.as_bytes(), descriptor.as_fd(), &hello));
}

/// A hundred processes of one collection each.
fn forks() {
    let executable = std::env::current_exe().unwrap();
    let start = |_| {
        let mut child = std::process::Command::new(&executable);
        child.args(["--exact", "rings::command", "--ignored"]);
        child.env(PART, "dies").stdout(std::process::Stdio::null());
        child.spawn().unwrap()
    };
    let children: Vec<_> = (0..100).map(start).collect();
    for mut child in children {
        child.status_in_time().unwrap();
    }
}

/// Hands over something that is not a ring, and writes invalid records.
fn lies() {
    let socket = std::env::var_os(gctrace_ring::RENDEZVOUS_VARIABLE).unwrap();
    let hello = RingHello {
        time_namespace: 0,
        role: RingRole::Python,
        own_pid: 1,
        at_ns: u64::MAX,
        is_fork: true,
    };
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(gctrace_ring::offer(socket.as_bytes(), file.as_fd(), &hello));
    // A process with another's thread ids, and times that run backwards.
    let python = ring::<PythonMessage>(1);
    assert!(python.push(&pause(50, 10, u32::MAX, 77)));
}

/// Connects and sends nothing, repeatedly; then hands over a ring like any other process. Room in
/// that ring shows that gctrace has taken it; by then it must not have waited for the silent
/// connections.
fn stays_silent() {
    let socket = std::env::var_os(gctrace_ring::RENDEZVOUS_VARIABLE).unwrap();
    let connect = |_| std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let silent: Vec<_> = (0..20).map(connect).collect();
    let pid = std::process::id();
    let python = ring::<PythonMessage>(pid);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut pushed = 0;
    while pushed <= PYTHON_RECORDS as u64 {
        if python.push(&pause(pushed * 1000, pushed * 1000 + 10, pid, 0)) {
            pushed += 1;
        }
        assert!(std::time::Instant::now() < until, "the ring is not read");
    }
    let is_open = |peer: &std::os::unix::net::UnixStream| {
        peer.set_nonblocking(true).unwrap();
        let error = std::io::Read::read(&mut &*peer, &mut [0]).err();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    // A few may stay open for a while; the others were closed at once.
    let open = silent.iter().filter(|peer| is_open(peer)).count();
    std::process::exit(i32::try_from(open).unwrap());
}

/// A second ring while the first is in use, then one of another size.
fn offers_twice() {
    let pid = std::process::id();
    let first = ring::<PythonMessage>(pid);
    assert!(first.push(&pause(1000, 2000, pid, 0)));
    let second = ring::<PythonMessage>(pid);
    assert!(second.push(&pause(3000, 4000, pid, 0)));
    assert!(first.push(&pause(5000, 6000, pid, 0)));
    let (_large, descriptor) = RingProducer::<GpuMessage>::create(1 << 19).unwrap();
    let hello = RingHello {
        time_namespace: 0,
        role: RingRole::Gpu,
        own_pid: pid,
        at_ns: now_ns(),
        is_fork: false,
    };
    let socket = std::env::var_os(gctrace_ring::RENDEZVOUS_VARIABLE).unwrap();
    assert!(gctrace_ring::offer(socket.as_bytes(), descriptor.as_fd(), &hello));
    // gctrace looks into the map of this process, which must not be gone: after an exec the second
    // ring would be right.
    std::thread::sleep(std::time::Duration::from_secs(1));
}

/// A collection, one that has only started, and a fault of the library.
fn switches_off() {
    let pid = std::process::id();
    let (python, gpu) = (ring::<PythonMessage>(pid), ring::<GpuMessage>(pid));
    assert!(python.push(&pause(1000, 2000, pid, 0)));
    assert!(python.push(&start(3000, pid)));
    python.switch_off(now_ns(), format_args!("file.rs:7"));
    gpu.switch_off(now_ns(), format_args!("file.rs:7"));
    std::process::exit(3);
}

fn record(part: &str, folder: &Path) -> (Output, Trace) {
    let executable = std::env::current_exe().unwrap();
    let output = std::process::Command::new(recording::binary())
        .args(["record", "--mode", "inject", "--nvml-hz", "0", "-o", "trace.json", "--"])
        .arg(executable)
        .args(["--exact", "rings::command", "--ignored"])
        .current_dir(folder)
        .env(PART, part)
        .env_remove("SUDO_UID")
        .output_in_time()
        .expect("gctrace runs");
    let trace = Trace::read(&folder.join("trace.json"));
    (output, trace)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn records_of_a_process_are_written() {
    let folder = folder();
    let (output, trace) = record("collects", folder.path());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    trace.assert_nothing_lost();
    let pauses = trace.pauses();
    let times: Vec<_> = pauses.iter().map(|pause| (pause.start_ns, pause.end_ns)).collect();
    assert_eq!(times, [(1_000_000, 3_000_000), (5_000_000, 5_000_250)]);
    let frames = trace.frames();
    let frame = frames.values().next().expect("a frame");
    assert_eq!(frame["function"], "Trainer.step");
    assert_eq!((&frame["file"], &frame["line"]), (&"/home/me/train.py".into(), &12.into()));
    let kernel = trace.events.iter().find(|event| event["cat"] == "kernel").expect("a kernel");
    assert_eq!(kernel["name"], "add_kernel(float*, float*, int)");
    assert_eq!(kernel["args"]["device"], 1);
    let processes = trace.named("gctrace_process");
    let (_, last) = processes.last().expect("a process");
    assert_eq!(last["origin"], "launched");
    assert_eq!(last["interpreter"]["version"], "3.11.7");
    let exits = trace.named("gctrace_process_exit");
    assert_eq!(exits.len(), 1);
    assert_eq!(exits[0].1["code"], 3);
}

#[test]
fn a_process_killed_in_a_collection() {
    let folder = folder();
    let (output, trace) = record("dies", folder.path());
    assert_eq!(output.status.code(), Some(137));
    let unfinished: Vec<_> = trace
        .events
        .iter()
        .filter(|event| event["cat"] == "gc" && event["args"]["unfinished"] == true)
        .collect();
    assert_eq!(unfinished.len(), 1, "{:?}", trace.events);
}

#[test]
fn records_that_do_not_fit_are_counted() {
    let folder = folder();
    let (output, trace) = record("floods", folder.path());
    assert_eq!(trace.pauses().len(), PYTHON_RECORDS);
    let lost = trace.end()["lost"].as_object().unwrap().clone();
    let counts: Vec<_> = lost.values().filter_map(serde_json::Value::as_u64).collect();
    assert_eq!(counts, [LOST], "{lost:?}");
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(reported.contains(&format!("{LOST} events LOST")), "{reported}");
}

#[test]
fn silent_processes_do_not_delay_others() {
    let folder = folder();
    let (output, trace) = record("stays silent", folder.path());
    assert!(matches!(output.status.code(), Some(3 | 4)), "{output:?}");
    assert_eq!(trace.pauses().len(), PYTHON_RECORDS + 1);
    assert!(!trace.named("gctrace_process").is_empty());
}

#[test]
fn a_process_has_one_ring_per_role_of_the_requested_size() {
    let folder = folder();
    let (output, trace) = record("offers twice", folder.path());
    let starts: Vec<_> = trace.pauses().iter().map(|pause| pause.start_ns).collect();
    assert_eq!(starts, [1000, 5000], "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("a second ring was refused"), "{text}");
    assert!(text.contains("are not the length of the requested ring"), "{text}");
}

#[test]
fn a_hundred_killed_processes_are_all_recorded() {
    let folder = folder();
    let (_, trace) = record("forks", folder.path());
    trace.assert_nothing_lost();
    assert_eq!(trace.pauses().len(), 100);
    assert_eq!(trace.named("gctrace_process_exit").len(), 100);
}

#[test]
fn a_recording_that_the_library_switched_off_is_reported_once() {
    let folder = folder();
    let (output, trace) = record("switches off", folder.path());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let starts: Vec<_> = trace.pauses().iter().map(|pause| pause.start_ns).collect();
    assert_eq!(starts, [1000], "nothing is known of the end of the other");
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    let sentence = "was switched off: gctrace's library is faulty at file.rs:7";
    assert_eq!(reported.matches(sentence).count(), 1, "{reported}");
    let counted = "but 1 process in which gctrace's library switched itself off";
    assert!(reported.contains(counted), "{reported}");
}

#[test]
fn invalid_rings_and_records_are_refused() {
    let folder = folder();
    let (output, trace) = record("lies", folder.path());
    assert!(output.status.success(), "{output:?}");
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(reported.contains("a ring was refused"), "{reported}");
    let pauses = trace.pauses();
    assert_eq!(pauses.len(), 1);
    assert_eq!((pauses[0].start_ns, pauses[0].end_ns), (50, 50));
}
