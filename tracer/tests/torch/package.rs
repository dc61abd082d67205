//! The Python package beside PyTorch's profiler.

use std::process::Command;
use test_kit::interpreters::{root, torch};
use test_kit::limit::WithTimeout as _;

#[test]
fn profiles_have_the_collections() {
    let Some(python) = torch("profiles_have_the_collections") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .arg(root().join("tests/python/package_torch.py"))
        .arg(folder.path())
        .env("PYTHONPATH", root().join("packaging/python/src"))
        .env("GCTRACE_PROGRAM", env!("CARGO_BIN_EXE_gctrace"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .unwrap();
    assert!(output.stdout.ends_with(b"ok\n"), "{output:?}");
}
