//! Kernel tier: CUDA and NCCL calls against the log of fake libraries: each exactly once, on its
//! thread, in order, with its arguments.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// One call, from the fake's log or the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    function: String,
    start_ns: u64,
    end_ns: u64,
    stream: u64,
    bytes: u64,
    grid: u64,
}

impl Call {
    /// The fields that must be equal.
    fn identity(&self) -> (&str, u64, u64, u64) {
        (&self.function, self.stream, self.bytes, self.grid)
    }
}

/// Calls by process and thread, in order.
type Calls = BTreeMap<(u64, u64), Vec<Call>>;

/// A folder with the fake's libraries.
struct Fake {
    place: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let fake = Self { place: tempfile::tempdir().unwrap() };
        let folder = fake.libraries();
        std::fs::create_dir(&folder).unwrap();
        let driver = folder.join("libcuda.so.1");
        fake.compile("DRIVER", "cuda", &driver, &[]);
        let driver = driver.to_str().unwrap();
        fake.compile("RUNTIME", "cudart", &folder.join("libcudart.so.12"), &[driver]);
        fake.compile("NCCL", "nccl", &folder.join("libnccl.so.2"), &[driver]);
        fake
    }

    fn compile(&self, part: &str, name: &str, output: &Path, libraries: &[&str]) {
        let status = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-fvisibility=hidden"])
            .arg(format!("-D{part}"))
            .arg(format!("-DLIBRARY={name}"))
            .arg(format!("-Wl,-soname,{}", output.file_name().unwrap().to_str().unwrap()))
            .arg("-o")
            .arg(output)
            .arg(recording::scripts().join("fake_cuda.c"))
            .args(libraries)
            .status_in_time()
            .expect("cc runs");
        assert!(status.success());
    }

    fn libraries(&self) -> PathBuf {
        self.place.path().join("lib")
    }

    fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    fn command(&self, python: &Path, arguments: &[&str]) -> Vec<String> {
        [
            python.to_str().unwrap(),
            recording::scripts().join("cuda_calls.py").to_str().unwrap(),
            self.libraries().to_str().unwrap(),
        ]
        .into_iter()
        .chain(arguments.iter().copied())
        .map(str::to_owned)
        .collect()
    }

    /// Records the program with these options; `search`: the libraries are in its
    /// `LD_LIBRARY_PATH`, and so known before it starts.
    fn record(&self, options: &[&str], search: bool, arguments: &[&str]) -> Trace {
        let mut command = Command::new(recording::binary());
        command.args(["--mode", "ebpf"]).args(options).arg("--");
        command.args(self.command(&interpreters::any_python(), arguments));
        command.current_dir(self.place.path()).env_remove("SUDO_UID");
        command.env("FAKE_CUDA_LOG", self.log());
        if search {
            command.env("LD_LIBRARY_PATH", self.libraries());
        }
        let output = command.output_in_time().unwrap();
        assert!(output.status.success(), "{output:?}");
        let trace = Trace::read(&self.place.path().join("trace.json"));
        if !was_resumed_early(&trace) {
            trace.assert_nothing_lost();
        }
        trace
    }

    /// The calls in the fake's log.
    fn truth(&self) -> Calls {
        let mut calls = Calls::new();
        for entry in std::fs::read_dir(self.place.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let Some(rest) = name.strip_prefix("log.") else {
                continue;
            };
            let pid = rest.split('.').next().unwrap().parse().unwrap();
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let fields: Vec<&str> = line.split(' ').collect();
                let number = |index: usize| fields[index].parse::<u64>().unwrap();
                calls.entry((pid, number(1))).or_default().push(Call {
                    function: fields[0].to_owned(),
                    start_ns: number(2),
                    end_ns: number(3),
                    stream: number(4),
                    bytes: number(5),
                    grid: number(6),
                });
            }
        }
        for of_thread in calls.values_mut() {
            of_thread.sort_by_key(|call| call.start_ns);
        }
        calls
    }
}

/// Nanoseconds from the text of a time in microseconds with three decimals: exact.
fn nanoseconds(value: &Value) -> u64 {
    let text = value.to_string();
    let (whole, fraction) = text.split_once('.').unwrap();
    format!("{whole}{fraction:0<3}").parse().unwrap()
}

/// The calls of a trace, in the order of the file, by thread.
fn recorded(trace: &Trace) -> Calls {
    let mut calls = Calls::new();
    for event in &trace.events {
        let category = event["cat"].as_str().unwrap_or_default();
        if !matches!(category, "cuda_driver" | "cuda_runtime" | "nccl") {
            continue;
        }
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let start_ns = nanoseconds(&event["ts"]);
        let argument = |name: &str| event["args"][name].as_u64().unwrap_or(0);
        calls.entry((pid, tid)).or_default().push(Call {
            function: event["name"].as_str().unwrap().to_owned(),
            start_ns,
            end_ns: start_ns + nanoseconds(&event["dur"]),
            stream: argument("stream"),
            bytes: argument("bytes"),
            grid: event["args"]["grid"][0].as_u64().unwrap_or(0),
        });
    }
    calls
}

/// Asserts that every call is recorded once, on its thread, in order, with its arguments, and that
/// its times enclose the fake's own.
fn assert_same(recorded: &Calls, truth: &Calls) {
    assert_eq!(recorded.keys().collect::<Vec<_>>(), truth.keys().collect::<Vec<_>>(), "threads");
    for (thread, calls) in truth {
        let seen = &recorded[thread];
        let difference = seen.iter().zip(calls).find(|(a, b)| a.identity() != b.identity());
        assert_eq!(difference, None, "thread {thread:?}");
        assert_eq!(seen.len(), calls.len(), "thread {thread:?}");
        for (seen, call) in seen.iter().zip(calls) {
            assert!(seen.start_ns <= call.start_ns, "{seen:?} {call:?}");
            // Of launches only the entry is recorded.
            let both_ends = seen.end_ns > seen.start_ns;
            assert_eq!(both_ends, !seen.function.contains("Launch"), "{seen:?}");
            assert!(!both_ends || seen.end_ns >= call.end_ns, "{seen:?} {call:?}");
        }
    }
}

/// Records, and compares with the fake's log.
fn calls_equal_the_truth(test: &str, search: bool, arguments: &[&str]) -> Option<Calls> {
    if !recording::privileged(test) {
        return None;
    }
    let fake = Fake::new();
    let trace = fake.record(&["--cuda", "all"], search, arguments);
    let truth = fake.truth();
    assert_same(&recorded(&trace), &truth);
    let count: usize = truth.values().map(Vec::len).sum();
    println!("{test}: {count} calls of {} threads, each recorded once", truth.len());
    Some(truth)
}

#[test]
fn every_call_of_three_threads() {
    let test = "every_call_of_three_threads";
    if let Some(truth) = calls_equal_the_truth(test, true, &["everything", "200"]) {
        assert_eq!(truth.len(), 3);
        assert!(truth.values().all(|calls| calls.len() == 17 * 200));
    }
}

#[test]
fn libraries_that_are_loaded_late() {
    calls_equal_the_truth("libraries_that_are_loaded_late", false, &["late", "50"]);
}

#[test]
fn a_fork_after_initialization() {
    let truth = calls_equal_the_truth("a_fork_after_initialization", true, &["fork", "50"]);
    if let Some(truth) = truth {
        let processes: std::collections::BTreeSet<u64> =
            truth.keys().map(|(pid, _)| *pid).collect();
        assert_eq!(processes.len(), 2);
    }
}

/// Libraries that exist only in the program's own mount namespace, at a path where the host has
/// others or none.
#[test]
fn libraries_of_a_container() {
    let test = "libraries_of_a_container";
    if !recording::privileged(test) {
        return;
    }
    let fake = Fake::new();
    let inside = fake.place.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let (inside, libraries) = (inside.display(), fake.libraries());
    let script = recording::scripts().join("cuda_calls.py");
    let python = interpreters::any_python();
    let line = format!(
        "mount -t tmpfs none {inside} && cp {}/* {inside} && exec {} {} {inside} everything 50",
        libraries.display(),
        python.display(),
        script.display()
    );
    let output = Command::new(recording::binary())
        .args(["--mode", "ebpf", "--cuda", "all", "--", "unshare", "-m", "sh", "-c", &line])
        .current_dir(fake.place.path())
        .env("FAKE_CUDA_LOG", fake.log())
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&fake.place.path().join("trace.json"));
    assert_same(&recorded(&trace), &fake.truth());
}

#[test]
fn another_program_in_the_same_process() {
    let test = "another_program_in_the_same_process";
    if !recording::privileged(test) {
        return;
    }
    let fake = Fake::new();
    let trace = fake.record(&["--cuda", "all"], true, &["exec", "50"]);
    // The first program's log is lost with it; the second writes as many.
    let truth: usize = fake.truth().values().map(Vec::len).sum();
    let seen: usize = recorded(&trace).values().map(Vec::len).sum();
    assert_eq!((truth, seen), (3 * 17 * 50, 2 * 3 * 17 * 50));
}

#[test]
fn attaching_to_a_process_that_has_the_libraries() {
    let test = "attaching_to_a_process_that_has_the_libraries";
    if !recording::privileged(test) {
        return;
    }
    let fake = Fake::new();
    let go = fake.place.path().join("go");
    let line = fake.command(&interpreters::any_python(), &["wait", "50", go.to_str().unwrap()]);
    let mut program =
        Command::new(&line[0]).args(&line[1..]).env("FAKE_CUDA_LOG", fake.log()).spawn().unwrap();
    let pid = program.id();
    recording::wait_until("mapping the libraries", || {
        std::fs::read_to_string(format!("/proc/{pid}/maps"))
            .is_ok_and(|maps| maps.contains("libnccl.so.2"))
    });
    let mut gctrace = Command::new(recording::binary())
        .args(["record", "-v", "--cuda", "all", "-p", &pid.to_string()])
        .current_dir(fake.place.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let printed = std::io::BufReader::new(gctrace.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(printed);
    let armed = lines
        .by_ref()
        .map_while(Result::ok)
        .filter(|line| line.contains("functions probed"))
        .take(3);
    assert_eq!(armed.count(), 3);
    std::fs::write(&go, "").unwrap();
    assert!(program.status_in_time().unwrap().success());
    lines.for_each(drop);
    assert!(gctrace.status_in_time().unwrap().success());
    let trace = Trace::read(&fake.place.path().join("trace.json"));
    assert_same(&recorded(&trace), &fake.truth());
}

/// Whether the program ran before its probes were in place: gctrace had no CPU for 1.5 s.
fn was_resumed_early(trace: &Trace) -> bool {
    let notes = trace.named("gctrace_note");
    notes.iter().any(|(_, note)| note["message"].to_string().contains("guardian"))
}

/// Sum of `count` of all counted launches.
fn counted(trace: &Trace) -> u64 {
    trace.named("cuda launches").iter().map(|(_, args)| args["count"].as_u64().unwrap()).sum()
}

#[test]
fn launches_are_counted_by_default() {
    let test = "launches_are_counted_by_default";
    if !recording::privileged(test) {
        return;
    }
    let fake = Fake::new();
    let trace = fake.record(&[], true, &["everything", "50"]);
    let seen = recorded(&trace);
    let truth = fake.truth();
    let launches = |calls: &Calls| {
        let calls = calls.values().flatten();
        calls.filter(|call| call.function.contains("Launch")).count() as u64
    };
    assert_eq!(launches(&seen), 0);
    assert_eq!(counted(&trace), launches(&truth));
    let others =
        |calls: &Calls| calls.values().map(Vec::len).sum::<usize>() as u64 - launches(calls);
    assert_eq!(others(&seen), others(&truth));
}

#[test]
fn calls_that_were_not_requested_are_not_recorded() {
    let test = "calls_that_were_not_requested_are_not_recorded";
    if !recording::privileged(test) {
        return;
    }
    let fake = Fake::new();
    let trace = fake.record(&["--cuda", "sync"], true, &["everything", "20"]);
    assert_eq!(counted(&trace), 0);
    let seen = recorded(&trace);
    assert!(seen.values().flatten().all(|call| !call.function.contains("Launch")));
    assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 3 * 20 * 11);
    let trace = fake.record(&["--cuda", "off"], true, &["everything", "20"]);
    assert_eq!(recorded(&trace), Calls::new());
    assert!(!trace.end()["probes"].to_string().contains("launches"));
}

/// 50,000 launches a second for 5 s: none is lost. (The achieved rate depends on the machine; the sum is exact.)
#[test]
fn a_flood_of_launches() {
    let test = "a_flood_of_launches";
    if !recording::privileged(test) {
        return;
    }
    for mode in ["launches", "all"] {
        let fake = Fake::new();
        let trace = fake.record(&["--cuda", mode], true, &["flood", "5", "50000"]);
        if was_resumed_early(&trace) {
            eprintln!(
                "skipped {test}: the machine is too busy to place probes within 1.5 s (--cuda {mode})"
            );
            continue;
        }
        let truth: u64 = fake.truth().values().map(|calls| calls.len() as u64).sum();
        let written: usize = recorded(&trace).values().map(Vec::len).sum();
        let seen = counted(&trace) + written as u64;
        println!("{test}: {truth} launches in 5 s, {seen} recorded (--cuda {mode})");
        assert_eq!(seen, truth);
    }
}
