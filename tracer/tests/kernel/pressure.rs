//! Kernel tier: allocation pressure against the allocator's own statistics.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of #[test]"
)]

use serde_json::Value;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

test_kit::on_interpreters! {
    arenas_equal_the_interpreters_statistics;
    system_python => "system-3.11",
    cpython_3_8 => "pyenv-3.8",
    cpython_3_9 => "pyenv-3.9",
    cpython_3_10 => "pyenv-3.10",
    cpython_3_12 => "pyenv-3.12",
    debian_3_13 => "debian-3.13",
    debian_3_14 => "debian-3.14",
    debian_3_15 => "debian-3.15",
}

fn arenas_equal_the_interpreters_statistics(test: &str, name: &str) {
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::python(test, name) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let script = recording::scripts().join("arenas.py");
    let line = ["--", python.path.to_str().unwrap(), script.to_str().unwrap()];
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    let (mapped, unmapped) = (
        statistic(&printed, "# arenas allocated total"),
        statistic(&printed, "# arenas reclaimed"),
    );
    assert!(mapped > 10 && unmapped > 5, "the script works: {printed}");
    let trace = Trace::read(&place.path().join("trace.json"));
    let pressures = trace.named("gctrace_pressure");
    assert!(pressures.len() > 1, "more than one interval");
    assert_eq!(sum(&pressures, "arenas_mapped"), mapped);
    assert_eq!(sum(&pressures, "arenas_unmapped"), unmapped);
    let young: u64 = trace.pauses().iter().filter_map(|pause| pause.number("young_count")).sum();
    assert_eq!(sum(&pressures, "net_containers"), young);
}

fn sum(pressures: &[(u64, &Value)], field: &str) -> u64 {
    pressures.iter().filter_map(|(_, args)| args[field].as_u64()).sum()
}

/// The number after `name` in the output of `sys._debugmallocstats()`: `name   =   1,234`.
fn statistic(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    let (_, number) = line.split_once('=').expect("a number");
    number.trim().replace(',', "").parse().expect("a number")
}
