//! The Python package, in interpreters and in the tools that people use it in. Needs no privileges.

use test_kit::interpreters::{environment, interpreters};
use test_kit::recording::{run_with_package, run_with_package_recorded};

#[test]
fn the_package_is_true_in_every_interpreter() {
    for python in interpreters("the_package_is_true_in_every_interpreter") {
        run_with_package(&python.path, "package.py", &[]);
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
    let test = "tests_cells_and_type_checkers_have_it";
    if let Some(python) = environment("package", "GCTRACE_PACKAGE_PYTHON", test) {
        run_with_package(&python, "package_tools.py", &[]);
    }
}
