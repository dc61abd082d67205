//! Cells of a Jupyter kernel and of IPython have the numbers of their notebook where kernel probes record them.

use test_kit::interpreters::environment;
use test_kit::recording::run_with_package;

#[test]
fn cells_of_a_kernel_have_the_numbers_of_its_notebook() {
    let test = "cells_of_a_kernel_have_the_numbers_of_its_notebook";
    if let Some(python) = environment("package", "GCTRACE_PACKAGE_PYTHON", test) {
        for how in ["ebpf", "both"] {
            run_with_package(&python, "package_cells.py", &[how]);
        }
    }
}
