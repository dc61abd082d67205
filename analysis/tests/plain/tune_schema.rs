//! The published schema of `gctrace tune --format json` is generated from the types and describes
//! every figure, and reports conform to it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::tune::{
    MeasuredSetting, StepTable, TuneMeasure, TuneReport, blocks, compare,
};
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

/// Reports with and without pairs, and with both kinds of refusal.
#[test]
fn reports_keep_to_the_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let settings = ["none", "threshold=7000"]
        .map(|name| MeasuredSetting { name: name.to_owned(), collects: true });
    for (count, collections) in [(0, 1), (150, 1), (1_000, 1), (1_000, 0)] {
        let line = |step: u64| {
            let block = step.div_ceil(25);
            let setting = block.count_ones() % 2;
            let (start, end) = (step * 1_000, step * 1_000 + 900 - u64::from(setting) * 50);
            format!("{step},{setting},{block},{start},{end},9,{collections},0,0,{step}\n")
        };
        let text: String = (1..=count).map(line).collect();
        let table = StepTable::parse(text.as_bytes(), 2);
        assert_eq!(table.rows.len() as u64, count);
        let measured = blocks(&table, 2, 25);
        let report = compare(&settings, &measured, TuneMeasure::Wall);
        let report = serde_json::to_value(report).unwrap();
        assert_eq!(report["schema"], "gctrace.tune/1");
        validator.validate(&report).unwrap();
    }
}
