//! Kernel tier: samples of what threads execute, against the CPU time that they measure themselves.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// Samples a second.
const HERTZ: u64 = 499;

/// By how much a share by samples may differ from that of CPU time: of 1,000 samples and more, five standard
/// deviations and what starts and ends the measured calls.
const CLOSE: f64 = 0.08;

/// Interpreters of every kind: the pairs of name and build.
macro_rules! on_sampled_interpreters {
    ($check:path) => {
        test_kit::on_interpreters! {
            $check;
            system_python => "system-3.11",
            cpython_3_8 => "pyenv-3.8",
            cpython_3_12 => "pyenv-3.12",
            debian_3_13 => "debian-3.13-shared",
            debian_3_14 => "debian-3.14",
            free_threaded_3_14 => "manylinux-3.14t",
        }
    };
}
pub(super) use on_sampled_interpreters;

/// A program that writes what it measures itself, recorded with samples.
pub(super) struct SampledRun {
    python: PathBuf,
    place: TempDir,
    /// What it wrote.
    pub(super) truth: Value,
    /// The report on its trace, which lost nothing.
    pub(super) report: Value,
}

impl SampledRun {
    /// `None` if the test cannot run here.
    pub(super) fn of(test: &str, name: &str, script: &str, options: &[&str]) -> Option<Self> {
        if !recording::privileged(test) {
            return None;
        }
        Self::in_mode("ebpf", test, name, script, options)
    }

    /// The same in this mode.
    pub(super) fn in_mode(
        mode: &str,
        test: &str,
        name: &str,
        script: &str,
        options: &[&str],
    ) -> Option<Self> {
        let python = interpreters::python(test, name)?.path.clone();
        let place = tempfile::tempdir().unwrap();
        let (truth, script) = (place.path().join("truth.json"), recording::scripts().join(script));
        let program = [&python, &script, &truth].map(|path| path.to_str().unwrap());
        let line: Vec<&str> = ["--mode", mode].iter().chain(options).copied().collect();
        let line: Vec<&str> = line.into_iter().chain(["--"]).chain(program).collect();
        let output = recording::gctrace(&line, place.path());
        assert!(output.status.success(), "{output:?}");
        Trace::read(&place.path().join("trace.json")).assert_nothing_lost();
        let (truth, report) = (recording::json(&truth), analyzed(place.path()));
        Some(Self { python, place, truth, report })
    }

    /// The samples of a process in an interval; of a record at its ends the part that lies in it.
    fn samples_within(&self, pid: &Value, interval: &Value) -> f64 {
        let [from, until] = [0, 1].map(|at| interval[at].as_u64().unwrap());
        let trace = self.trace();
        let records = trace.events.iter();
        let records =
            records.filter(|event| event["name"] == "gctrace_samples" && event["pid"] == *pid);
        let within = records.map(|event| {
            let first = recording::nanoseconds(&event["ts"]);
            let last = event["args"]["until_ns"].as_u64().unwrap();
            let inside = last.min(until).saturating_sub(first.max(from)) as f64;
            let is_in = first >= from && last <= until;
            let count = event["args"]["count"].as_f64().unwrap();
            if is_in { count } else { count * inside / (last - first).max(1) as f64 }
        });
        within.sum()
    }

    pub(super) fn trace(&self) -> Trace {
        Trace::read(&self.place.path().join("trace.json"))
    }

    /// The events of its trace with this name.
    pub(super) fn events(&self, name: &str) -> Vec<Value> {
        self.trace().events.into_iter().filter(|event| event["name"] == name).collect()
    }

    /// A process of the report.
    pub(super) fn process(&self, pid: &Value) -> &Value {
        cpu_of(&self.report, pid)
    }
}

on_sampled_interpreters!(check);

fn check(test: &str, name: &str) {
    let options = ["--sample", &HERTZ.to_string()];
    let Some(run) = SampledRun::of(test, name, "sampled.py", &options) else {
        return;
    };
    let truth = &run.truth;
    let cpu = run.process(&truth["pid"]);
    let total = cpu["samples"].as_u64().unwrap();
    let known = truth["process"].as_u64().unwrap() as f64 / 1e9;
    let spent = truth["spent"].as_u64().unwrap() as f64 / 1e9;
    let sampled = run.samples_within(&truth["pid"], &truth["window"]) / HERTZ as f64;
    assert!((sampled / spent - 1.0).abs() < 0.05, "{sampled} s by samples of {spent} s");
    assert_eq!(cpu["threads"], 2);
    let share = |samples: u64| samples as f64 / total as f64;
    for function in ["first", "second", "collected", "native"] {
        let truth = truth["times"][function].as_u64().unwrap() as f64 / 1e9 / known;
        let sampled = share(samples_of(cpu, function));
        assert!((sampled - truth).abs() < CLOSE, "{function}: {sampled} of {truth}");
    }
    let in_pauses = share(cpu["in_pauses"].as_u64().unwrap());
    let collected = share(samples_of(cpu, "collected"));
    assert!((in_pauses - collected).abs() < CLOSE, "{in_pauses} of {collected}");
    let files = cpu["files"].as_array().unwrap().iter();
    let named: Vec<&str> = files.filter_map(|file| file["file"].as_str()).collect();
    assert!(named.iter().any(|file| file.contains("python")), "{named:?}");
    pstats_agrees(&run, total);
    let child = run.process(&truth["child"]);
    let all = child["samples"].as_u64().unwrap();
    assert!(samples_of(child, "forked") * 10 > all * 8, "{child}");
}

/// Prints the samples of two functions of a profile, the CPU time of all, and who calls one of them.
const PSTATS: &str = "\
import json, pstats
stats = pstats.Stats('cpu.pstats').stats
own = {function: sum(row[1] for key, row in stats.items() if key[2] == function) for function in ('first', 'native')}
callers = [caller[2] for key, row in stats.items() if key[2] == 'first' for caller in row[4]]
print(json.dumps({'own': own, 'seconds': sum(row[2] for row in stats.values()), 'callers': callers}))
";

/// Python reads the exported profile, and it has the samples of the report.
fn pstats_agrees(run: &SampledRun, total: u64) {
    let (place, report) = (run.place.path(), &run.report);
    let arguments = ["export", "trace.json", "--by", "cpu", "-o", "cpu.pstats"];
    let output = recording::gctrace(&arguments, place);
    assert!(output.status.success(), "{output:?}");
    let mut command = Command::new(&run.python);
    let output = command.args(["-c", PSTATS]).current_dir(place).output_in_time().unwrap();
    assert!(output.status.success(), "{output:?}");
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The child's samples too.
    let seconds = total as f64 / HERTZ as f64;
    assert!((read["seconds"].as_f64().unwrap() / seconds) > 0.8, "{read} of {seconds} s");
    // A line that the report leaves out has no more samples than one that it lists.
    const LINES: u64 = 4;
    let processes = || report["cpu"].as_array().unwrap().iter();
    let least = |cpu: &Value| {
        let lines = cpu["lines"].as_array().unwrap().iter();
        lines.map(|line| line["samples"].as_u64().unwrap()).min().unwrap_or(0)
    };
    let left_out = processes().map(|cpu| LINES * least(cpu)).sum::<u64>();
    for function in ["first", "native"] {
        let all: u64 = processes().map(|cpu| samples_of(cpu, function)).sum();
        let own = read["own"][function].as_u64().unwrap();
        assert!((all..=all + left_out).contains(&own), "{own} of {all} to {left_out} more: {read}");
    }
    assert_eq!(read["callers"], serde_json::json!(["timed"]), "{read}");
}

/// The report on the trace in a folder.
fn analyzed(place: &Path) -> Value {
    let output = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn cpu_of<'a>(report: &'a Value, pid: &Value) -> &'a Value {
    let mut sampled = report["cpu"].as_array().unwrap().iter();
    sampled.find(|cpu| cpu["pid"] == *pid).unwrap()
}

/// The samples of all lines of a function.
fn samples_of(cpu: &Value, function: &str) -> u64 {
    let lines = cpu["lines"].as_array().unwrap().iter();
    let of = lines.filter(|line| line["line"]["function"] == function);
    of.map(|line| line["samples"].as_u64().unwrap()).sum()
}

/// Attached: no probe has fired that stores where the interpreter is.
#[test]
fn a_running_process_that_does_not_collect() {
    const TEST: &str = "a_running_process_that_does_not_collect";
    const PROGRAM: &str = "\
def spin():
    total = 0
    while True:
        total += 1
print('ready', flush=True)
spin()
";
    if !recording::privileged(TEST) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(interpreters::any_python());
    command.args(["-c", PROGRAM]).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = program.id().to_string();
    let arguments = ["--mode", "ebpf", "--sample", "199", "--duration", "2", "-p", &pid];
    let output = recording::gctrace(&arguments, place.path());
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = analyzed(place.path());
    let cpu = cpu_of(&report, &serde_json::json!(program.id()));
    let all = cpu["samples"].as_u64().unwrap();
    assert!(all > 0 && samples_of(cpu, "spin") * 10 > all * 9, "{cpu}");
}

/// Waits of a thread that left the CPU before its process was recorded, and until after that.
mod unseen_switches {
    use super::*;

    on_sampled_interpreters!(check);

    /// Waits for a line, then for another, and prints when it had the first.
    const PROGRAM: &str = "\
import sys, time
def before():
    return sys.stdin.buffer.raw.readline()
def after():
    return sys.stdin.buffer.raw.readline()
print('ready', flush=True)
before()
print(time.monotonic_ns(), flush=True)
after()
";

    fn check(test: &str, name: &str) {
        if !recording::privileged(test) {
            return;
        }
        let Some(python) = interpreters::python(test, name) else {
            return;
        };
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(&python.path);
        command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let proc = PathBuf::from("/proc").join(program.id().to_string());
        recording::wait_until("it waits for its line", || {
            let call = std::fs::read_to_string(proc.join("syscall")).unwrap();
            call.starts_with(&format!("{} ", libc::SYS_read))
        });
        let started = Instant::now();
        let mut gctrace = Command::new(recording::binary())
            .args(["--mode", "ebpf", "-p", &program.id().to_string()])
            .current_dir(place.path())
            .env_remove("SUDO_UID")
            .spawn()
            .unwrap();
        let trace = place.path().join("trace.json");
        recording::wait_until("attached", || {
            std::fs::read_to_string(&trace).is_ok_and(|text| text.contains("found_by"))
        });
        let attached = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        let least = attached.elapsed();
        writeln!(program.stdin.as_ref().unwrap()).unwrap();
        let back_ns: u128 = lines.next().unwrap().unwrap().parse().unwrap();
        let most = started.elapsed();
        let again = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        let least_again = again.elapsed();
        kill(Pid::from_raw(gctrace.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        assert!(gctrace.status_in_time().unwrap().success());
        program.kill().unwrap();
        program.wait().unwrap();
        let trace = Trace::read(&trace);
        trace.assert_nothing_lost();
        let ended_ns = u128::from(trace.end()["ended_ns"].as_u64().unwrap());
        let report = analyzed(place.path());
        let main = &cpu_of(&report, &serde_json::json!(program.id()))["main_thread"];
        let wait = |function: &str| {
            let waits = main["off_cpu"].as_array().unwrap();
            let of = waits.iter().filter(|of| of["line"]["function"] == function);
            let of: Vec<&Value> = of.collect();
            assert_eq!(of.len(), 1, "{function}: {main}");
            let one = of[0];
            assert_eq!((&one["reason"], &one["times"]), (&"pipe".into(), &1.into()), "{main}");
            u128::from(one["time_ns"].as_u64().unwrap())
        };
        let (before, after) = (wait("before"), wait("after"));
        assert!((least.as_nanos()..=most.as_nanos()).contains(&before), "{before}, {main}");
        // It starts to wait once it has printed, which the test may see before.
        let most_again = ended_ns - back_ns;
        assert!(after <= most_again && after * 10 >= least_again.as_nanos() * 9, "{after}, {main}");
    }
}

/// Without privileges for probes there are no samples, and a message says so.
#[test]
fn in_process_there_are_none() {
    let place = tempfile::tempdir().unwrap();
    let python = interpreters::any_python();
    let output = recording::gctrace(
        &["--mode", "inject", "--sample", "99", "--", python.to_str().unwrap(), "-c", "pass"],
        place.path(),
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--sample needs kernel probes"), "{text}");
}
