//! Numbers of cells, against a program that has them where IPython has; with IPython itself:
//! `tests/python/package_cells.py`.

use crate::script::{Script, with_gil};
use gctrace_heap::{HeapError, NotebookShell};
use gctrace_probes::ResolveOptions;
use std::collections::BTreeMap;
use std::process::Command;
use test_kit::interpreters::{interpreters, root};

#[test]
fn cells_have_the_numbers_that_the_program_gave_them() {
    for python in with_gil("cells_have_the_numbers_that_the_program_gave_them") {
        for arguments in [&[][..], &["many"], &["dict"], &["many", "dict", "general"]] {
            let mut command = Command::new(&python.path);
            command.arg(root().join("tests/python/notebook_truth.py")).args(arguments);
            let mut script = Script::run(command);
            let mut shell = None;
            for turn in 0..6 {
                let truth: BTreeMap<String, Option<u32>> = script.line();
                let shell = shell.get_or_insert_with(|| {
                    NotebookShell::of(script.pid(), &ResolveOptions::default()).expect(&python.name)
                });
                for (file, number) in truth {
                    let place = format!("{} {arguments:?} {turn}: {file}", python.name);
                    // On a busy machine a look may take too long.
                    let mut looks = std::iter::repeat_with(|| shell.number(&file)).take(20);
                    let found = looks.find(|found| found.is_some() || number.is_none());
                    assert_eq!(found.flatten(), number, "{place}");
                }
                script.go_on();
            }
            drop(script);
            assert_eq!(shell.and_then(|mut shell| shell.number("one more")), None);
        }
    }
}

#[test]
fn a_free_threaded_program_has_none() {
    let all = interpreters("a_free_threaded_program_has_none");
    for python in all.iter().filter(|python| python.is("free-threaded")) {
        let mut command = Command::new(&python.path);
        command.arg(root().join("tests/python/notebook_truth.py"));
        let mut script = Script::run(command);
        script.text();
        let shell = NotebookShell::of(script.pid(), &ResolveOptions::default());
        assert!(matches!(shell, Err(HeapError::Version { .. })), "{}: {shell:?}", python.name);
    }
}
