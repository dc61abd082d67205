//! The Python package beside PyTorch's profiler, trainers and trackers.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::path::Path;
use std::process::Command;
use test_kit::interpreters::{root, skip, torch};
use test_kit::limit::WithTimeout as _;

/// Runs a script of `tests/python` with the package, which ends with `ok`.
fn run(python: &Path, script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .arg(root().join("tests/python").join(script))
        .arg(folder.path())
        .env("PYTHONPATH", root().join("packaging/python/src"))
        .env("GCTRACE_PROGRAM", env!("CARGO_BIN_EXE_gctrace"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .unwrap();
    assert!(output.stdout.ends_with(b"ok\n"), "{output:?}");
}

#[test]
fn profiles_have_the_collections() {
    if let Some(python) = torch("profiles_have_the_collections") {
        run(&python, "package_torch.py");
    }
}

#[test]
fn trainers_and_trackers_have_the_metrics() {
    match std::env::var_os("GCTRACE_TRAINERS_PYTHON").filter(|path| !path.is_empty()) {
        Some(python) => run(Path::new(&python), "package_trainers.py"),
        None => skip(
            "trainers_and_trackers_have_the_metrics",
            "GCTRACE_TRAINERS_PYTHON names no Python with PyTorch and what tests/python/package_trainers.py lists",
        ),
    }
}
