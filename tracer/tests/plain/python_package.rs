//! The Python package, in interpreters and in the tools that people use it in. Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::path::PathBuf;
use std::process::Command;
use test_kit::interpreters::{interpreters, root};
use test_kit::limit::WithTimeout as _;

/// Runs a script of `tests/python` with the package, which ends with `ok`.
fn run(python: impl AsRef<std::ffi::OsStr>, script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .arg(root().join("tests/python").join(script))
        .arg(folder.path())
        .env("PYTHONPATH", root().join("packaging/python/src"))
        .env("GCTRACE_PROGRAM", env!("CARGO_BIN_EXE_gctrace"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {text}");
    assert!(output.stdout.ends_with(b"ok\n"), "{script}: {text}");
}

#[test]
fn the_package_is_true_in_every_interpreter() {
    for python in interpreters("the_package_is_true_in_every_interpreter") {
        run(&python.path, "package.py");
    }
}

#[test]
fn tests_cells_and_type_checkers_have_it() {
    let named = std::env::var_os("GCTRACE_PACKAGE_PYTHON").filter(|path| !path.is_empty());
    let made = root().join(".venv-package/bin/python");
    let python = named.map_or(made, PathBuf::from);
    if !python.exists() {
        println!(
            "skipped tests_cells_and_type_checkers_have_it: no {}; scripts/venv.sh package makes it, \
             GCTRACE_PACKAGE_PYTHON names it",
            python.display()
        );
        return;
    }
    run(python, "package_tools.py");
}
