//! `gctrace auto`: whether it saves what can be saved, leaves the rest alone, and gives everything back.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use test_kit::interpreters::any_python;
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;
use test_kit::{recording, simulator};

/// A heap that grows: every full collection traverses all of it.
const GROWING: &str = r"
kept = []
for i in range(9000):
    kept.extend([i] for i in range(300))
    step()
";

/// Loads for longer than it trains.
const LOADING: &str = r"
kept = [{'id': i, 'tags': [i]} for i in range(1_500_000)]
print(gc.get_stats()[2]['collections'], *gc.get_threshold())
for i in range(60):
    step()
";

/// No container is ever made.
const NUMBERS: &str = r"
x = 0
for i in range(1500):
    for j in range(2000):
        x += j * j % 7
    step()
";

/// Whether `gc` is as without us, seen from within, while a setting may be held.
const UNCHANGED: &str = r"
collect, kind = gc.collect, type(gc.collect)
names = dict(vars(gc))
";
const CHECKED: &str = r"
assert gc.collect is collect and type(gc.collect) is kind and vars(gc) == names
class Holder:
    collect = gc.collect
assert Holder().collect() >= 0
";

fn gctrace(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(recording::binary());
    command.arg("auto").args(arguments).env("XDG_RUNTIME_DIR", folder).current_dir(folder);
    command
}

fn program(folder: &Path, arguments: &[&str], script: &str) -> Command {
    let mut command = gctrace(folder, arguments);
    command.arg("--").arg(any_python()).arg("-c").arg(format!("{OPTIMIZER}{script}"));
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn found(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("auto.json")).unwrap()).unwrap()
}

fn decisions(found: &Value) -> Vec<&str> {
    let events = found["processes"][0]["events"].as_array().unwrap();
    events.iter().map(|event| event["decision"].as_str().unwrap()).collect()
}

#[test]
fn a_program_with_nothing_to_gain_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let output = program(folder.path(), &[], NUMBERS).output_in_time().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let found = found(folder.path());
    assert_eq!(decisions(&found), ["nothing_to_gain"]);
    assert_eq!(
        (&found["setting"], &found["processes"][0]["explored_steps"]),
        (&Value::Null, &0.into())
    );
    assert!(errors(&output).contains("everything stays as it is"), "{}", errors(&output));
}

/// Collections while data is loaded cannot be compared within a run; by the program's own count the next one has fewer.
#[test]
fn the_next_run_loads_with_few_collections() {
    let folder = tempfile::tempdir().unwrap();
    let run = |mut command: Command| -> (Vec<u64>, String) {
        let output = command.output_in_time().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (printed.split(' ').map(|word| word.trim().parse().unwrap()).collect(), errors(&output))
    };
    let (own, told) = run(program(folder.path(), &[], LOADING));
    let found = found(folder.path());
    assert_eq!(found["setting"], "loading=100000", "{told}");
    assert!(told.contains("before the first step, collections took"), "{told}");
    assert!(found["loading"]["pause_ns"].as_u64() > Some(100_000_000), "{found}");
    let mut again = Command::new(recording::binary());
    again.args(["apply", "--from", "auto.json", "--"]).arg(any_python());
    again.arg("-c").arg(format!("{OPTIMIZER}{LOADING}"));
    again.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
    let (with, _) = run(again);
    assert!(with[0] < own[0], "{with:?} {own:?}");
    assert_eq!((with[1], &with[2..]), (100_000, &own[2..]));
}

/// The program counts its own full collections: fewer than the run without.
#[test]
fn a_setting_is_found_and_held() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "{UNCHANGED}{GROWING}print(gc.get_stats()[2]['collections'], gc.get_stats()[0]['collections'])\n{CHECKED}"
    );
    let collections = |command: &mut Command| {
        let output = command.output_in_time().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> =
            printed.split_whitespace().map(|number| number.parse().unwrap()).collect();
        (numbers, errors(&output))
    };
    let mut alone = Command::new(any_python());
    let (without, _) = collections(alone.arg("-c").arg(format!("{OPTIMIZER}{script}")));
    let (with, told) = collections(&mut program(folder.path(), &[], &script));
    let found = found(folder.path());
    let names = decisions(&found);
    assert!(names.starts_with(&["explore", "hold"]) || names.contains(&"hold"), "{names:?} {told}");
    assert!(with[1] < without[1], "{with:?} {without:?}");
    let process = &found["processes"][0];
    assert!(process["failure"].is_null() && process["unsupported"].is_null(), "{process}");
    assert!(process["parts"][0]["held_steps"].as_u64() > Some(0), "{process}");
    // Of most, which take some ten microseconds, nothing but their number is looked at.
    assert_eq!(process["steps"], 9000, "{process}");
}

/// Whichever starts the other: each collection is recorded, by the program's own count, and settings are sought.
#[test]
fn a_search_and_a_recording_go_together() {
    for records_first in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace.json");
        let script = format!("{GROWING}print(sum(one['collections'] for one in gc.get_stats()))");
        let record = ["record", "--mode", "inject", "-o", trace.to_str().unwrap(), "--"];
        let auto = ["auto", "--"];
        let binary = recording::binary();
        let (first, second) =
            if records_first { (&record[..], &auto[..]) } else { (&auto[..], &record[..]) };
        let mut command = Command::new(binary);
        command.args(first).arg(binary).args(second).arg(any_python());
        command.arg("-c").arg(format!("{OPTIMIZER}{script}"));
        command.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
        let output = command.output_in_time().unwrap();
        let told = errors(&output);
        assert!(output.status.success(), "{told}");
        let counted: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        let recorded = fs::read_to_string(&trace).unwrap().matches("\"cat\":\"gc\"").count() as u64;
        // Those at the start of the interpreter are counted, not recorded, and those at its end come after the print.
        assert!(recorded + 10 >= counted && counted > 20, "{recorded} {counted} {told}");
        assert!(decisions(&found(folder.path())).contains(&"explore"), "{told}");
    }
}

/// Without steps intervals of time are compared, and a program that makes steps later has none of it.
#[test]
fn a_program_without_steps_is_compared_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let work = "
import gc
kept, window = [[i] for i in range(200_000)], [None] * 100
def work(turns):
    for i in range(turns):
        window[i % 100] = [[j] for j in range(100)]
        for j in range(50):
            cycle = []
            cycle.append(cycle)
";
    let run = |script: &str, steps: &str| {
        let _ = fs::remove_file(folder.path().join("auto.json"));
        let mut command = gctrace(folder.path(), &["--wait", "0.2s"]);
        let script = format!("{steps}{work}{script}print(gc.get_threshold())");
        command.arg("--").arg(any_python()).arg("-c").arg(script);
        let output = command.output_in_time().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (found(folder.path())["processes"][0].clone(), printed, errors(&output))
    };
    let (process, _, told) = run("work(150_000)\n", "");
    assert_eq!(process["by_time"], true, "{process}");
    assert!(told.contains("no step is known; after"), "{told}");
    assert_eq!(process["events"][0]["decision"], "explore", "{process}");
    assert_eq!(process["steps"], 0);
    // The first step ends it, and the program has its own settings.
    let (process, printed, told) = run("work(30_000)\nstep()\n", OPTIMIZER);
    assert_eq!((&process["by_time"], &process["steps"]), (&false.into(), &1.into()), "{told}");
    assert!(printed.starts_with("(700, ") || printed.starts_with("(2000, "), "{printed}");
}

/// The interpreter has room for 32 calls that its main thread is to make, and that may wait for long.
#[test]
fn calls_that_are_due_in_the_main_thread_are_left_to_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
import ctypes, threading, time
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
call = kind(lambda _: 0)
add = ctypes.pythonapi.Py_AddPendingCall
add.argtypes = [kind, ctypes.c_void_p]
kept = [[i] for i in range(50_000)]
def work():
    until = time.monotonic() + 2
    while time.monotonic() < until:
        for i in range(1000):
            cycle = []
            cycle.append(cycle)
    print([add(call, None) for _ in range(20)])
thread = threading.Thread(target=work)
thread.start()
thread.join()
";
    let mut command = gctrace(folder.path(), &["--wait", "0.1s"]);
    command.arg("--").arg(any_python()).arg("-c").arg(script);
    let output = command.output_in_time().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed, format!("{:?}\n", [0; 20]), "{}", errors(&output));
}

/// Starts two ranks that wait for each other in every step, as ranks do that add their gradients.
const LAUNCHER: &str = r"
import os, socket, subprocess, sys
ends = socket.socketpair()
def start(rank):
    end = ends[rank].fileno()
    variables = dict(os.environ, RANK=str(rank), WORLD_SIZE='2', LOCAL_WORLD_SIZE='2')
    command = [sys.executable, '-c', sys.argv[1], str(rank), str(end)]
    return subprocess.Popen(command, pass_fds=[end], env=variables)
ranks = [start(0), start(1)]
assert ranks[0].wait() == -9
sys.exit(ranks[1].wait())
";

/// Rank 0 ends without a word, rank 1 goes on alone.
const RANK: &str = r"
import json, socket, sys, time
rank, peer = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
own = gc.get_threshold()
seen, kept = [], []
for i in range(1500):
    kept.extend([i] for i in range(300))
    peer.send(b'x')
    peer.recv(1)
    # Longer than between two looks of a rank that follows.
    time.sleep(0.0025)
    step()
    seen.append((gc.get_threshold(), gc.get_freeze_count() > 0))
with open(f'rank{rank}.json', 'w') as file:
    json.dump(seen, file)
if rank == '0':
    os.kill(os.getpid(), 9)
patience = 2000
while (gc.get_threshold() != own or gc.get_freeze_count()) and patience:
    patience -= 1
    time.sleep(0.01)
    step()
assert patience, gc.get_threshold()
";

/// The ranks see their own settings: the same ones in the same step, or in the next.
#[test]
fn ranks_have_the_same_setting() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = gctrace(folder.path(), &[]);
    command.arg("--").arg(any_python()).args(["-c", LAUNCHER]).arg(format!("{OPTIMIZER}{RANK}"));
    let output = command.output_in_time().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let seen = |rank: u32| -> Vec<Value> {
        let text = fs::read(folder.path().join(format!("rank{rank}.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let (leader, follower) = (seen(0), seen(1));
    let changes = leader.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes > 5, "{changes}");
    for (step, settings) in leader.windows(2).zip(follower.get(1..).unwrap()).enumerate() {
        assert!(settings.0.contains(settings.1), "{step}: {settings:?}");
    }
    let found = found(folder.path());
    let processes = found["processes"].as_array().unwrap();
    let of_rank = |rank: u32| processes.iter().find(|one| one["rank"] == rank).unwrap();
    assert_eq!(of_rank(1)["leader"], of_rank(0)["pid"]);
    assert_eq!((&of_rank(0)["followers"], &of_rank(0)["leader"]), (&1.into(), &Value::Null));
    assert!(errors(&output).contains("1 other rank did the same"), "{}", errors(&output));
}

#[test]
fn ranks_that_would_decide_apart_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(folder.path(), &[], NUMBERS);
    command.envs([("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2")]);
    let output = command.output_in_time().unwrap();
    let found_there = found(folder.path());
    let why = found_there["processes"][0]["unsupported"].as_str().unwrap();
    assert!(why.contains("several hosts") && errors(&output).contains(why), "{}", errors(&output));
    // The other rank is not under the same gctrace.
    let mut command = program(folder.path(), &["--force"], GROWING);
    command.envs([("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")]);
    let output = command.output_in_time().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(decisions(&found(folder.path())), Vec::<&str>::new());
    assert!(errors(&output).contains("start the whole job with it"), "{}", errors(&output));
}

/// The old generation is frozen for the longest pause; asked, everything is given back.
#[test]
fn everything_is_given_back_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let script = r"
heap = [[i] for i in range(300000)]
kept = []
begun = False
while not os.path.exists('stop'):
    kept.extend([i] for i in range(300))
    step()
    if gc.get_threshold() != (700, 10, 10) and not begun:
        begun = True
        with open('begun', 'w') as file: file.write(str(os.getpid()))
    if len(kept) > 3000000: kept.clear()
print(gc.get_threshold(), gc.get_freeze_count())
";
    let script = format!("gc.set_threshold(700, 10, 10)\n{script}");
    let mut command = program(folder.path(), &[], &script);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = folder.path().join("begun");
    let pid = loop {
        match fs::read_to_string(&begun) {
            Ok(pid) if !pid.is_empty() => break pid,
            _ => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    let undone = gctrace(folder.path(), &["--undo", &pid]).output_in_time().unwrap();
    assert!(undone.status.success(), "{}", errors(&undone));
    fs::write(folder.path().join("stop"), "").unwrap();
    let output = child.output_in_time().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed, "(700, 10, 10) 0\n", "{}", errors(&output));
    assert_eq!(decisions(&found(folder.path())).last(), Some(&"taken_back"));
}

#[test]
fn whatever_is_there_the_command_starts_and_nothing_of_others_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let read = |name: &str| fs::read_to_string(path(name)).unwrap();
    let run = |options: &[&str]| {
        let mut command = gctrace(folder.path(), options);
        command.arg("--").arg(any_python()).args(["-c", "print('it ran')"]);
        let output = command.output_in_time().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it ran\n", "{output:?}");
        assert!(output.status.success(), "{output:?}");
        errors(&output)
    };
    // One of its own becomes the old one, as often as it is started.
    for _ in 0..3 {
        run(&[]);
        fs::write(path("auto.json"), read("auto.json").replacen("{", "{ ", 1)).unwrap();
    }
    assert!(read("auto.json.old").starts_with("{ ") && !path("auto-2.json").exists());
    // Others' files stay: the next free name.
    fs::write(path("auto.json.old"), "old").unwrap();
    assert!(run(&[]).contains("wrote auto-2.json: auto.json is not of gctrace auto"));
    fs::write(path("auto.json"), "mine").unwrap();
    run(&[]);
    assert_eq!((read("auto.json"), read("auto.json.old")), ("mine".into(), "old".into()));
    assert!(read("auto-3.json").contains("gctrace.auto/1"));
    fs::create_dir(path("folder.d")).unwrap();
    run(&["-o", "folder.d"]);
    assert!(read("folder-2.d").contains("gctrace.auto/1"));
    // It cannot be written: the command has run.
    assert!(run(&["-o", "missing/auto.json"]).contains("cannot create missing/auto.json"));
    run(&["--force"]);
    assert!(read("auto.json").contains("gctrace.auto/1"));
}

/// Device memory in cycles, and a heap that grows.
const TENSORS: &str = r"
import ctypes
cuda = ctypes.CDLL(os.path.join(os.environ['LIBRARIES'], 'libcudart.so.12'))
cuda.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cuda.cudaFree.argtypes = [ctypes.c_void_p]
class Tensor:
    def __init__(self):
        address = ctypes.c_void_p()
        if cuda.cudaMalloc(ctypes.byref(address), 1 << 20) != 0:
            print('OUT OF MEMORY', flush=True)
            os._exit(3)
        self.address, self.cycle = address.value, self
    def __del__(self): cuda.cudaFree(self.address)
cuda.cudaSetDevice(0)
heap = [[i] for i in range(100000)]
kept = []
for i in range(5000):
    kept.extend([i] for i in range(300))
    Tensor(), Tensor()
    sum(range(50000))
    step()
";

/// Of what tensors in cycles take, the host's memory shows nothing.
#[test]
fn a_gpu_is_not_filled_with_garbage() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = simulator::libraries();
    let gpu = |mut command: Command| {
        command.env("LIBRARIES", libraries).env("SIMGPU_MEMORY", (256 << 20).to_string());
        command.output_in_time().unwrap()
    };
    let script = format!("{OPTIMIZER}{TENSORS}");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(recording::binary());
        command.args(arguments).env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
        command.args(["--", any_python().to_str().unwrap(), "-c", &script]);
        gpu(command)
    };
    // What it would try and find the best.
    let full = run(&["apply", "--gc", "threshold=50000,10,10"]);
    assert!(String::from_utf8_lossy(&full.stdout).contains("OUT OF MEMORY"), "{}", errors(&full));
    let output = run(&["auto"]);
    assert!(output.status.success(), "{}", errors(&output));
    let found = found(folder.path());
    assert_eq!(decisions(&found).last(), Some(&"device_memory"), "{}", errors(&output));
    assert!(errors(&output).contains("of the GPU's memory are in use"), "{}", errors(&output));
    // Where a framework reserves it in advance, nothing shows how full it is.
    let script = format!("{OPTIMIZER}sys.modules['jaxlib'] = sys\n{TENSORS}");
    let mut command = gctrace(folder.path(), &["--force", "--"]);
    let output = gpu({
        command.arg(any_python()).args(["-c", &script]);
        command
    });
    assert!(output.status.success(), "{}", errors(&output));
    let found = self::found(folder.path());
    assert_eq!(decisions(&found), [""; 0]);
    assert!(errors(&output).contains("JAX and TensorFlow reserve"), "{}", errors(&output));
}

/// A worker that collects while its parent's heap is shared.
const FORKS: &str = r"
heap = [[i] for i in range(500000)]
gc.collect()
def private():
    with open('/proc/self/smaps_rollup') as file:
        return int(next(line for line in file if line.startswith('Private_Dirty')).split()[1])
sys.stdout.flush()
if os.fork() == 0:
    before = private()
    cycle = []
    cycle.append(cycle)
    del cycle
    print(gc.collect(), gc.get_freeze_count(), private() - before, flush=True)
    os._exit(0)
os.wait()
print(gc.get_freeze_count())
";

/// Seen from within: garbage of its own is collected, the heap is neither traversed nor copied.
#[test]
fn what_a_fork_inherits_stays_shared() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{OPTIMIZER}{FORKS}");
    let lines = |output: &Output| -> Vec<Vec<u64>> {
        assert!(output.status.success(), "{}", errors(output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers = |line: &str| line.split(' ').map(|word| word.parse().unwrap()).collect();
        text.lines().map(numbers).collect()
    };
    let alone = Command::new(any_python()).args(["-c", &script]).output_in_time().unwrap();
    let alone = lines(&alone);
    let output = program(folder.path(), &[], FORKS).output_in_time().unwrap();
    let frozen = lines(&output);
    // In the parent nothing is (3.12 itself freezes some).
    assert_eq!(alone[1], frozen[1]);
    let ([_, none, copied], [freed, inherited, own]) = (&alone[0][..], &frozen[0][..]) else {
        panic!("{alone:?} {frozen:?}");
    };
    assert!(*inherited >= none + 500_000 && *freed >= 1, "{frozen:?}");
    // KiB: an object of 500,000 has 64 bytes at least.
    assert!(*copied > 30_000 && *own < copied / 10, "{copied} {own}");
    let found = found(folder.path());
    let forks = &found["frozen_forks"];
    assert_eq!(forks["processes"], 1);
    assert!(forks["most_objects"].as_u64().unwrap() >= 500_000, "{forks}");
    assert!(errors(&output).contains("stayed shared with the parent"), "{}", errors(&output));
    // So does the next run, without a search.
    assert_eq!(found["setting"], "freeze-forks");
    let mut again = Command::new(recording::binary());
    again.args(["apply", "--from", "auto.json", "--"]).arg(any_python()).args(["-c", &script]);
    again.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
    let again = lines(&again.output_in_time().unwrap());
    assert!(again[0][1] >= none + 500_000 && again[0][2] < copied / 10, "{again:?}");
}
