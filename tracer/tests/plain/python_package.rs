//! The Python package, in interpreters and in the tools that people use it in. Needs no privileges.

use std::path::PathBuf;
use test_kit::interpreters::{interpreters, root, skip};
use test_kit::recording::{run_with_package, run_with_package_recorded};

#[test]
fn the_package_is_true_in_every_interpreter() {
    for python in interpreters("the_package_is_true_in_every_interpreter") {
        run_with_package(&python.path, "package.py");
    }
}

/// Where gctrace records the process already, its sums are taken.
#[test]
fn the_package_is_true_in_recorded_processes() {
    for python in interpreters("the_package_is_true_in_recorded_processes") {
        run_with_package_recorded(&python.path, "package.py");
    }
}

#[test]
fn tests_cells_and_type_checkers_have_it() {
    let named = std::env::var_os("GCTRACE_PACKAGE_PYTHON").filter(|path| !path.is_empty());
    let made = root().join(".venv-package/bin/python");
    let python = named.map_or(made, PathBuf::from);
    if python.exists() {
        run_with_package(&python, "package_tools.py");
    } else {
        skip(
            "tests_cells_and_type_checkers_have_it",
            &format!(
                "no {}; scripts/venv.sh package makes it, GCTRACE_PACKAGE_PYTHON names it",
                python.display()
            ),
        );
    }
}
