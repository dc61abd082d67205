//! The Python package beside PyTorch's profiler, trainers and trackers.

use test_kit::interpreters::{environment, torch};
use test_kit::recording::run_with_package;

#[test]
fn profiles_have_the_collections() {
    if let Some(python) = torch("profiles_have_the_collections") {
        run_with_package(&python, "package_torch.py", &[]);
    }
}

#[test]
fn trainers_and_trackers_have_the_metrics() {
    let test = "trainers_and_trackers_have_the_metrics";
    if let Some(python) = environment("trainers", "GCTRACE_TRAINERS_PYTHON", test) {
        run_with_package(&python, "package_trainers.py", &[]);
    }
}
