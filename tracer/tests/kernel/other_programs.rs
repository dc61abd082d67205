//! Kernel tier: programs that run the same interpreter and are not recorded.
//!
//! Truth: the code in the memory of the recorded program, compared with the file; `gc.get_stats()` of
//! every program. Other recordings on the machine may have probes in the same files: the hits in other
//! programs are those in the trace.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use gctrace_ebpf::KernelSupport;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Output};
use test_kit::interpreters::Python;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::{on_interpreters, recording};

/// Collections of the other program, which it makes when asked to.
const OTHERS: u64 = 1000;

/// Writes `NAME.ready`, waits for `NAME.go`, collects COUNT times, writes its number of collections
/// to `NAME.count`, waits for `NAME.stop`. Ends with its test, whose folder then is gone.
const PROGRAM: &str = "
import gc, os, sys, time
def wait(name):
    while not os.path.exists(name):
        if not os.path.exists('program.py'): os._exit(1)
        time.sleep(0.005)
name, count = sys.argv[1:3]
gc.disable()
open(name + '.ready', 'w').close()
wait(name + '.go')
for _ in range(int(count)): gc.collect()
with open(name + '.new', 'w') as file:
    file.write(str(sum(each['collections'] for each in gc.get_stats())))
os.rename(name + '.new', name + '.count')
wait(name + '.stop')
os._exit(0)
";

/// As above, then starts two children, in the order given: a fork and a program. They collect as
/// soon as they run.
const TREE: &str = "
import gc, os, subprocess, sys, time
def wait(name):
    while not os.path.exists(name):
        if not os.path.exists('program.py'): os._exit(1)
        time.sleep(0.005)
order = sys.argv[1]
gc.disable()
def collections(): return sum(each['collections'] for each in gc.get_stats())
def write(name, count):
    with open(name + '.new', 'w') as file: file.write(str(count))
    os.rename(name + '.new', name + '.count')
def fork():
    before = collections()
    child = os.fork()
    if child == 0:
        for _ in range(30): gc.collect()
        write('forked', collections() - before)
        os._exit(0)
    os.waitpid(child, 0)
def spawn():
    open('spawned.go', 'w').close(), open('spawned.stop', 'w').close()
    subprocess.run([sys.executable, 'program.py', 'spawned', '40'], check=True)
open('own.ready', 'w').close()
wait('own.go')
before = collections() if order.startswith('attached') else 0
for _ in range(20): gc.collect()
for start in (fork, spawn) if order.endswith('fork') else (spawn, fork): start()
for _ in range(20): gc.collect()
write('own', collections() - before)
wait('own.stop')
os._exit(0)
";

/// Another thread than the main one executes the program, when `thread.go` is there.
const EXECUTES: &str = "
import gc, os, sys, threading, time
def wait(name):
    while not os.path.exists(name):
        if not os.path.exists('program.py'): os._exit(1)
        time.sleep(0.005)
gc.disable()
def execute():
    open('thread.ready', 'w').close()
    wait('thread.go')
    with open('thread.count', 'w') as file:
        file.write(str(sum(each['collections'] for each in gc.get_stats())))
    os.execv(sys.executable, [sys.executable, 'program.py', 'alone', '50'])
threading.Thread(target=execute).start()
threading.Event().wait()
";

fn touch(place: &Path, name: &str) {
    fs::write(place.join(name), "").unwrap();
}

fn wait_for(place: &Path, name: &str) {
    recording::wait_until(name, || place.join(name).exists());
}

/// Lets a program collect; returns its number of collections.
fn collect(place: &Path, name: &str) -> u64 {
    touch(place, &format!("{name}.go"));
    wait_for(place, &format!("{name}.count"));
    let text = fs::read_to_string(place.join(format!("{name}.count")));
    text.unwrap().parse().unwrap()
}

/// Whether code that a process runs differs from its file: a probe is a breakpoint there.
fn has_probes(pid: u32) -> bool {
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let code = maps.lines().filter(|line| line.contains(" r-xp "));
    let mut compared = 0;
    let mut changed = false;
    for line in code.filter(|line| line.contains("python")) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (start, end, offset) = (number(start), number(end), number(fields[2]));
        let file = fs::File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}")).unwrap();
        let there = (end - start).min(file.metadata().unwrap().len() - offset) as usize;
        let (mut mapped, mut stored) = (vec![0; there], vec![0; there]);
        memory.read_exact_at(&mut mapped, start).unwrap();
        file.read_exact_at(&mut stored, offset).unwrap();
        compared += 1;
        changed |= mapped != stored;
    }
    assert!(compared > 0, "{maps}");
    changed
}

/// A folder with two programs that are not recorded and wait; `None`, with a skip message, if recording
/// is not possible.
struct Neighbor {
    place: tempfile::TempDir,
    others: Vec<(&'static str, Ended)>,
}

/// A process that is killed when its test ends early.
struct Ended(Child);

impl Ended {
    fn succeeds(&mut self) {
        assert!(self.0.status_in_time().unwrap().success());
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Neighbor {
    fn start(test: &str, name: &str) -> Option<(Self, Python)> {
        let python = test_kit::interpreters::python(test, name)?;
        if !recording::privileged(test) {
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("program.py"), PROGRAM).unwrap();
        fs::write(place.path().join("tree.py"), TREE).unwrap();
        let others = ["later", "other"].map(|name| {
            let program = Self::program(&python, place.path(), name, OTHERS);
            wait_for(place.path(), &format!("{name}.ready"));
            (name, program)
        });
        Some((Self { place, others: others.into() }, python))
    }

    /// In a session of its own, as a service: its children can be stopped before they run.
    fn program(python: &Python, place: &Path, name: &str, count: u64) -> Ended {
        Self::python(python, place, &["program.py", name, &count.to_string()])
    }

    fn python(python: &Python, place: &Path, arguments: &[&str]) -> Ended {
        let mut command = Command::new("setsid");
        command.arg(&python.path).args(arguments);
        Ended(command.current_dir(place).spawn().unwrap())
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    fn gctrace(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(recording::binary());
        command.args(arguments).current_dir(self.path());
        Ended(command.spawn().unwrap())
    }

    /// Lets the recorded tree end: its number of collections, counted by each of its processes.
    fn collect_tree(&self) -> u64 {
        let collect = collect(self.path(), "own");
        let children = ["forked", "spawned"].map(|name| {
            let text = fs::read_to_string(self.path().join(format!("{name}.count")));
            text.unwrap().parse::<u64>().unwrap()
        });
        collect + children.iter().sum::<u64>()
    }

    /// Lets another program collect and end.
    fn collect(&mut self) {
        let (name, mut program) = self.others.pop().unwrap();
        assert!(collect(self.path(), name) >= OTHERS);
        touch(self.path(), &format!("{name}.stop"));
        program.succeeds();
    }

    /// The recorded process, once its program waits.
    fn recorded(&self, name: &str) -> u32 {
        wait_for(self.path(), &format!("{name}.ready"));
        let trace = self.path().join("trace.json");
        let mut pid = None;
        recording::wait_until("the interpreter is known", || {
            let text = fs::read_to_string(&trace).unwrap_or_default();
            let value: Value = serde_json::from_str(&text).unwrap_or_default();
            let events = value["traceEvents"].as_array().cloned().unwrap_or_default();
            let known = events.iter().rfind(|event| event["args"]["interpreter"].is_object());
            pid = known.and_then(|event| event["pid"].as_u64());
            pid.is_some()
        });
        u32::try_from(pid.unwrap()).unwrap()
    }

    fn trace(&self) -> Trace {
        Trace::read(&self.path().join("trace.json"))
    }
}

/// The kernel of this machine can limit probes to one process.
fn filters(test: &str) -> bool {
    let filters = KernelSupport::probe().filters(true);
    if !filters {
        eprintln!("skipped {test}: probes cannot be placed in one process (Linux 6.13)");
    }
    filters
}

/// Time of the probes in other programs, and their collections.
fn elsewhere(trace: &Trace) -> Option<(f64, u64)> {
    probe(trace, "collector, in processes that are not recorded")
}

fn probe(trace: &Trace, name: &str) -> Option<(f64, u64)> {
    let probes = trace.end()["probes"].as_array().unwrap();
    let probe = probes.iter().find(|probe| probe["probe"] == name)?;
    let hits = probe["hits"].as_u64().unwrap();
    Some((probe["ns_per_hit"].as_f64().unwrap() * hits as f64, hits))
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// As long as there is one process, no other one has probes; a second one has them before it runs.
/// What they cost the other program afterwards is no part of what the command lost.
fn a_tree(test: &str, name: &str, order: &str) {
    let Some((mut neighbor, python)) = Neighbor::start(test, name) else {
        return;
    };
    let alone = KernelSupport::probe().filters(true);
    let python = python.path.to_str().unwrap();
    let line = ["--mode", "ebpf", "-q", "--", python, "tree.py", order];
    let mut gctrace = neighbor.gctrace(&line);
    let recorded = neighbor.recorded("own");
    assert!(has_probes(recorded));
    neighbor.collect();
    let truth = neighbor.collect_tree();
    neighbor.collect();
    touch(neighbor.path(), "own.stop");
    gctrace.succeeds();
    let trace = neighbor.trace();
    trace.assert_nothing_lost();
    assert_eq!(trace.pauses().len() as u64, truth);
    costs_are_separate(&neighbor, &trace, alone);
}

/// The other program has collected before there was a second process, and after.
fn costs_are_separate(neighbor: &Neighbor, trace: &Trace, alone: bool) {
    // The other program hit them.
    let (cost_ns, hits) = elsewhere(trace).unwrap();
    let rounds = if alone { 1 } else { 2 };
    assert!((rounds * OTHERS..(rounds + 1) * OTHERS).contains(&hits), "{hits}");
    let report =
        recording::gctrace(&["analyze", "--format", "json", "trace.json"], neighbor.path());
    let overhead = &json(&report)["overhead"];
    let close = |value: &Value, to: f64| (value.as_f64().unwrap() - to).abs() <= 2.0;
    let code = probe(trace, "code objects freed in processes not recorded");
    let others_ns = cost_ns + code.map_or(0.0, |(ns, _)| ns);
    assert!(close(&overhead["elsewhere_ns"], others_ns), "{overhead}");
    let probes = overhead["probes"].as_array().unwrap().iter();
    // Stops are no CPU time.
    let paid =
        probes.filter(|probe| probe["elsewhere"] == false && probe["probe"] != "program stopped");
    let paid =
        paid.map(|probe| probe["hits"].as_f64().unwrap() * probe["ns_per_hit"].as_f64().unwrap());
    assert!(close(&overhead["time_ns"], paid.sum()), "{overhead}");
    let report = recording::gctrace(&["analyze", "--full", "trace.json"], neighbor.path());
    let report = String::from_utf8(report.stdout).unwrap();
    let words = report.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let said = words.matches("were not recorded, but ran longer for the probes").count();
    assert_eq!(said, 1, "{report}");
}

fn a_tree_that_forks(test: &str, name: &str) {
    a_tree(test, name, "fork");
}

fn a_tree_that_spawns(test: &str, name: &str) {
    a_tree(test, name, "spawn");
}

/// The same for a running process.
fn a_running_tree(test: &str, name: &str) {
    let Some((mut neighbor, python)) = Neighbor::start(test, name) else {
        return;
    };
    let mut program = Neighbor::python(&python, neighbor.path(), &["tree.py", "attached fork"]);
    wait_for(neighbor.path(), "own.ready");
    let pid = program.0.id().to_string();
    let mut gctrace = neighbor.gctrace(&["record", "-q", "-p", &pid]);
    assert_eq!(neighbor.recorded("own"), program.0.id());
    let alone = KernelSupport::probe().filters(true);
    neighbor.collect();
    let truth = neighbor.collect_tree();
    neighbor.collect();
    touch(neighbor.path(), "own.stop");
    program.succeeds();
    gctrace.succeeds();
    let trace = neighbor.trace();
    trace.assert_nothing_lost();
    assert_eq!(trace.pauses().len() as u64, truth);
    costs_are_separate(&neighbor, &trace, alone);
}

/// A command without children is probed alone, from its first collection on.
fn a_command_alone(test: &str, name: &str) {
    let Some((mut neighbor, python)) = Neighbor::start(test, name) else {
        return;
    };
    if !filters(test) {
        return;
    }
    let python = python.path.to_str().unwrap();
    let line = ["--mode", "ebpf", "-q", "--", python, "program.py", "own", "20"];
    let mut gctrace = neighbor.gctrace(&line);
    let recorded = neighbor.recorded("own");
    assert!(has_probes(recorded));
    neighbor.collect();
    let truth = collect(neighbor.path(), "own");
    touch(neighbor.path(), "own.stop");
    gctrace.succeeds();
    let trace = neighbor.trace();
    trace.assert_nothing_lost();
    assert_eq!(trace.pauses().len() as u64, truth);
    assert_eq!(elsewhere(&trace), None);
}

/// The same for a running process, whose children are not recorded.
fn a_process_alone(test: &str, name: &str) {
    let Some((mut neighbor, python)) = Neighbor::start(test, name) else {
        return;
    };
    if !filters(test) {
        return;
    }
    let mut program = Neighbor::program(&python, neighbor.path(), "own", 20);
    wait_for(neighbor.path(), "own.ready");
    let pid = program.0.id().to_string();
    let line = ["record", "-q", "--no-follow", "-p", &pid];
    let mut gctrace = neighbor.gctrace(&line);
    assert_eq!(neighbor.recorded("own"), program.0.id());
    assert!(has_probes(program.0.id()));
    neighbor.collect();
    collect(neighbor.path(), "own");
    touch(neighbor.path(), "own.stop");
    program.succeeds();
    gctrace.succeeds();
    let trace = neighbor.trace();
    trace.assert_nothing_lost();
    assert_eq!(trace.pauses().len(), 20);
    assert_eq!(elsewhere(&trace), None);
}

/// A program executed by another thread than the main one, by which the kernel knows a process.
fn a_command_executed_by_a_thread(test: &str, name: &str) {
    executed_by_a_thread(test, name, &["--mode", "ebpf", "-q"]);
    executed_by_a_thread(test, name, &["--mode", "ebpf", "-q", "--no-follow"]);
}

fn executed_by_a_thread(test: &str, name: &str, options: &[&str]) {
    let Some((neighbor, python)) = Neighbor::start(test, name) else {
        return;
    };
    let python = python.path.to_str().unwrap();
    let line = [options, &["--", python, "-c", EXECUTES]].concat();
    let mut gctrace = neighbor.gctrace(&line);
    neighbor.recorded("thread");
    let before = collect(neighbor.path(), "thread");
    let truth = before + collect(neighbor.path(), "alone");
    touch(neighbor.path(), "alone.stop");
    gctrace.succeeds();
    let trace = neighbor.trace();
    trace.assert_nothing_lost();
    assert_eq!(trace.pauses().len() as u64, truth);
}

mod forks {
    use super::*;
    on_interpreters! {
        a_tree_that_forks;
        system_python => "system-3.11",
        cpython_3_12 => "pyenv-3.12",
        free_threaded => "manylinux-3.14t",
    }
}

mod spawns {
    use super::*;
    on_interpreters! {
        a_tree_that_spawns;
        system_python => "system-3.11",
        cpython_3_12 => "pyenv-3.12",
        free_threaded => "manylinux-3.14t",
    }
}

mod running {
    use super::*;
    on_interpreters! {
        a_running_tree;
        system_python => "system-3.11",
        cpython_3_12 => "pyenv-3.12",
        free_threaded => "manylinux-3.14t",
    }
}

mod command {
    use super::*;
    on_interpreters! {
        a_command_alone;
        system_python => "system-3.11",
        cpython_3_12 => "pyenv-3.12",
        free_threaded => "manylinux-3.14t",
    }
}

mod process {
    use super::*;
    on_interpreters! {
        a_process_alone;
        system_python => "system-3.11",
        cpython_3_12 => "pyenv-3.12",
        free_threaded => "manylinux-3.14t",
    }
}

mod thread {
    use super::*;
    on_interpreters! {
        a_command_executed_by_a_thread;
        system_python => "system-3.11",
        cpython_3_12 => "pyenv-3.12",
        free_threaded => "manylinux-3.14t",
    }
}
