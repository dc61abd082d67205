//! Names of interpreters, and the interpreters of this machine.

use super::*;
use std::process::{Command, Stdio};
use test_kit::limit::WithTimeout as _;

#[test]
fn names_of_interpreters() {
    for name in ["python", "python3", "python3.11", "python3.13t", "python3.9d"] {
        assert!(is_python_name(name), "{name}");
    }
    for name in
        ["python2", "python2.7", "python3-config", "python3.11-gdb.py", "ipython", "pythonw"]
    {
        assert!(!is_python_name(name), "{name}");
    }
}

/// The files that a running Python maps, according to itself.
fn own_words(python: &str) -> Option<Vec<PathBuf>> {
    let script = "import sys; print(*{l.split(None, 5)[5].strip() for l in open('/proc/self/maps') if '/' in l}, sep='\\n')";
    let output = Command::new(python).args(["-c", script]).output_in_time().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect())
}

#[test]
fn the_interpreter_in_path_is_understood() {
    let Some(files) = own_words("python3") else {
        eprintln!("skipped the_interpreter_in_path_is_understood: there is no python3 in PATH");
        return;
    };
    let found = InterpreterExaminer::new()
        .examine(&InterpreterArg::File("python3".into()))
        .expect("examined");
    for resolution in &found {
        assert!(
            files.contains(&resolution.file),
            "{} is not one of {files:?}",
            resolution.file.display()
        );
        assert!(!resolution.points.is_empty());
    }
}

#[test]
fn a_running_interpreter_is_understood() {
    let started = Command::new("python3")
        .args(["-c", "import sys; print(sys.version.split()[0], flush=True); sys.stdin.read()"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("skipped a_running_interpreter_is_understood: there is no python3 in PATH");
        return;
    };
    let mut version = String::new();
    let output = child.stdout.take().expect("its output");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut version)
        .expect("a version");
    let found =
        InterpreterExaminer::new().examine(&InterpreterArg::Process(child.id())).expect("examined");
    drop(child.stdin.take());
    child.status_in_time().expect("wait");
    assert_eq!(found.len(), 1);
    let resolution = found.first().expect("one");
    let expected: Vec<&str> = version.trim().split('.').collect();
    let numbers =
        [resolution.version.major, resolution.version.minor].map(|number| number.to_string());
    assert_eq!(numbers.as_slice(), expected.get(..2).expect("two numbers"));
}

#[test]
fn other_programs_are_rejected() {
    let examiner = InterpreterExaminer::new();
    let details = |python| format!("{:#}", examiner.examine(&python).expect_err("no Python"));
    assert_eq!(
        details(InterpreterArg::File("/bin/cat".into())),
        "/bin/cat: does not contain CPython"
    );
    assert!(details(InterpreterArg::File("no-such-python".into())).contains("not found in PATH"));
    assert!(details(InterpreterArg::Process(u32::MAX >> 1)).contains("process"));
}

#[test]
fn a_program_without_an_answer_is_rejected() {
    let error = child_query::mapped_files(Path::new("/bin/true"), &Invoker::detect())
        .expect_err("no answer");
    assert!(error.to_string().contains("does not behave"), "{error}");
}
