//! `gctrace heap --at-full N -- COMMAND`: the heap at the end of exactly that collection, of whichever
//! process of the command, and that the program goes on whatever happens to gctrace.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use gctrace_heap::{HeapGraph, HeapPlace};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use test_kit::interpreters;
use test_kit::interpreters::Python;
use test_kit::limit::WithTimeout as _;

/// `nobody` of Debian.
const NOBODY: u32 = 65534;

fn script() -> PathBuf {
    interpreters::root().join("tests/python/heap_at_full.py")
}

/// `gctrace heap --at-full N -o FILE -- PYTHON heap_at_full.py ARGUMENTS`.
fn gctrace(at_full: u32, file: &Path, python: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace"));
    command.args(["heap", "--at-full", &at_full.to_string(), "-o"]);
    command.arg(file).arg("--").arg(python);
    command.arg(script()).args(arguments);
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

fn read(path: &Path) -> HeapGraph {
    HeapGraph::read(std::fs::File::open(path).unwrap()).unwrap()
}

fn with_gil(test: &str) -> Vec<Python> {
    let all = interpreters::interpreters(test).into_iter();
    all.filter(|python| !python.is("free-threaded")).collect()
}

/// Any interpreter with the GIL.
fn python(test: &str) -> Python {
    let python = with_gil(test).into_iter();
    python.max_by_key(|python| python.name == "system-3.11").unwrap()
}

/// What the program itself found: types of tracked objects by address, the addresses of those that it
/// made for that, and the number of frozen ones, which are not among them.
fn truth(path: &Path) -> (HashMap<u64, String>, HashSet<u64>, usize) {
    let (mut all, mut of_truth, mut frozen) = (HashMap::new(), HashSet::new(), None);
    for line in std::fs::read_to_string(path).unwrap().lines() {
        if let Some(address) = line.strip_prefix('+') {
            of_truth.insert(address.parse().unwrap());
        } else if let Some(count) = line.strip_prefix('=') {
            frozen = Some(count.parse().unwrap());
        } else {
            let (address, kind) = line.split_once(' ').unwrap();
            all.insert(address.parse().unwrap(), kind.to_owned());
        }
    }
    (all, of_truth, frozen.unwrap())
}

/// Types of the objects of a heap that `gc.get_objects()` returns, by address, and the number of frozen
/// ones.
fn tracked(graph: &HeapGraph) -> (HashMap<u64, String>, usize) {
    let kind = |kind: u32| graph.kinds[kind as usize - 1].name.type_name.clone();
    let (mut all, mut frozen) = (HashMap::new(), 0);
    for node in &graph.nodes {
        match node.place {
            HeapPlace::Untracked => {}
            HeapPlace::Frozen => frozen += 1,
            _ => _ = all.insert(node.address, kind(node.kind)),
        }
    }
    (all, frozen)
}

/// The truth is what the program's own entry in `gc.callbacks`, later in the list, finds at the end of
/// the same collection.
#[test]
fn the_heap_is_that_of_the_collection() {
    let folder = tempfile::tempdir().unwrap();
    for python in with_gil("the_heap_is_that_of_the_collection") {
        let file = folder.path().join(format!("{}.gcheap", python.name));
        let truth = folder.path().join(format!("{}.txt", python.name));
        let arguments = ["truth", "4", truth.to_str().unwrap()];
        let output = gctrace(4, &file, &python.path, &arguments).output_in_time();
        let output = output.unwrap();
        let text = errors(&output);
        let context = format!("{}: {text}", python.name);
        assert!(output.status.success(), "{context}");
        assert_eq!(lines(&output), ["6"], "{context}");
        assert!(text.contains("end of full collection 4;"), "{context}");
        let (found, frozen) = tracked(&read(&file));
        let (expected, of_truth, expected_frozen) = self::truth(&truth);
        assert_eq!(frozen, expected_frozen, "{context}");
        assert!(expected.len() > 3000, "{context}");
        let only_truth = expected
            .iter()
            .filter(|(address, _)| !found.contains_key(address) && !of_truth.contains(address));
        let only_truth: Vec<_> = only_truth.collect();
        assert!(only_truth.is_empty(), "{context}: {only_truth:?}");
        let only_heap = found
            .iter()
            .filter(|(address, _)| !expected.contains_key(address) && !of_truth.contains(address));
        let only_heap: Vec<_> = only_heap.collect();
        assert!(only_heap.is_empty(), "{context}: {only_heap:?}");
        println!("{}: {} objects", python.name, found.len());
    }
}

#[test]
fn a_short_program() {
    let test = "a_short_program";
    let folder = tempfile::tempdir().unwrap();
    for python in with_gil(test) {
        let file = folder.path().join(format!("{}.gcheap", python.name));
        let output = gctrace(10, &file, &python.path, &["counts", "10"]).output_in_time();
        let output = output.unwrap();
        let context = format!("{}: {}", python.name, errors(&output));
        assert!(output.status.success(), "{context}");
        let counted: Vec<String> = (0..=10).map(|count| count.to_string()).collect();
        assert_eq!(lines(&output), counted, "{context}");
        let graph = read(&file);
        let notes = graph.header.notes.join("\n");
        assert!(notes.contains("end of full collection 10;"), "{context}: {notes}");
    }
}

#[test]
fn more_than_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let python = python("more_than_there_are");
    let mut command = gctrace(1000, &file, &python.path, &["counts", "7"]);
    let output = command.env("NO_SHUTDOWN", "1").output_in_time().unwrap();
    let text = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("no heap was taken (--at-full 1000)"), "{text}");
    assert!(text.contains("made 7 full collections"), "{text}");
    assert!(!file.exists());
}

#[test]
fn a_command_without_python() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let output = gctrace(1, &file, Path::new("true"), &[]).output_in_time();
    let text = errors(&output.unwrap());
    assert!(text.contains("no CPython was seen"), "{text}");
    assert!(!text.contains("full collections"), "{text}");
}

/// The program's entry in `gc.callbacks` is gone: nothing unknown is claimed.
#[test]
fn a_program_that_clears_the_callbacks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let python = python("a_program_that_clears_the_callbacks");
    let output = gctrace(3, &file, &python.path, &["removes"]).output_in_time();
    let output = output.unwrap();
    let text = errors(&output);
    assert_eq!(lines(&output), ["4"], "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("without gctrace in gc.callbacks"), "{text}");
}

#[test]
fn a_child_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let python = python("a_child_of_the_command");
    let output = gctrace(5, &file, &python.path, &["children", "6"]).output_in_time();
    let output = output.unwrap();
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    let printed = lines(&output);
    let pids: Vec<u32> = printed.iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2, "{text}");
    // The first one wins.
    assert_eq!(read(&file).header.pid, pids[0], "{text}");
    assert!(text.contains(&format!("process {} waited", pids[0])), "{text}");
}

#[test]
fn several_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let python = python("several_at_once");
    let output = gctrace(3, &file, &python.path, &["many", "5"]).output_in_time();
    let output = output.unwrap();
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(lines(&output), ["[0, 0, 0, 0, 0, 0, 0, 0]"], "{text}");
    assert_eq!(text.matches("waited for").count(), 1, "{text}");
    assert!(read(&file).nodes.len() > 500);
}

/// A gctrace that runs in the background, with the output of its program.
struct Background {
    gctrace: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Background {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut gctrace = command.spawn().unwrap();
        let output = BufReader::new(gctrace.stdout.take().unwrap());
        Self { gctrace, output }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a signal to the test's own child.
        unsafe { libc::kill(self.gctrace.id().cast_signed(), signal) };
    }

    /// The program's output to its end.
    fn rest(&mut self) -> Vec<String> {
        let lines = self.output.by_ref().lines();
        let lines = lines.map(Result::unwrap).collect();
        let _status = self.gctrace.status_in_time();
        lines
    }
}

fn all_counts() -> Vec<String> {
    (0..=9).map(|count| count.to_string()).collect()
}

/// gctrace is stopped before the program waits, so it certainly waits when gctrace is killed; or it is
/// not killed, and the program goes on by itself.
#[test]
fn the_program_goes_on_without_gctrace() {
    let test = "the_program_goes_on_without_gctrace";
    let folder = tempfile::tempdir().unwrap();
    let python = python(test);
    for is_killed in [true, false] {
        let file = folder.path().join(format!("{is_killed}.gcheap"));
        let mut running = Background::start(gctrace(5, &file, &python.path, &["counts", "9"]));
        let mut read = Vec::new();
        for line in 0..2 {
            let mut text = String::new();
            running.output.read_line(&mut text).unwrap();
            assert_eq!(text.trim_end(), line.to_string());
            read.push(text.trim_end().to_owned());
            running.signal(libc::SIGSTOP);
        }
        if is_killed {
            std::thread::sleep(Duration::from_millis(300));
            running.signal(libc::SIGKILL);
        }
        let lines = running.output.by_ref().lines().take(8);
        read.extend(lines.map(Result::unwrap));
        assert_eq!(read, all_counts());
        running.signal(libc::SIGCONT);
        assert_eq!(running.rest(), Vec::<String>::new());
    }
}

#[test]
fn gctrace_killed_at_random_moments() {
    let folder = tempfile::tempdir().unwrap();
    let python = python("gctrace_killed_at_random_moments");
    let mut taken = 0;
    for round in 0..25_u64 {
        let file = folder.path().join(format!("{round}.gcheap"));
        let mut running = Background::start(gctrace(5, &file, &python.path, &["counts", "9"]));
        // From before the program's start to after its end, without order.
        std::thread::sleep(Duration::from_millis(round * 137 % 1601));
        running.signal(libc::SIGKILL);
        let lines = running.rest();
        // Killed before the program was started, gctrace starts none.
        assert!(lines.is_empty() || lines == all_counts(), "{round}: {lines:?}");
        taken += usize::from(file.exists());
    }
    println!("{taken} heaps were taken");
}

/// A library that cannot be loaded: by polling, which is reported.
#[test]
fn without_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.gcheap");
    let python = python("without_the_library");
    let run = |at_full, code: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace"));
        command.args(["heap", "--at-full", at_full, "-o"]).arg(&file);
        command.arg("--").arg(&python.path).args(["-c", code]);
        command.env("GCTRACE_INJECT_LIBRARY", "/nonexistent/library.so");
        command.output_in_time().unwrap()
    };
    let output = run("1000", "print(1)");
    let text = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("counted from outside"), "{text}");
    assert!(text.contains("no heap was taken"), "{text}");
    assert!(!text.contains("0 full collections"), "{text}");
    assert!(!file.exists());
    let output = run("2", "import gc, time; gc.collect(); gc.collect(); time.sleep(5)");
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("after its end"), "{text}");
    assert!(read(&file).nodes.len() > 1000);
}

/// As root, for a command that runs as another user: sudo's variables name that user.
#[test]
fn under_sudo() {
    let test = "under_sudo";
    if !nix::unistd::Uid::effective().is_root() {
        interpreters::skip(test, "needs root, to become another user");
        return;
    }
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        interpreters::skip(test, "there is no /usr/bin/python3 that another user may run");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let library = gctrace_inject_library();
    let Some(library) = library else {
        interpreters::skip(test, "the injected library was not built");
        return;
    };
    // Where the other user may read it, and nobody else could replace it.
    let trusted = PathBuf::from(format!("/usr/local/lib/gctrace-test-{}", std::process::id()));
    std::fs::create_dir(&trusted).unwrap();
    let copy = trusted.join("libgctrace_inject.so");
    std::fs::copy(library, &copy).unwrap();
    let file = folder.path().join("heap.gcheap");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace"));
    command.args(["heap", "--at-full", "2", "-o"]).arg(&file).arg("--");
    let code = "import gc, os; gc.collect(); gc.collect(); print(os.getuid())";
    command.arg(python).args(["-c", code]).current_dir("/");
    command.env("SUDO_UID", NOBODY.to_string()).env("SUDO_GID", NOBODY.to_string());
    command.env("SUDO_USER", "nobody").env("GCTRACE_INJECT_LIBRARY", &copy);
    let output = command.output_in_time();
    std::fs::remove_dir_all(&trusted).unwrap();
    let output = output.unwrap();
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(lines(&output), [NOBODY.to_string()], "{text}");
    assert!(text.contains("end of full collection 2;"), "{text}");
    assert!(read(&file).nodes.len() > 1000);
}

/// The library that gctrace finds next to itself.
fn gctrace_inject_library() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_BIN_EXE_gctrace")).parent()?;
    let files = ["libgctrace_inject.so", "deps/libgctrace_inject.so"];
    let mut files = files.map(|file| folder.join(file)).into_iter();
    files.find(|file| file.exists())
}
