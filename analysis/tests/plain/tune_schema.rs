//! The published schema of `gctrace tune --format json` is generated from the types and describes
//! every figure, and reports conform to it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::tune::{Measured, MeasuredRuns, TuneMeasure, TuneReport, TuneUnit, compare};
use serde_json::Value;

fn schema() -> Value {
    serde_json::to_value(schemars::schema_for!(TuneReport)).unwrap()
}

#[test]
fn published_schema_is_up_to_date() {
    test_kit::schema::assert_published(
        "tune",
        &schema(),
        "-p gctrace-analysis --test plain tune_schema::",
    );
}

/// Reports with and without pairs, and without a verdict.
#[test]
fn reports_keep_to_the_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let names = ["none", "threshold=7000"].map(str::to_owned);
    for count in [0, 5, 20] {
        let run = |wall_ns: f64| Measured {
            wall_ns,
            cpu_ns: None,
            pause_ns: Some(9.0),
            collecting_ns: None,
            collections: [1.0, 0.0, 0.0],
            peak_rss_bytes: Some(1 << 20),
        };
        let first = (0..count).map(|at| run(900.0 + f64::from(at % 3))).collect();
        let other = (0..count).map(|_| run(850.0)).collect();
        let runs = MeasuredRuns { unit: TuneUnit::Run, of_settings: vec![first, other], looks: 1 };
        let report = serde_json::to_value(compare(&names, &runs, TuneMeasure::Wall)).unwrap();
        assert_eq!(report["schema"], "gctrace.tune/1");
        validator.validate(&report).unwrap();
    }
}
