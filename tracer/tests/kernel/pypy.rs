//! Kernel tier: PyPy, whose collector gctrace does not record, is named wherever it is met. PyPy itself
//! if it is installed, and a stand-in: a small program and its library, as PyPy is.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

const IS_PYPY: &str = "ran PyPy; gctrace does not record its collector";

/// A program that is PyPy to gctrace; its last argument is how long it lives, in seconds.
struct PyPy {
    words: Vec<String>,
    place: tempfile::TempDir,
}

impl PyPy {
    fn command(&self, seconds: &str) -> Vec<String> {
        [self.words.clone(), vec![seconds.to_owned()]].concat()
    }
}

/// The stand-in; `None`, with a skip message, if there is no compiler or no right to record.
fn stand_in(test: &str) -> Option<PyPy> {
    let (_, place) = recording::place_for(test)?;
    let build = |arguments: &[&str]| {
        let built = Command::new("cc").current_dir(&place).args(arguments).status_in_time();
        built.is_ok_and(|status| status.success())
    };
    let library = "#include <stdlib.h>\n#include <unistd.h>\n\
        int pypy_main_startup(int count, char **words) { return sleep(atoi(words[count - 1])); }";
    std::fs::write(place.path().join("library.c"), library).unwrap();
    let main = "int pypy_main_startup(int, char **);\n\
        int main(int count, char **words) { return pypy_main_startup(count, words); }";
    std::fs::write(place.path().join("main.c"), main).unwrap();
    let shared = ["-shared", "-fPIC", "library.c", "-o", "libpypy3.9-c.so"];
    if !build(&shared) {
        eprintln!("skipped {test}: no C compiler");
        return None;
    }
    let rpath = format!("-Wl,-rpath,{}", place.path().display());
    let link = ["main.c", "-L.", "-l:libpypy3.9-c.so", "-o", "pypy3"];
    assert!(build(&[&link[..], &[&rpath]].concat()));
    let words = vec![place.path().join("pypy3").to_str().unwrap().to_owned()];
    Some(PyPy { words, place })
}

/// PyPy, or a named skip.
fn installed(test: &str) -> Option<PyPy> {
    let (_, place) = recording::place_for(test)?;
    let found = Command::new("pypy3").arg("--version").output_in_time();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped {test}: pypy3 is not installed (apt-get install pypy3)");
        return None;
    }
    let sleeps = "import gc, sys, time; gc.collect(); time.sleep(int(sys.argv[1]))";
    let words = ["pypy3", "-c", sleeps].map(str::to_owned).to_vec();
    Some(PyPy { words, place })
}

fn messages(arguments: &[&str], place: &Path) -> (Option<i32>, String) {
    let output = recording::gctrace(arguments, place);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("gctrace {}: {text}", arguments.join(" "));
    (output.status.code(), text)
}

fn is_named(pypy: &PyPy) {
    let place = pypy.place.path();
    let command = pypy.command("0");
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    for mode in ["ebpf", "inject", "both"] {
        let options = ["record", "--mode", mode, "-o", "trace.json", "--"];
        let (code, text) = messages(&[&options[..], &command].concat(), place);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(&format!("1 process {IS_PYPY}")), "{text}");
        assert!(!text.contains("nothing lost") && !text.contains("no Python ran"), "{text}");
        assert!(!text.contains("the command runs none"), "{text}");
        let report = recording::gctrace(&["analyze", "--full", "trace.json"], place);
        let report = String::from_utf8_lossy(&report.stdout).into_owned();
        let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(report.contains(&format!("1 process {IS_PYPY}")), "{report}");
    }
    let options = ["heap", "--at-full", "1", "-o", "heap.gcheap", "--"];
    let (_, text) = messages(&[&options[..], &command].concat(), place);
    assert!(text.contains(IS_PYPY), "{text}");
    assert!(!text.contains("the command runs none"), "{text}");
    let lives = pypy.command("4");
    let mut running = Command::new(&lives[0]).args(&lives[1..]).spawn().unwrap();
    let pid = running.id().to_string();
    recording::wait_until("the start of PyPy", || {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        maps.is_ok_and(|maps| maps.contains("libpypy"))
    });
    let options = ["record", "-d", "200ms", "-o", "trace.json", "-p", &pid];
    let (code, text) = messages(&options, place);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("process {pid} {IS_PYPY}")), "{text}");
    assert!(!text.contains("no Python ran"), "{text}");
    let output = recording::gctrace(&["doctor", "--python", &pid], place);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("it is PyPy"), "{text}");
    running.kill().unwrap();
    running.status_in_time().unwrap();
}

#[test]
fn a_stand_in_for_pypy_is_named() {
    if let Some(pypy) = stand_in("a_stand_in_for_pypy_is_named") {
        is_named(&pypy);
    }
}

#[test]
fn pypy_is_named() {
    if let Some(pypy) = installed("pypy_is_named") {
        is_named(&pypy);
    }
}
