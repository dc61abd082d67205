//! The Python package beside PyTorch's profiler, trainers and trackers.

use std::path::PathBuf;
use test_kit::interpreters::{root, skip, torch};
use test_kit::recording::run_with_package;

#[test]
fn profiles_have_the_collections() {
    if let Some(python) = torch("profiles_have_the_collections") {
        run_with_package(&python, "package_torch.py");
    }
}

#[test]
fn trainers_and_trackers_have_the_metrics() {
    let named = std::env::var_os("GCTRACE_TRAINERS_PYTHON").filter(|path| !path.is_empty());
    let made = root().join(".venv-trainers/bin/python");
    let python = named.map_or(made, PathBuf::from);
    if python.exists() {
        run_with_package(&python, "package_trainers.py");
    } else {
        skip(
            "trainers_and_trackers_have_the_metrics",
            &format!(
                "no {}; scripts/venv.sh trainers makes it, GCTRACE_TRAINERS_PYTHON names it",
                python.display()
            ),
        );
    }
}
