//! The published schema is the one of the types.

use gctrace_analysis::Analysis;
use gctrace_analysis::report::Report;

/// Set to write the schema instead of comparing it.
const UPDATE: &str = "GCTRACE_UPDATE_SCHEMA";

fn published() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/report.schema.json")
}

#[test]
fn published_schema_is_up_to_date() {
    let schema = schemars::schema_for!(Report);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(published(), &text).unwrap();
    }
    let published = std::fs::read_to_string(published()).unwrap();
    assert!(
        published == text,
        "docs/report.schema.json is old: {UPDATE}=1 cargo test -p gctrace-analysis --test schema"
    );
}

/// The members of a report are those that the schema names, and those it requires are there.
#[test]
fn a_report_has_the_members_of_the_schema() {
    let report = serde_json::to_value(Analysis::default().report()).unwrap();
    let schema = serde_json::to_value(schemars::schema_for!(Report)).unwrap();
    let report = report.as_object().unwrap();
    let properties = schema["properties"].as_object().unwrap();
    assert!(report.keys().all(|key| properties.contains_key(key)));
    for key in schema["required"].as_array().unwrap() {
        assert!(report.contains_key(key.as_str().unwrap()), "{key}");
    }
    assert_eq!(report["schema"], "gctrace.report/1");
}
