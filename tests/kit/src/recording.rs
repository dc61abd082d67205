//! Runs the real gctrace on real interpreters, and reads its output with another JSON reader than
//! our own.

pub mod account;
pub mod allocations;
pub mod setcap;
pub mod steps;
pub mod terminal;
pub mod tmux;
pub mod top;
pub mod user;

use crate::interpreters::{any_python, root};
use crate::limit::WithTimeout as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// Time limit for all tests of a file, on a busy machine.
const LONGEST_S: u32 = 3600;

/// A test that types Ctrl-C must not depend on how it was started: `&` in a script and nohup ignore
/// signals, and everything that a test starts inherits that. The C runtime calls the functions of
/// this section before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static DISPOSITIONS: extern "C" fn() = reset_signals;

extern "C" fn reset_signals() {
    // Ends the tests of this file if one waits without a limit of its own, instead of waiting
    // forever.
    // SAFETY: a timer of this process alone; children do not inherit it.
    unsafe { libc::alarm(LONGEST_S) };
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: no thread exists yet, and the default disposition runs no code.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// The binary under test, which cargo puts above the folder of the test's own program.
pub fn binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        let executable = std::env::current_exe().expect("this test has a file");
        let folder = executable.ancestors().nth(2).expect("it is in debug/deps");
        let binary = folder.join("gctrace");
        assert!(binary.is_file(), "{}: not built", binary.display());
        binary.to_str().expect("UTF-8").to_owned()
    });
    &BINARY
}

/// Folder of the truth scripts.
pub fn scripts() -> PathBuf {
    root().join("tests/python")
}

/// Whether BPF programs may be loaded here; prints a skip message if not.
pub fn privileged(test: &str) -> bool {
    let support = gctrace_ebpf::KernelSupport::probe();
    let able = support.permitted && support.missing().is_empty();
    if !able {
        eprintln!("skipped {test}: recording needs root and a kernel with BPF ({support:?})");
    }
    able
}

/// Folder of the simulated libraries, or a named skip.
pub fn simulated_gpu(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("GCTRACE_SIMGPU").filter(|path| !path.is_empty());
    if folder.is_none() {
        eprintln!(
            "skipped {test}: GCTRACE_SIMGPU names no folder of simulated libraries; cargo run -p gctrace-simgpu --example lay_out -- DIR makes one"
        );
    }
    folder.map(PathBuf::from)
}

/// Starts gctrace; panics with its messages if it could not be run at all.
pub fn gctrace(arguments: &[&str], directory: &Path) -> Output {
    Command::new(binary())
        .args(arguments)
        .current_dir(directory)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("SUDO_UID")
        .output_in_time()
        .expect("gctrace runs")
}

/// A trace, as any JSON reader sees it.
#[derive(Debug)]
pub struct Trace {
    /// All entries of `traceEvents`.
    pub events: Vec<Value>,
}

/// One pause of a trace. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Pause {
    /// The process.
    pub pid: u64,
    /// The thread that collected.
    pub tid: u64,
    /// Start of the pause.
    pub start_ns: u64,
    /// End of the pause.
    pub end_ns: u64,
    /// The oldest generation that was collected.
    pub generation: u64,
    /// Why it was collected, as the trace has it.
    pub reason: String,
    /// Id of the innermost frame.
    pub stack: Option<u64>,
    /// All of `args`.
    pub args: Value,
}

impl Pause {
    /// A number of `args`, if it is there.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.args.get(name).and_then(Value::as_u64)
    }
}

/// Nanoseconds from the text of a time in microseconds with three decimals: exact.
pub fn nanoseconds(value: &Value) -> u64 {
    let text = value.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{fraction:0<3}").parse().expect("a time with three decimals")
}

impl Trace {
    /// Reads a whole trace; panics if it is no JSON.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let whole: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { events: whole["traceEvents"].as_array().expect("traceEvents").clone() }
    }

    /// All pauses, in the order of the file.
    pub fn pauses(&self) -> Vec<Pause> {
        self.events
            .iter()
            .filter(|event| event["cat"] == "gc" && event["ph"] == "X")
            .map(pause)
            .collect()
    }

    /// The pauses of one process.
    pub fn pauses_of(&self, pid: u64) -> Vec<Pause> {
        self.pauses().into_iter().filter(|pause| pause.pid == pid).collect()
    }

    /// The process's pid on the host: a script knows the one in its own namespace, which it writes
    /// to its truth as `pid`.
    pub fn host_pid(&self, truth: &Value) -> u64 {
        let inside = truth["pid"].as_u64().unwrap();
        let processes = self.named("gctrace_process");
        let mut in_namespace = processes.iter();
        in_namespace
            .find(|(_, args)| args["namespace_pid"].as_u64() == Some(inside))
            .map_or(inside, |(pid, _)| *pid)
    }

    /// Arguments of all metadata events of this name, with their process.
    pub fn named(&self, name: &str) -> Vec<(u64, &Value)> {
        let named = self.events.iter().filter(|event| event["name"] == name);
        named.map(|event| (event["pid"].as_u64().unwrap_or(0), &event["args"])).collect()
    }

    /// Frames by id.
    pub fn frames(&self) -> BTreeMap<u64, &Value> {
        self.named("gctrace_frame")
            .into_iter()
            .map(|(_, frame)| (frame["id"].as_u64().expect("id"), frame))
            .collect()
    }

    /// The last line's arguments.
    pub fn end(&self) -> &Value {
        self.named("gctrace_end").last().expect("a trace that was ended in order").1
    }

    /// Panics if the trace reports losses.
    pub fn assert_nothing_lost(&self) {
        assert_eq!(self.end()["lost"], serde_json::json!({}), "losses");
    }
}

/// Checks that the last line that a recording in `place` printed, its `trace.json` and the report have the same
/// pauses: without the walk of their garbage and without what they called. Returns the report, and the time
/// of the walks in ns.
pub fn assert_same_pauses(printed: &str, place: &Path) -> (Value, u64) {
    let json = gctrace(&["analyze", "--format", "json", "trace.json"], place);
    let report: Value = serde_json::from_slice(&json.stdout).expect("a report");
    let reported = [
        report["totals"]["pauses"]["time_ns"].as_u64().expect("a time"),
        report["worst"][0]["duration_ns"].as_u64().expect("a time"),
    ];
    let trace = Trace::read(&place.join("trace.json"));
    let times = |name: &str, time: &str| -> Vec<(u64, u64, u64)> {
        let named = trace.events.iter().filter(|event| event["name"] == name);
        let timed = named.filter_map(|event| {
            let time_ns = event["args"][time].as_u64()?;
            Some((event["tid"].as_u64()?, nanoseconds(&event["ts"]), time_ns))
        });
        timed.collect()
    };
    let (walked, called) =
        (times("gctrace_garbage", "cost_ns"), times("gctrace_called", "time_ns"));
    let own = |pause: &Pause| {
        let is_in = |(tid, at_ns, _): &&(u64, u64, u64)| {
            *tid == pause.tid && (pause.start_ns..=pause.end_ns).contains(at_ns)
        };
        let foreign = walked.iter().chain(&called).filter(is_in);
        let foreign_ns: u64 = foreign.map(|(.., time_ns)| time_ns).sum();
        (pause.end_ns - pause.start_ns).saturating_sub(foreign_ns)
    };
    let own: Vec<u64> = trace.pauses().iter().map(own).collect();
    let traced = [own.iter().sum(), own.iter().copied().max().unwrap_or_default()];
    assert_eq!(traced, reported, "the trace and the report");
    // `122 pauses, 191.528 ms in total, longest 10.279 ms; ...`
    let figure = |before: &str, after: &str| -> f64 {
        let (_, rest) = printed.split_once(before).expect(printed);
        rest.split_once(after).expect(printed).0.parse().expect(printed)
    };
    let last = [figure(" pauses, ", " ms in total"), figure("in total, longest ", " ms")];
    for (ms, ns) in last.into_iter().zip(reported) {
        assert!((ms - ns as f64 / 1e6).abs() < 0.0011, "{ns} in the report: {printed}");
    }
    (report, walked.iter().map(|(.., cost_ns)| cost_ns).sum())
}

fn pause(event: &Value) -> Pause {
    let start_ns = nanoseconds(&event["ts"]);
    Pause {
        pid: event["pid"].as_u64().unwrap(),
        tid: event["tid"].as_u64().unwrap(),
        start_ns,
        end_ns: start_ns + nanoseconds(&event["dur"]),
        generation: event["args"]["generation"].as_u64().unwrap(),
        reason: event["args"]["reason"].as_str().unwrap().to_owned(),
        stack: event["sf"].as_u64(),
        args: event["args"].clone(),
    }
}

/// Number of pauses of each generation.
pub fn by_generation<'a>(pauses: impl IntoIterator<Item = &'a Pause>) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::from([(0, 0), (1, 0), (2, 0)]);
    for pause in pauses {
        *counts.entry(pause.generation).or_default() += 1;
    }
    counts
}

/// One field of `gc.get_stats()` by generation.
pub fn stats(truth: &Value, field: &str) -> BTreeMap<u64, u64> {
    (0..3).map(|index| (index as u64, truth["stats"][index][field].as_u64().unwrap_or(0))).collect()
}

/// Collections by generation since `base`, which a forked process inherits from its parent.
pub fn collections_since_base(truth: &Value) -> BTreeMap<u64, u64> {
    let value =
        |which: &str, index: usize| truth[which][index]["collections"].as_u64().unwrap_or(0);
    (0..3).map(|index| (index as u64, value("stats", index) - value("base", index))).collect()
}

/// All JSON files of a folder.
pub fn truths(folder: &Path) -> Vec<Value> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| json(&entry.unwrap().path())).collect()
}

/// The system's interpreter and a fresh folder; `None`, with a skip message, if recording is not
/// possible.
pub fn place_for(test: &str) -> Option<(PathBuf, tempfile::TempDir)> {
    privileged(test).then(|| (any_python(), tempfile::tempdir().expect("a folder")))
}

/// Time limit in seconds: `GCTRACE_TEST_PATIENCE`, for emulated machines, or a minute.
fn patience_s() -> u64 {
    let given = std::env::var("GCTRACE_TEST_PATIENCE").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Waits until a condition is true; panics with `what` after a minute, or [`patience_s`].
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(patience_s());
    while !holds() {
        assert!(std::time::Instant::now() < patience, "{what} did not happen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Reads a JSON file.
pub fn json(path: &Path) -> Value {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a script of `tests/python` that imports the package gctrace, with a folder to write into and then these
/// arguments. Such a script ends with `ok`.
pub fn run_with_package(python: &Path, script: &str, arguments: &[&str]) {
    package_script(Command::new(python), script, arguments);
}

/// As [`run_with_package`], with a last argument `recorded`, in a process that gctrace records in-process.
pub fn run_with_package_recorded(python: &Path, script: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(binary());
    command.args(["record", "-q", "--mode", "inject", "-o"]).arg(folder.path().join("own.json"));
    command.arg("--").arg(python);
    package_script(command, script, &["recorded"]);
    let trace = json(&folder.path().join("own.json"));
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 10), "{trace}");
}

fn package_script(mut command: Command, script: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = command
        .arg(root().join("tests/python").join(script))
        .arg(folder.path())
        .args(arguments)
        .env("PYTHONPATH", root().join("packaging/python/src"))
        .env("GCTRACE_PROGRAM", binary())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .expect("it starts");
    assert!(output.status.success() && output.stdout.ends_with(b"ok\n"), "{script}: {output:?}");
}
