//! Kernel tier: compares the figures of `gctrace top` with the trace of the same run and with the
//! program's own counts.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;
use test_kit::recording::top::{equal_to_trace, intervals_follow_each_other, objects};
use test_kit::recording::{Trace, wait_until};
use test_kit::{interpreters, recording};

/// Collections of all generations, one per reason, then the interpreter's statistics.
const PROGRAM: &str = "
import gc, json, sys
class Node: pass
kept, called = [], [0, 0, 0]
before = [one['collections'] for one in gc.get_stats()]
def callback(phase, info):
    if phase == 'stop': called[info['generation']] += 1
gc.callbacks.append(callback)
for step in range(400):
    for _ in range(300):
        node = Node(); node.me = node
    kept.append([[] for _ in range(150)])
    if step % 50 == 0: gc.collect(step // 50 % 3)
gc.disable()
gc.callbacks.clear()
print('{not an object of gctrace', flush=True)
json.dump({'stats': gc.get_stats(), 'called': called, 'before': before}, open(sys.argv[1], 'w'))
sys.exit(7)
";

test_kit::on_interpreters! {
    check;
    system_python => "system-3.11",
    cpython_3_8 => "pyenv-3.8",
    cpython_3_10 => "pyenv-3.10",
    cpython_3_12 => "pyenv-3.12",
    cpython_3_13 => "pyenv-3.13",
    debian_3_14 => "debian-3.14",
    incremental_3_14 => "manylinux-3.14-incremental",
    free_threaded_3_14 => "manylinux-3.14t",
}

fn check(test: &str, name: &str) {
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::python(test, name) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(recording::binary())
        .args(["top", "--format", "json", "-d", "0.1", "--record", "t.json"])
        .arg("--")
        .arg(&python.path)
        .args(["-c", PROGRAM, "truth.json"])
        .current_dir(place.path())
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{messages}");
    assert!(messages.contains("{not an object of gctrace"), "{messages}");
    let objects = objects(&output.stdout);
    let trace = Trace::read(&place.path().join("t.json"));
    trace.assert_nothing_lost();
    let last = objects.last().expect("an object");
    assert_eq!(last["recorder"]["lost"], serde_json::json!({}));
    assert_eq!(last["totals"]["processes"], 1);
    assert_eq!(last["processes"][0]["ended"]["code"], 7);
    equal_to_trace(last, &trace);
    intervals_follow_each_other(&objects);
    // CPython 3.14.0 - 3.14.4 does not count increments in its statistics (`gc_collect_increment`, Python/gc.c).
    if !python.is("incremental") {
        let truth = recording::json(&place.path().join("truth.json"));
        equal_to_truth(last, &truth);
    }
}

/// `gc.get_stats()` has all collections except those at interpreter shutdown.
fn equal_to_truth(last: &Value, truth: &Value) {
    let collections = &last["totals"]["collections"];
    let shutdown = |generation: usize| {
        let one = &collections["by_reason"]["shutdown"][generation]["count"];
        one.as_u64().unwrap_or(0)
    };
    let seen: Vec<u64> = (0..3)
        .map(|generation| {
            collections["pauses"][generation].as_u64().unwrap() - shutdown(generation)
        })
        .collect();
    let field = |generation: usize, name: &str| truth["stats"][generation][name].as_u64().unwrap();
    let printed: Vec<u64> = (0..3).map(|generation| field(generation, "collections")).collect();
    assert_eq!(seen, printed, "{truth}");
    let called: Vec<u64> = (0..3)
        .map(|generation| {
            truth["before"][generation].as_u64().unwrap()
                + truth["called"][generation].as_u64().unwrap()
        })
        .collect();
    assert_eq!(called, printed, "{truth}");
}

/// A running `gctrace top --format json`, read as it prints.
struct Top {
    process: Child,
    last: Arc<Mutex<Value>>,
}

impl Top {
    fn start(place: &Path, arguments: &[&str]) -> Self {
        let mut process = Command::new(recording::binary())
            .args(["top", "--format", "json", "-d", "0.1"])
            .args(arguments)
            .current_dir(place)
            .env_remove("SUDO_UID")
            .stdout(Stdio::piped())
            .stderr(fs::File::create(place.join("messages")).unwrap())
            .spawn()
            .unwrap();
        let last = Arc::new(Mutex::new(Value::Null));
        let shared = Arc::clone(&last);
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                *shared.lock().unwrap() = serde_json::from_str(&line).unwrap_or_default();
            }
        });
        Self { process, last }
    }

    /// The last printed object.
    fn last(&self) -> Value {
        self.last.lock().unwrap().clone()
    }

    /// Processes of the last object by pid.
    fn processes(&self) -> BTreeMap<u64, Value> {
        let last = self.last();
        let processes = last["processes"].as_array().into_iter().flatten();
        processes.map(|process| (process["pid"].as_u64().unwrap(), process.clone())).collect()
    }

    fn collections(&self, pid: u32) -> Option<u64> {
        let process = self.processes().remove(&u64::from(pid))?;
        let pauses = process["collections"]["pauses"].as_array()?;
        Some(pauses.iter().filter_map(Value::as_u64).sum())
    }

    fn interrupt(&mut self) -> Option<i32> {
        send(&self.process, Signal::SIGINT);
        self.process.status_in_time().unwrap().code()
    }
}

fn send(process: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process.id()).unwrap()), signal).unwrap();
}

/// Writes `ready-PID`; collects 25 times for each file `go-PID`; ends with 3 once there is `stop`. `child`: starts
/// another one of itself first, and waits for it.
const ON_DEMAND: &str = "
import gc, os, subprocess, sys, time
gc.disable()
me = str(os.getpid())
child = subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[1]]) if 'child' in sys.argv else None
open('ready-' + me, 'w').close()
while not os.path.exists('stop'):
    if os.path.exists('go-' + me):
        os.unlink('go-' + me)
        for _ in range(25): gc.collect(1)
    time.sleep(0.005)
if child: child.wait(120)
os._exit(3)
";

fn program(python: &Path, place: &Path, more: &[&str]) -> Child {
    let child = Command::new(python)
        .args(["-c", ON_DEMAND, ON_DEMAND])
        .args(more)
        .current_dir(place)
        .spawn()
        .unwrap();
    let ready = place.join(format!("ready-{}", child.id()));
    wait_until("ready", || ready.exists());
    child
}

fn go(place: &Path, pid: u32) {
    fs::write(place.join(format!("go-{pid}")), "").unwrap();
}

/// Pids of programs that are ready.
fn ready(place: &Path) -> Vec<u32> {
    let entries = fs::read_dir(place).unwrap().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("ready-")?.parse().ok()).collect()
}

#[test]
fn a_running_process_with_its_descendants() {
    let Some((python, place)) = recording::place_for("a_running_process_with_its_descendants")
    else {
        return;
    };
    let place = place.path();
    let mut parent = program(&python, place, &["child"]);
    wait_until("both are ready", || ready(place).len() == 2);
    let pid = parent.id().to_string();
    let mut top = Top::start(place, &["--record", "t.json", "-p", &pid]);
    wait_until("both are shown", || top.processes().len() == 2);
    for pid in ready(place) {
        assert_eq!(top.collections(pid), Some(0));
        go(place, pid);
        wait_until("all are counted", || top.collections(pid) == Some(25));
    }
    fs::write(place.join("stop"), "").unwrap();
    assert_eq!(parent.status_in_time().unwrap().code(), Some(3));
    assert_eq!(top.process.status_in_time().unwrap().code(), Some(0));
    wait_until("the last object", || {
        top.processes()
            .get(&u64::from(parent.id()))
            .is_some_and(|process| process["ended"]["code"] == 3)
    });
    let messages = fs::read_to_string(place.join("messages")).unwrap();
    assert!(messages.contains(&format!("process {pid} ended")), "{messages}");
    equal_to_trace(&top.last(), &Trace::read(&place.join("t.json")));
}

/// Other Python processes of the machine may be shown as well.
#[test]
fn every_process_as_it_comes_and_goes() {
    let Some((python, place)) = recording::place_for("every_process_as_it_comes_and_goes") else {
        return;
    };
    let place = place.path();
    let mut before = program(&python, place, &[]);
    let mut top = Top::start(place, &[]);
    wait_until("running processes are shown", || top.collections(before.id()) == Some(0));
    let mut after = program(&python, place, &["child"]);
    wait_until("new processes are shown", || {
        ready(place).len() == 3 && ready(place).iter().all(|pid| top.collections(*pid) == Some(0))
    });
    for pid in ready(place) {
        go(place, pid);
        wait_until("all are counted", || top.collections(pid) == Some(25));
    }
    send(&before, Signal::SIGKILL);
    before.status_in_time().unwrap();
    let end_of = |pid: u32| top.processes().get(&u64::from(pid)).map(|one| one["ended"].clone());
    wait_until("the killed process is shown as killed", || {
        end_of(before.id()).is_some_and(|end| end["signal"] == 9)
    });
    fs::write(place.join("stop"), "").unwrap();
    after.status_in_time().unwrap();
    wait_until("the ended process is shown as ended", || {
        end_of(after.id()).is_some_and(|end| end["code"] == 3)
    });
    assert!(!place.join("trace.json").exists(), "no trace was asked for");
    assert_eq!(top.interrupt(), Some(0));
}

/// Its figures do not wait for a process to appear.
#[test]
fn memory_and_cost_are_sampled() {
    let Some((python, place)) = recording::place_for("memory_and_cost_are_sampled") else {
        return;
    };
    let place = place.path();
    let mut program = program(&python, place, &[]);
    let mut top = Top::start(place, &["-p", &program.id().to_string()]);
    let resident = || {
        let processes = top.processes();
        let process = processes.get(&u64::from(program.id()))?;
        process["resident_bytes"].as_u64()
    };
    wait_until("memory is reported", || resident().is_some());
    let status = fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let truth: u64 = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .map(|number| number.trim().parse().unwrap())
        .unwrap();
    // The kernel keeps statm and status up to date by batches of pages for each CPU (mm/percpu_counter).
    assert!(resident().unwrap().abs_diff(truth * 1024) < 2 << 20);
    go(place, program.id());
    wait_until("hits are reported", || top.last()["recorder"]["hits"].as_u64().unwrap() >= 25);
    let recorder = top.last()["recorder"].clone();
    assert!(recorder["cpu_ns"].as_u64().unwrap() > 0, "{recorder}");
    assert!(recorder["resident_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!(top.interrupt(), Some(0));
    std::thread::sleep(Duration::from_millis(50));
    assert!(program.try_wait().unwrap().is_none(), "the process keeps running");
    fs::write(place.join("stop"), "").unwrap();
    program.status_in_time().unwrap();
}

/// Under `gctrace auto`: a heap that grows, then a while in which what holds is to be seen.
const GROWING: &str = "
kept = []
for i in range(9000):
    kept.extend([i] for i in range(300))
    step()
until = time.monotonic() + 2.5
while time.monotonic() < until:
    kept.append([0])
    step()
    time.sleep(0.01)
print(','.join(map(str, gc.get_threshold())), flush=True)
";

/// What `gctrace auto` holds is what the program itself reads.
#[test]
fn what_auto_does_is_shown() {
    let test = "what_auto_does_is_shown";
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::python(test, "pyenv-3.12") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(recording::binary())
        .args(["top", "--mode", "ebpf", "--format", "json", "-d", "0.5", "--"])
        .arg(recording::binary())
        .args(["auto", "--"])
        .arg(&python.path)
        .args(["-c", &format!("{OPTIMIZER}{GROWING}")])
        .current_dir(place.path())
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{messages}");
    let found = recording::json(&place.path().join("auto.json"));
    let objects = objects(&output.stdout);
    let shown: Vec<&Value> = objects
        .iter()
        .map(|one| &one["processes"][0]["auto"])
        .filter(|one| one.is_object())
        .collect();
    let last = shown.last().expect("it was shown");
    assert_eq!((&last["state"], &last["setting"]), (&"holding".into(), &found["setting"]));
    let setting = last["setting"].as_str().unwrap();
    let thresholds = setting.strip_prefix("threshold=").unwrap().split(",freeze").next().unwrap();
    // The third is larger by the collections that have ended blocks since the last full one: these count for none.
    let (young, old) = thresholds.rsplit_once(',').unwrap();
    let old: u32 = old.parse().unwrap();
    let is_held = |line: &str| {
        let third = line.strip_prefix(young).and_then(|third| third.strip_prefix(','));
        third.and_then(|third| third.parse::<u32>().ok()).is_some_and(|third| third >= old)
    };
    assert!(messages.lines().any(is_held), "{setting} {messages}");
    let saved = |end: &str| last["saved"][end].as_i64().expect("it is proven");
    assert!(saved("low_ns") < saved("mean_ns") && saved("mean_ns") < saved("high_ns"));
}
