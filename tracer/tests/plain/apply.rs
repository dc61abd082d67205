//! `gctrace apply`: starts commands with other settings, reports what they did, takes them back.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use test_kit::interpreters::{any_python, torch};
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;
use test_kit::recording;

/// A folder of its own for private folders, so that leftovers are seen.
pub(crate) struct TestDir(tempfile::TempDir);

impl TestDir {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn gctrace(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(recording::binary());
        command
            .arg("apply")
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.path())
            .current_dir(self.path());
        command
    }

    /// Applies a setting in a script after [`OPTIMIZER`].
    pub(crate) fn run(&self, arguments: &[&str], script: &str) -> Output {
        self.program(arguments, script).output_in_time().unwrap()
    }

    pub(crate) fn program(&self, arguments: &[&str], script: &str) -> Command {
        let mut command = self.gctrace(arguments);
        command.arg("--").arg(any_python()).arg("-c");
        command.arg(format!("{OPTIMIZER}{script}"));
        command
    }

    /// Private folders that were left.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.path());
        let private = |path: &PathBuf| path.to_string_lossy().contains("gctrace-");
        names.filter(private).collect()
    }
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_exit_code_is_the_commands() {
    let place = TestDir::new();
    let code = |script: &str| place.run(&["--gc", "freeze"], script).status.code();
    assert_eq!(code("sys.exit(7)"), Some(7));
    assert_eq!(code("os.kill(os.getpid(), 9)"), Some(137));
    let missing = place.gctrace(&["--gc", "freeze", "--", "no-such-command"]);
    let missing = { missing }.output_in_time().unwrap();
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    for arguments in [
        &["--gc", "fries", "--", "true"] as &[&str],
        &["--gc", "freeze"],
        &["--", "true"],
        &["--undo"],
        &["--gc", "freeze", "--from", "t.json", "--", "true"],
    ] {
        let output = place.gctrace(arguments).output_in_time().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn the_report_says_what_was_done() {
    let place = TestDir::new();
    let script = r"
def library(): gc.enable()
kept = [[i] for i in range(5000)]
for i in range(40):
    if i == 20: library()
    step()
print(gc.get_freeze_count())
";
    let output = place.run(&["--gc", "threshold=7000,10,freeze@step:3,plan:10"], script);
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    for part in [
        "40 steps, by optimizer",
        "threshold=7000,10 from the start",
        "freeze after step 3",
        "plan:10,gen2:100 after step 2",
        "plan was undone once by <string>:16 library (first seen after step 21)",
        "objects frozen",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.starts_with("gctrace: ")), "{text}");
    assert!(text.lines().count() <= 9, "{text}");
    let quiet = place.run(&["-q", "--gc", "freeze"], script);
    assert_eq!(errors(&quiet), "");
    let part = place.run(&["--gc", "threshold=7000,freeze"], "");
    assert!(part.status.success(), "{part:?}");
    assert!(errors(&part).contains("no step was seen: nothing was applied at a step"));
}

/// A command in which nothing was applied did not do what was asked: an error, also where no report is read.
#[test]
fn nothing_applied_is_an_error() {
    let place = TestDir::new();
    for (arguments, script, why) in [
        (
            &["--gc", "disable"] as &[&str],
            "",
            "disable is applied after a step, and no step was seen",
        ),
        (
            &["--gc", "freeze,plan:5"],
            "",
            "freeze,plan:5 is applied after a step, and no step was seen",
        ),
        (&["-q", "--gc", "freeze"], "step()", "freeze is applied after step 2, and 1 was made"),
        (
            &["--format", "json", "--gc", "disable@step:90"],
            "for i in range(9): step()",
            "and 9 were made",
        ),
    ] {
        let output = place.run(arguments, script);
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with("gctrace: nothing was applied: ") && first.contains(why),
            "{text}"
        );
    }
    let shell = |words: &[&str]| {
        let command = place.gctrace(&[&["--gc", "disable@start", "--"], words].concat());
        let output = { command }.output_in_time().unwrap();
        assert!(
            errors(&output).starts_with("gctrace: nothing was applied: no CPython"),
            "{output:?}"
        );
        output.status.code()
    };
    assert_eq!((shell(&["true"]), shell(&["sh", "-c", "exit 3"])), (Some(1), Some(3)));
    for setting in ["none", "disable@start", "loading=5000", "freeze-forks"] {
        let output = place.run(&["--gc", setting], "");
        assert!(output.status.success(), "{setting}: {}", errors(&output));
    }
}

#[test]
fn json_has_the_documented_keys() {
    let place = TestDir::new();
    let script = "
def library(): gc.enable()
for i in range(40):
    if i == 20: library()
    if i == 30: gc.collect()
    step()
print('the command')
";
    let arguments = ["--gc", "freeze@step:3,plan:10", "--format", "json"];
    let output = place.run(&arguments, script);
    assert!(errors(&output).contains("the command"), "stdout is the report's");
    let report: Value = serde_json::from_str(&printed(&output)).unwrap();
    let process = &report["processes"][0];
    assert_eq!((&report["schema"], &report["exit_code"]), (&"gctrace.apply/1".into(), &0.into()));
    assert_eq!((&process["steps"], &process["marker"]), (&40.into(), &"optimizer".into()));
    let docs = test_kit::interpreters::root().join("docs/report-schema.md");
    let docs = fs::read_to_string(docs).unwrap();
    let section = docs.split("## `gctrace apply`").nth(1).unwrap();
    let mut missing = Vec::new();
    keys(&report, &mut |key| {
        let named = [format!("`{key}`"), format!("`{key}[]`")];
        if !named.iter().any(|name| section.contains(name)) {
            missing.push(key.to_owned());
        }
    });
    assert_eq!(missing, Vec::<String>::new());
    // To a file; an existing one stays.
    let place_file = ["--gc", "freeze", "-o", "report.json"];
    let first = place.run(&place_file, "print('the command')");
    assert_eq!(printed(&first), "the command\n");
    let written = fs::read(place.path().join("report.json")).unwrap();
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(written["settings"], "freeze");
    let second = place.run(&place_file, "print('the command')");
    assert_eq!((second.status.code(), printed(&second)), (Some(1), String::new()));
    assert!(errors(&second).contains("--force"));
}

fn keys(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            found(key);
            keys(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

/// Of many processes the first thousand leave a report, with the one that forked them among them, and
/// gctrace states how many there are.
#[test]
fn a_thousand_processes_report() {
    let place = TestDir::new();
    let script = r"
def count(end): return sum(name.endswith(end) for name in os.listdir(os.environ['GCTRACE_APPLY_FOLDER']))
for i in range(9): step()
for i in range(1100):
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
print(count('.report.json'), count('.tmp'))
";
    let output = place.run(&["--gc", "freeze"], script);
    assert_eq!(printed(&output), "999 0\n", "{}", errors(&output));
    let text = errors(&output);
    for part in [
        "9 steps, by optimizer",
        "999 processes without steps",
        "101 other processes wrote no report: at most 1,000 do",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Programs may write anything into the folder: what is read of it is bounded, and its folders go.
#[test]
fn what_programs_write_as_reports_is_bounded() {
    let place = TestDir::new();
    let script = r"
import json
folder = os.environ['GCTRACE_APPLY_FOLDER']
begun = time.monotonic()
while not any(name.endswith('.report.json') for name in os.listdir(folder)):
    time.sleep(0.05)
    step()
report = json.load(open(folder + '/%d.report.json' % os.getpid()))
report['warnings'] = [''] * 80000
for pid in range(1, 300):
    report['pid'] = pid
    json.dump(report, open(folder + '/%d.report.json' % pid, 'w'), separators=(',', ':'))
for pid in range(2000, 14000): open(folder + '/%d.other' % pid, 'w')
os.makedirs(folder + '/a/b')
";
    let mut command = place.program(&["--gc", "threshold=7000", "-o", "r.json"], script);
    let output = command.output_in_time().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let report = fs::read(place.path().join("r.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let read = report["processes"].as_array().unwrap().len() as u64;
    let left_out = report["left_out"].as_u64().unwrap();
    // 16 MiB in reports of 240 kB; of 12,301 names 10,000 are read, in any order.
    assert!((1..=80).contains(&read), "{read}");
    assert!((1..=300).contains(&left_out), "{left_out}");
    assert_eq!(errors(&output), "");
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());
}

/// Waits until a program with [`OPTIMIZER`] has written a file.
fn wait_for(path: &Path) -> String {
    loop {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
}

/// Steps until a file `stop` exists; writes its pid and state to files.
const ENDLESS: &str = r"
def show(name):
    with open(name + '.new', 'w') as file:
        print(os.getpid(), gc.get_threshold()[0], gc.isenabled(), file=file)
    os.rename(name + '.new', name)
i = 0
while not os.path.exists('stop'):
    i += 1
    time.sleep(0.001)
    step()
    if i == 10: show('begun')
show('ended')
";

#[test]
fn settings_are_taken_back_in_a_running_program() {
    let place = TestDir::new();
    let mut command = place.program(&["--gc", "threshold=7000,plan:5"], ENDLESS);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let begun = wait_for(&place.path().join("begun"));
    let (pid, state) = begun.trim().split_once(' ').unwrap();
    assert_eq!(state, "7000 False");
    let undone = place.gctrace(&["--undo", "-p", pid]).output_in_time().unwrap();
    assert!(undone.status.success(), "{}", errors(&undone));
    assert!(errors(&undone).contains("has taken its settings back"), "{undone:?}");
    fs::write(place.path().join("stop"), "").unwrap();
    let output = child.output_in_time().unwrap();
    let ended = wait_for(&place.path().join("ended"));
    assert!(ended.ends_with(" True\n") && !ended.contains(" 7000 "), "{ended}");
    assert!(errors(&output).contains("taken back when asked"), "{}", errors(&output));
    let pid = std::process::id().to_string();
    let other = place.gctrace(&["--undo", "-p", &pid]).output_in_time().unwrap();
    assert_eq!(other.status.code(), Some(1));
    assert!(errors(&other).contains("was not started by gctrace apply"));
}

/// A killed command is reported as far as it came; a killed gctrace leaves the program running with
/// its settings, and the next one removes its folder.
#[test]
fn nothing_is_left_after_a_kill() {
    let place = TestDir::new();
    let mut command = place.program(&["--gc", "threshold=7000"], ENDLESS);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let begun = wait_for(&place.path().join("begun"));
    let pid = begun.split(' ').next().unwrap().parse().unwrap();
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let output = child.output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());

    fs::remove_file(place.path().join("begun")).unwrap();
    let mut command = place.program(&["--gc", "threshold=7000"], ENDLESS);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for(&place.path().join("begun"));
    child.kill().unwrap();
    child.status_in_time().unwrap();
    let left = place.leftovers();
    assert_eq!(left.len(), 1);
    // Its folder goes while it runs, as the next gctrace would remove it.
    fs::remove_dir_all(&left[0]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1200));
    fs::write(place.path().join("stop"), "").unwrap();
    let ended = wait_for(&place.path().join("ended"));
    assert!(ended.contains(" 7000 True"), "{ended}");
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());
}

/// An ordinary user needs no rights.
#[test]
fn an_ordinary_user_applies() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("an_ordinary_user_applies: the other tests ran as one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(folder.path(), 0o777);
    let gctrace = folder.path().join("gctrace");
    fs::copy(recording::binary(), &gctrace).unwrap();
    let library = Path::new(recording::binary()).with_file_name("deps/libgctrace_inject.so");
    let copy = folder.path().join("libgctrace_inject.so");
    fs::copy(library, &copy).unwrap();
    open(&copy, 0o755);
    let script =
        format!("{OPTIMIZER}for i in range(9): step()\nprint(os.getuid(), gc.isenabled())");
    let output = Command::new(&gctrace)
        .args(["apply", "--gc", "plan:5", "--"])
        .arg(any_python())
        .args(["-c", &script])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .uid(65534)
        .gid(65534)
        .output_in_time()
        .unwrap();
    assert_eq!(printed(&output), "65534 False\n", "{}", errors(&output));
    assert!(errors(&output).contains("9 steps, by optimizer"), "{}", errors(&output));
}

/// Two ranks of PyTorch that exchange gradients apply at the same step.
#[test]
fn torch_ranks_apply_at_the_same_step() {
    let Some(python) = torch("torch_ranks_apply_at_the_same_step") else {
        return;
    };
    const RANK: &str = r"
import gc, os, torch, torch.distributed as dist
store = dist.FileStore('store', 2)
dist.init_process_group('gloo', store=store, rank=int(os.environ['RANK']), world_size=2)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.Adam(model.parameters())
for i in range(1, 13):
    optimizer.zero_grad()
    model(torch.randn(4, 16)).sum().backward()
    for each in model.parameters(): dist.all_reduce(each.grad)
    optimizer.step()
    print(i, gc.isenabled(), gc.get_freeze_count() > 10000, flush=True)
dist.destroy_process_group()
";
    const LAUNCHER: &str = r"
import os, subprocess, sys
def start(rank):
    out = open(rank, 'w')
    return subprocess.Popen([sys.executable, 'rank.py'], stdout=out, env=dict(os.environ, RANK=rank))
ranks = [start('0'), start('1')]
sys.exit(max(rank.wait() for rank in ranks))
";
    let place = TestDir::new();
    fs::write(place.path().join("rank.py"), RANK).unwrap();
    let output = place
        .gctrace(&["--gc", "freeze@step:5,plan:4@step:3", "-o", "report.json", "--"])
        .arg(python)
        .args(["-c", LAUNCHER])
        .env("OMP_NUM_THREADS", "1")
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let expected: Vec<String> = (1..=12)
        .map(|step| {
            let word = |is: bool| if is { "True" } else { "False" };
            format!("{step} {} {}\n", word(step < 3), word(step >= 5))
        })
        .collect();
    for rank in ["0", "1"] {
        let lines = fs::read_to_string(place.path().join(rank)).unwrap();
        assert_eq!(lines, expected.concat(), "rank {rank}");
    }
    let report = fs::read(place.path().join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let ranked = |process: &&Value| process["rank"].is_u64();
    let processes = report["processes"].as_array().unwrap();
    let ranked: Vec<&Value> = processes.iter().filter(ranked).collect();
    assert_eq!(ranked.len(), 2);
    for process in ranked {
        assert_eq!(process["steps"], 12);
        assert_eq!(process["planned"]["collections"], Value::from(vec![0, 3, 0]));
    }
}
