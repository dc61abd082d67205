//! `gctrace heap -p PID` and `gctrace heap --at-full N -- COMMAND`: the file, the messages, and that
//! the program goes on whatever happens to gctrace.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use gctrace_heap::{HeapGraph, HeapPlace};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use test_kit::interpreters;
use test_kit::interpreters::Python;
use test_kit::limit::WithTimeout as _;

/// Above the 1.8 s after which the watchdog ends gctrace, on a busy machine.
const LONGEST_STOP: Duration = Duration::from_secs(10);
/// `nobody` of Debian.
const NOBODY: u32 = 65534;

struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.status_in_time();
    }
}

impl Program {
    fn start(python: &Python, name: &str) -> Self {
        let script = interpreters::root().join("tests/python/heap_programs.py");
        let mut command = Command::new(&python.path);
        command.arg(script).arg(name).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, output };
        assert_eq!(program.line(), "ready");
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The letter of its state, as in proc(5).
    fn state(&self) -> char {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, rest) = text.rsplit_once(") ").unwrap();
        rest.chars().next().unwrap()
    }
}

fn python(test: &str) -> Python {
    let all = interpreters::interpreters(test).into_iter();
    let mut all = all.filter(|python| !python.is("free-threaded"));
    all.find(|python| python.version >= (3, 11, 0)).expect("an interpreter")
}

fn gctrace(arguments: &[&str], output: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace"));
    command.arg("heap").args(arguments).arg("-o").arg(output);
    command
}

fn read(path: &Path) -> HeapGraph {
    HeapGraph::read(std::fs::File::open(path).unwrap()).unwrap()
}

#[test]
fn a_heap_of_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let program = Program::start(&python("a_heap_of_a_process"), "leaks");
    let pid = program.pid().to_string();
    let take = || gctrace(&["-p", &pid], &file).output_in_time().unwrap();
    let output = take();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    for part in ["stops process", "(predicted)", "stopped for", "(measured)", "heap show"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let graph = read(&file);
    assert_eq!(graph.header.pid, program.pid());
    assert!(!graph.header.in_process);
    assert!(graph.nodes.len() > 1000 && graph.edges.len() > graph.nodes.len());
    assert!(graph.nodes.iter().any(|node| node.place == HeapPlace::Generation(2)));
    let again = take();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
    assert_eq!(read(&file), graph);
}

/// Memory that belongs to no object is said to: arrays of 640 MB, none of it in objects.
#[test]
fn memory_outside_of_objects_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let python = python("memory_outside_of_objects_is_named");
    for (script, is_named) in [
        (
            "import ctypes; kept = [ctypes.create_string_buffer(b'x' * 8_000_000) for _ in range(80)]",
            true,
        ),
        ("import array; kept = [array.array('d', b'x' * 8_000_000) for _ in range(80)]", false),
        ("kept = [[number] for number in range(400_000)]", false),
    ] {
        let file = folder.path().join(format!("{}.gcheap", script.len()));
        let script = format!("{script}\nprint('ready', flush=True)\ninput()");
        let mut command = Command::new(&python.path);
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = Program::of(command);
        let output = gctrace(&["-p", &program.pid().to_string()], &file).output_in_time().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let notes = read(&file).header.notes;
        let named = notes.iter().any(|note| note.contains("count for no object"));
        assert_eq!(named, is_named, "{notes:?}");
    }
}

/// A program whose objects lead into 20 GiB that it never wrote has them refused, not copied.
#[test]
fn no_more_is_copied_than_the_program_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let test = "no_more_is_copied_than_the_program_has";
    let mut program = Program::start(&python(test), "forged");
    let pid = program.pid().to_string();
    let output = gctrace(&["-p", &pid], &file).output_in_time().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("lead to more than"), "{text}");
    assert!(!file.exists());
    assert!(matches!(program.state(), 'S' | 'R'), "it is left alone");
    drop(program.child.stdin.take());
    assert_eq!(program.child.status_in_time().unwrap().code(), Some(3));
}

/// Kills or stops gctrace when the program is seen stopped by it.
fn interfere(test: &str, signal: i32) {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::start(&python(test), "ticks");
    let pid = program.pid().to_string();
    let (mut hit, mut killed) = (0, 0);
    for round in 0..20 {
        let file = folder.path().join(format!("{round}.gcheap"));
        let mut command = gctrace(&["-p", &pid], &file);
        let printed = folder.path().join("printed");
        command.stderr(std::fs::File::create(&printed).unwrap());
        let mut child = command.spawn().unwrap();
        let mut was_hit = false;
        while child.try_wait().unwrap().is_none() {
            if program.state() == 't' {
                // SAFETY: a signal to the test's own child.
                unsafe { libc::kill(child.id().cast_signed(), signal) };
                was_hit = true;
                break;
            }
            std::hint::spin_loop();
        }
        let since = Instant::now();
        while program.state() == 't' {
            assert!(since.elapsed() < LONGEST_STOP, "{test}: still stopped");
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: as above; one that was stopped after it let the program go continues.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGCONT) };
        let status = child.status_in_time().unwrap();
        let printed = std::fs::read_to_string(&printed).unwrap();
        if signal == libc::SIGSTOP && status.signal() == Some(libc::SIGKILL) {
            // Before it was killed: the last words are there as soon as it is gone.
            assert!(printed.contains("is killed by its watchdog"), "{test}: {printed}");
            assert!(printed.contains("gctrace heap --at-full"), "{test}: {printed}");
            killed += 1;
        }
        hit += u32::from(was_hit);
        for _ in 0..3 {
            assert_eq!(program.line(), "400000", "{test}");
        }
        if hit >= 3 {
            break;
        }
    }
    assert!(hit > 0, "{test}: gctrace was never seen at work");
    assert!(signal == libc::SIGKILL || killed > 0, "{test}: never killed by its watchdog");
}

#[test]
fn killed_gctrace_lets_the_program_go() {
    interfere("killed_gctrace_lets_the_program_go", libc::SIGKILL);
}

#[test]
fn stopped_gctrace_is_ended_by_its_watchdog() {
    interfere("stopped_gctrace_is_ended_by_its_watchdog", libc::SIGSTOP);
}

#[test]
fn after_a_full_collection_of_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let test = "after_a_full_collection_of_a_command";
    for python in interpreters::interpreters(test) {
        // Each layout of the statistics once.
        if python.is("free-threaded") || ![8, 12, 15].contains(&python.version.1) {
            continue;
        }
        let file = folder.path().join(format!("{}.gcheap", python.name));
        let script = "
import gc, time
gc.disable()
class Kept: pass
kept = []
before = gc.get_stats()[2]['collections']
for number in range(1, 6):
    kept.append(Kept())
    while gc.get_stats()[2]['collections'] < number: gc.collect()
    time.sleep(1.0)
print(before)
raise SystemExit(7)
";
        let mut command = gctrace(&["--at-full", "3"], &file);
        command.args(["--", python.path.to_str().unwrap(), "-c", script]);
        let output = command.output_in_time().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{}: {text}", python.name);
        assert_eq!(output.stdout.trim_ascii(), b"0", "{}", python.name);
        assert!(text.contains("full collection 3"), "{}: {text}", python.name);
        let graph = read(&file);
        let kept = graph.kinds.iter().find(|kind| kind.name.type_name == "__main__.Kept");
        let kept = kept.map_or(0, |kind| kind.id);
        let kept = graph.nodes.iter().filter(|node| node.kind == kept).count();
        assert_eq!(kept, 3, "{}: {text}", python.name);
    }
}

#[test]
fn a_command_that_collects_too_rarely() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let python = python("a_command_that_collects_too_rarely");
    let mut command = gctrace(&["--at-full", "1000"], &file);
    command.args(["--", python.path.to_str().unwrap(), "-c", "print(1)"]);
    let output = command.output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout.trim_ascii(), b"1");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no heap was taken"));
    assert!(!file.exists());
}

/// Another user's process is refused; a command of one's own is not.
#[test]
fn an_ordinary_user() {
    let test = "an_ordinary_user";
    if !nix::unistd::Uid::effective().is_root() {
        interpreters::skip(test, "needs root, to become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let gctrace = folder.path().join("gctrace");
    std::fs::copy(env!("CARGO_BIN_EXE_gctrace"), &gctrace).unwrap();
    let file = folder.path().join("heap.gcheap");
    let as_nobody = || {
        let mut command = Command::new(&gctrace);
        command.args(["heap", "-o"]).arg(&file);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command.env("HOME", "/nonexistent");
        command
    };
    let program = Program::start(&python(test), "leaks");
    let mut command = as_nobody();
    command.args(["-p", &program.pid().to_string()]);
    let output = command.output_in_time().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("sudo gctrace"), "{text}");
    assert!(!file.exists());
    let system = Path::new("/usr/bin/python3");
    if !system.exists() {
        interpreters::skip(test, "there is no /usr/bin/python3 that another user may run");
        return;
    }
    let script = "import gc, time; gc.collect(); gc.collect(); time.sleep(3)";
    let mut command = as_nobody();
    command.args(["--at-full", "2", "--", system.to_str().unwrap(), "-c", script]);
    let output = command.output_in_time().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(read(&file).nodes.len() > 1000);
}
