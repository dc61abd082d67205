//! `gctrace analyze`, mainly with bad input. Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::{Pause, Process, Record, TraceHeader};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording::wait_until;
use test_kit::{recording, records};

const PAUSE: &str = r#"{"ph":"X","cat":"gc","name":"gc gen2","pid":7,"tid":7,"ts":1000.000,"dur":50.500,"args":{"generation":2,"reason":"automatic","collected":3}}"#;

struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

fn gctrace(arguments: &[&Path], input: &[u8]) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gctrace"))
        .args(["analyze", "--full"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that has already failed reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.output_in_time().unwrap();
    Outcome {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A file with these bytes, in a directory that exists as long as the test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn add(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// Asserts exit code 1, no report, and a message that contains all `parts`.
fn refused(bytes: &[u8], expected: &[&str]) {
    let files = Files::new();
    let path = files.add("t.json", bytes);
    let outcome = gctrace(&[&path], b"");
    assert_eq!(outcome.code, Some(1), "{}", outcome.err);
    assert_eq!(outcome.out, "");
    assert!(!outcome.err.contains("panicked"), "{}", outcome.err);
    for part in expected.iter().chain(&["t.json"]) {
        assert!(outcome.err.contains(part), "{part:?} is not in: {}", outcome.err);
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child =
        Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    child.output_in_time().unwrap().stdout
}

#[test]
fn empty_file() {
    refused(b"", &["is empty", "sudo gctrace"]);
}

#[test]
fn not_a_trace() {
    refused(b"#!/bin/sh\n", &["line 1, byte 0", "not a trace", "#!/bin/sh"]);
    refused(b"\x7fELF\x02\x01", &["an executable"]);
    refused(b"{\"name\": \"a package\"}", &["without \"traceEvents\"", "byte 20"]);
    refused(b"{\"traceEvents\": \"none\"}", &["\"traceEvents\" is not an array", "byte 16"]);
    refused(b"[1, 2, \"x\"]", &["line 1, byte 1", "not an event", "none of which is a usable"]);
}

#[test]
fn no_garbage_collection() {
    refused(
        br#"[{"ph":"X","name":"work","pid":1,"tid":1,"ts":1,"dur":1}]"#,
        &["1 event, none of which is a usable garbage collection", "sudo gctrace"],
    );
}

#[test]
fn absurd_numbers_and_wrong_types_alone() {
    refused(
        br#"[
{"ph":"X","cat":"gc","pid":1,"tid":1,"ts":-1e300,"dur":1}]"#,
        &["line 2, byte 2", "\"ts\" is missing, negative, out of range"],
    );
    refused(
        br#"[{"ph":"X","cat":"gc","pid":[1],"tid":{},"ts":1,"dur":"x"}]"#,
        &["line 1, byte 1", "\"dur\" is missing"],
    );
}

#[test]
fn absurd_numbers_beside_good_ones_are_in_the_report() {
    let files = Files::new();
    let absurd = r#"{"ph":"X","cat":"gc","pid":7,"tid":7,"ts":1,"dur":99999999999999999999}"#;
    let path = files.add("t.json", format!("[\n{PAUSE},\n{absurd}]"));
    let outcome = gctrace(&[&path], b"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    let place = format!("line 3, byte {}", PAUSE.len() + 4);
    assert!(outcome.out.contains(&place), "{}", outcome.out);
    assert!(outcome.out.contains("50.5 µs"), "{}", outcome.out);
}

#[test]
fn cut_off() {
    let files = Files::new();
    let whole = format!("{{\"traceEvents\":[\n{PAUSE},\n{PAUSE}\n]}}\n");
    let path = files.add("t.json", &whole[..whole.len() - 40]);
    let outcome = gctrace(&[&path], b"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(outcome.out.contains("cut off at line 3"), "{}", outcome.out);
    assert!(outcome.out.contains("1 pause"), "{}", outcome.out);

    let packed = gzip(whole.as_bytes());
    let path = files.add("cut.json.gz", &packed[..packed.len() - 12]);
    let outcome = gctrace(&[&path], b"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(outcome.out.contains("cut off at"), "{}", outcome.out);
}

#[test]
fn damage_in_the_middle_is_an_error_with_a_report_up_to_it() {
    let files = Files::new();
    let path = files.add("t.json", format!("[{PAUSE},\n{{\"ph\" \"X\"}},\n{PAUSE}]"));
    let outcome = gctrace(&[&path], b"");
    assert_eq!(outcome.code, Some(1));
    let place = format!("line 2, byte {}: expected ':'", PAUSE.len() + 9);
    assert!(outcome.err.contains(&place), "{}", outcome.err);
    assert!(outcome.out.contains("Read up to the damage"), "{}", outcome.out);
}

#[test]
fn compressed_garbage() {
    refused(&gzip(b"garbage"), &["not a trace", "starts with \"garbage\""]);
    let broken = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0xff; 64]].concat();
    refused(&broken, &["of the compressed file", "gzip -t"]);
    refused(b"\x1f\x8b\x08", &["compressed data without text"]);
}

#[test]
fn a_directory_and_nothing() {
    let files = Files::new();
    let outcome = gctrace(&[files.0.path()], b"");
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""));
    assert!(outcome.err.contains("is a directory"), "{}", outcome.err);
    let outcome = gctrace(&[&files.0.path().join("none.json")], b"");
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""));
    assert!(outcome.err.contains("No such file"), "{}", outcome.err);
    assert_eq!(gctrace(&[], b"").code, Some(2), "no trace named is a usage error");
}

#[test]
fn standard_input_plain_and_compressed() {
    let text = format!("[{PAUSE}]");
    for input in [text.as_bytes(), &gzip(text.as_bytes())] {
        let outcome = gctrace(&[Path::new("-")], input);
        assert_eq!(outcome.code, Some(0), "{}", outcome.err);
        assert!(outcome.out.contains("1 pause"), "{}", outcome.out);
    }
}

#[test]
fn one_bad_trace_among_good_ones() {
    let files = Files::new();
    let good = files.add("good.json", format!("[{PAUSE}]"));
    let bad = files.add("bad.json", "hello");
    let other = files.add("other.json", format!("[{PAUSE}]"));
    let outcome = gctrace(&[&good, &bad, &other], b"");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("bad.json"), "{}", outcome.err);
    assert!(outcome.out.contains("in 2 pauses"), "{}", outcome.out);
    assert!(outcome.out.contains("Left out:"), "{}", outcome.out);
}

#[test]
fn json_without_escapes() {
    let files = Files::new();
    let path = files.add("t.json", format!("[{PAUSE}]"));
    let outcome = gctrace(&[&path, Path::new("--format=json")], b"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    let json: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(json["schema"], "gctrace.report/3");
    assert_eq!(json["totals"]["pauses"]["max_ns"], 50_500);
    let outcome = gctrace(&[&path], b"");
    assert!(!outcome.out.contains('\x1b'), "color on terminals only");
}

#[test]
fn a_report_in_a_file() {
    let files = Files::new();
    let trace = files.add("t.json", format!("[{PAUSE}]"));
    let (text, json) = (files.0.path().join("r.txt"), files.0.path().join("r.json"));
    let output = |path: &Path| PathBuf::from(format!("--output={}", path.display()));
    let shown = gctrace(&[&trace], b"").out;
    for path in [&text, &json] {
        let outcome = gctrace(&[&trace, &output(path)], b"");
        assert_eq!(outcome.code, Some(0), "{}", outcome.err);
        assert!(outcome.out.is_empty(), "{}", outcome.out);
    }
    assert_eq!(std::fs::read_to_string(&text).unwrap(), shown);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(json["schema"], "gctrace.report/3");
    let outcome = gctrace(&[&trace, &output(&text)], b"");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("exists"), "{}", outcome.err);
    let outcome = gctrace(&[&trace, &output(&trace), Path::new("--force")], b"");
    assert!(outcome.err.contains("is the trace itself"), "{}", outcome.err);
    assert!(std::fs::read_to_string(&trace).unwrap().contains("dur"));
}

#[test]
fn stacks_counters_and_pressure() {
    let files = Files::new();
    let frames = [
        r#"{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{"id":1,"function":"main","file":"train.py","line":9}}"#,
        r#"{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{"id":2,"parent":1,"function":"loads","file":"/usr/lib/python3.12/json/__init__.py","line":346}}"#,
    ];
    let pause = PAUSE.replacen(r#""args":{"#, r#""sf":2,"args":{"counters":{"page-faults":5},"#, 1);
    let pressure = r#"{"ph":"M","name":"gctrace_pressure","pid":7,"tid":7,"ts":2000000.000,"args":{"since_ns":0,"collections":1,"net_containers":1400}}"#;
    let path = files.add("t.json", format!("[\n{},\n{pause},\n{pressure}]", frames.join(",\n")));
    let outcome = gctrace(&[&path], b"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    for part in ["train.py:9 in main", "└ json/__init__.py:346 in loads", "page-faults", "700"] {
        assert!(outcome.out.contains(part), "{part}: {}", outcome.out);
    }
    let outcome = gctrace(&[&path, Path::new("--format=json")], b"");
    let json: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(json["lines"]["own"][0]["location"]["line"], 9);
    assert_eq!(json["lines"]["own"][0]["pauses"]["time_ns"], 50_500);
    assert_eq!(json["counters"]["counters"][0]["inside"], 5);
    assert_eq!(json["pressure"]["net_containers_per_s"], 700.0);
}

/// `gctrace analyze trace.json | head -1` ends without an error.
#[test]
fn closed_pipe() {
    let files = Files::new();
    let traces: Vec<PathBuf> =
        (0..200).map(|n| files.add(&format!("{n}.json"), format!("[{PAUSE}]"))).collect();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gctrace"))
        .args(["analyze", "--format=json"])
        .args(&traces)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.status_in_time().unwrap().code(), Some(0), "{err}");
    assert_eq!(err, "");
}

#[test]
fn a_trace_is_not_counted_twice() {
    let files = Files::new();
    let trace = files.add("trace.json", format!("[{PAUSE}]"));
    let link = files.0.path().join("link.json");
    std::os::unix::fs::symlink("trace.json", &link).unwrap();
    for second in [&trace, &link] {
        let twice = gctrace(&[&trace, second], b"");
        assert_eq!(twice.code, Some(1), "{}", twice.err);
        assert!(twice.err.contains("name each trace once"), "{}", twice.err);
        assert!(twice.out.is_empty(), "{}", twice.out);
    }
}

/// A process with a few pauses of this length.
fn paused_process(pid: u32, parent: u32, rank: Option<u32>, pause_ns: u64) -> Vec<Record> {
    let process = Record::Process(Process {
        pid,
        parent: Some(parent),
        rank,
        since_ns: 1_000_000_000,
        ..Process::default()
    });
    let pauses = (1..5).map(|second| {
        let start_ns = 1_000_000_000 + second * 1_000_000_000;
        Record::Pause(Pause {
            pid,
            tid: pid,
            start_ns,
            end_ns: start_ns + pause_ns,
            ..Pause::default()
        })
    });
    [process].into_iter().chain(pauses).collect()
}

/// A scheduler's launcher of two ranks, recorded as a whole on one host.
fn trace_of_node(host: &str, node: u32) -> Vec<u8> {
    let header = TraceHeader { host: host.to_owned(), rank: Some(node), ..records::header() };
    let mut all = paused_process(10, 1, Some(node), 90_000_000);
    for rank in [2 * node, 2 * node + 1] {
        let pause_ns = 20_000_000 + 1_000_000 * u64::from(rank);
        all.extend(paused_process(20 + rank, 10, Some(rank), pause_ns));
    }
    records::written(&header, &all, &records::end("the command ended"))
}

#[test]
fn a_launcher_is_no_rank_and_hosts_have_names() {
    let files = Files::new();
    let first = files.add("first.json", trace_of_node("node1", 0));
    let second = files.add("second.json", trace_of_node("node2", 1));
    let outcome = gctrace(&[&first, &second], b"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    let text = outcome.out.split_whitespace().collect::<Vec<_>>().join(" ");
    // The launchers were paused for longest, but rank 3 is the slowest of those that train.
    assert!(text.contains("of rank 3, the worst of 4 ("), "{text}");
    for trace in ["ranks 0-1 on node1: ", "ranks 2-3 on node2: "] {
        assert!(text.contains(trace), "{text}");
    }
    for process in ["node1 - 10 4 ", "node2 - 10 4 ", "node1 1 21 4 ", "node2 2 22 4 "] {
        assert!(text.contains(process), "{process:?} is not in: {text}");
    }
    // Of one host, its name is no column.
    let outcome = gctrace(&[&first, &first], b"");
    assert!(!outcome.out.contains("node1"), "{}", outcome.out);
}

/// Any of several threads may be first; the order of the command line decides.
#[test]
fn any_number_of_jobs_gives_the_same() {
    let files = Files::new();
    let mut traces: Vec<PathBuf> = (1..9)
        .map(|rank| {
            // The first ones are the longest.
            let pauses = vec![PAUSE.replace("50.500", &format!("{rank}.5")); 4000 / rank];
            files.add(&format!("{rank}.json"), format!("[{}]", pauses.join(",")))
        })
        .collect();
    traces.insert(2, files.add("empty.json", b""));
    traces.insert(5, files.0.path().join("missing.json"));
    traces.push(files.add("cut.json", format!("[{PAUSE},{{\"ph\":")));
    traces.push(files.add("other.json", b"#!/bin/sh"));
    let run = |arguments: &[&str]| {
        let options = arguments.iter().map(Path::new);
        let arguments: Vec<&Path> = options.chain(traces.iter().map(PathBuf::as_path)).collect();
        let outcome = gctrace(&arguments, b"");
        (outcome.code, outcome.out, outcome.err)
    };
    let alone = run(&["--format", "json", "--jobs", "1"]);
    assert_eq!(alone.0, Some(1), "{}", alone.2);
    let place = |name: &str| alone.2.find(name).unwrap();
    assert!(place("empty.json") < place("missing.json"), "{}", alone.2);
    assert!(place("missing.json") < place("other.json"), "{}", alone.2);
    for arguments in [
        &["--format", "json", "--jobs", "2"][..],
        &["--format", "json", "--jobs", "64"],
        &["--format", "json"],
    ] {
        assert!(run(arguments) == alone, "{arguments:?}");
    }
}

/// A trace that is still recorded and one whose recorder was killed look alike: the recorder's lock tells.
#[test]
fn a_trace_that_is_still_recorded_is_told_from_a_killed_one() {
    let files = Files::new();
    let program = "import gc, os, time\nwhile True: gc.collect(0); time.sleep(0.005)";
    for (name, keep) in
        [("t.json", None), ("t.json.zst", None), ("t.json.gz", None), ("ring", Some("1h"))]
    {
        let path = files.0.path().join(name);
        let mut command = Command::new(recording::binary());
        command.args(["record", "-q", "--mode", "inject", "-o", name]);
        command.args(keep.iter().flat_map(|keep| ["--keep", keep]));
        command
            .args(["--", "python3", "-c", program])
            .current_dir(files.0.path())
            .env_remove("SUDO_UID");
        let mut recorder = command.process_group(0).spawn().unwrap();
        let pid = recorder.id();
        let said = |outcome: Outcome| outcome.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let still = format!("Still recording (process {pid})");
        wait_until(&still, || {
            let said = said(gctrace(&[&path], b""));
            let is_killed = said.contains("was killed") || said.contains("cut off");
            // A compressed trace that has just begun does not tell yet whose it is.
            let has_begun = !said.contains("in 0 ns of recording");
            assert!(!is_killed || !has_begun, "{name}: {said}");
            said.contains(&still)
        });
        // Its command goes with it.
        let group = nix::unistd::Pid::from_raw(pid.cast_signed());
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
        recorder.wait().unwrap();
        let said = said(gctrace(&[&path], b""));
        let is_killed = said.contains("was killed") || said.contains("cut off");
        assert!(is_killed && !said.contains("Still recording"), "{name}: {said}");
    }
}
