//! The Python package beside PyTorch's profiler, trainers and trackers.

use std::path::Path;
use test_kit::interpreters::{skip, torch};
use test_kit::recording::run_with_package;

#[test]
fn profiles_have_the_collections() {
    if let Some(python) = torch("profiles_have_the_collections") {
        run_with_package(&python, "package_torch.py");
    }
}

#[test]
fn trainers_and_trackers_have_the_metrics() {
    match std::env::var_os("GCTRACE_TRAINERS_PYTHON").filter(|path| !path.is_empty()) {
        Some(python) => run_with_package(Path::new(&python), "package_trainers.py"),
        None => skip(
            "trainers_and_trackers_have_the_metrics",
            "GCTRACE_TRAINERS_PYTHON names no Python with PyTorch and what tests/python/package_trainers.py lists",
        ),
    }
}
