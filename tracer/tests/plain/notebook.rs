//! Cells of notebooks are named as the notebook names them, in every report.

use std::path::Path;
use test_kit::{interpreters, recording};

/// Runs two cells under the names that IPython and ipykernel give their files: the first allocates, the
/// second makes cycles.
const CELLS: &str = "
ALLOCATES = '''
kept = []
for number in range(60_000):
    kept.append([number])
'''
MAKES_CYCLES = '''
def knot():
    def me():
        return me
for number in range(60_000):
    knot()
'''
exec(compile(ALLOCATES, '<ipython-input-3-0f1e2d3c>', 'exec'))
exec(compile(MAKES_CYCLES, '/tmp/ipykernel_77/2880593134.py', 'exec'))
";

fn printed(arguments: &[&str], place: &Path) -> String {
    let output = recording::gctrace(arguments, place);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn cells_of_a_kernel_have_the_numbers_of_its_notebook() {
    let test = "cells_of_a_kernel_have_the_numbers_of_its_notebook";
    if let Some(python) = interpreters::environment("package", "GCTRACE_PACKAGE_PYTHON", test) {
        recording::run_with_package(&python, "package_cells.py", &["inject"]);
    }
}

/// Those of a program that runs files with such names, but no IPython.
#[test]
fn cells_are_named_by_their_prompts_in_every_report() {
    let place = tempfile::tempdir().unwrap();
    let python = interpreters::any_python();
    let python = python.to_str().unwrap();
    std::fs::write(place.path().join("cells.py"), CELLS).unwrap();
    let line = ["record", "--mode", "inject", "--garbage", "cycles", "--", python, "cells.py"];
    printed(&line, place.path());
    for report in [
        &["analyze", "trace.json"][..],
        &["analyze", "--full", "trace.json"],
        &["analyze", "--format", "json", "trace.json"],
        &["export", "--format", "collapsed", "trace.json"],
    ] {
        let text = printed(report, place.path());
        assert!(text.contains("In [?]"), "{report:?}: {text}");
        for hash in ["ipykernel", "2880593134", "ipython"] {
            assert!(!text.contains(hash), "{report:?}: {text}");
        }
    }
    let full = printed(&["analyze", "--full", "trace.json"], place.path());
    assert!(full.contains("In [3]:4 in <module>"), "{full}");
}
