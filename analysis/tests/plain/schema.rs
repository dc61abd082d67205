//! The published schema is the one of the types, and reports keep to it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::compare::{Comparison, compare};
use gctrace_analysis::report::Report;
use gctrace_event::Record;
use gctrace_event::read::{DecodedItem, TraceReader};
use test_kit::reports;

#[test]
fn published_schema_is_up_to_date() {
    let schemas = [
        ("report", schemars::schema_for!(Report)),
        ("comparison", schemars::schema_for!(Comparison)),
    ];
    for (name, schema) in schemas {
        let test = "-p gctrace-analysis --test plain schema::";
        test_kit::schema::assert_published(name, &schema, test);
    }
}

#[test]
fn the_description_of_reports_names_nothing_of_rust() {
    let page = test_kit::schema::published("report").with_file_name("report-schema.md");
    let text = std::fs::read_to_string(page).unwrap();
    test_kit::schema::assert_without_rust("report-schema.md", &text);
}

#[test]
fn comparisons_keep_to_the_published_schema() {
    let text = std::fs::read_to_string(test_kit::schema::published("comparison")).unwrap();
    let validator = jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap();
    let validate = |before: &[Report], after: &[Report]| {
        let comparison = serde_json::to_value(compare(before, after)).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&comparison).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    };
    let empty = || vec![Analysis::default().report()];
    validate(&empty(), &empty());
    let step = |number: u64| {
        Record::Annotation(gctrace_event::Annotation {
            pid: 1,
            tid: 1,
            name: format!("ProfilerStep#{number}"),
            start_ns: reports::START + number * 10 * reports::MS,
            end_ns: reports::START + (number + 1) * 10 * reports::MS,
        })
    };
    let mut records = vec![reports::process(1, 0, "generational")];
    for number in 0..40 {
        records.push(step(number));
        let pause = reports::pause(1, number * 10 + 1, number * 10 + 2);
        records.push(Record::Pause(pause));
    }
    let run = || reports::report(records.clone(), Some(reports::end(500)));
    validate(&[run()], &[run(), run()]);
    validate(&[run()], &empty());
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
    assert_eq!(report["schema"], "gctrace.report/3");
}

/// A real trace of the PyTorch profiler, with pauses that were not in it, on the thread that
/// launched first.
fn with_pauses(analysis: &mut Analysis, name: &str) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto");
    let mut reader = TraceReader::open(&folder.join(name)).unwrap();
    analysis.begin_trace(name);
    let mut launches = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        if let DecodedItem::Record(Record::CudaCall(call)) = &item
            && call.is_launch()
        {
            launches.push((call.start_ns, call.pid, call.tid));
        }
        analysis.add(item);
    }
    launches.sort_unstable();
    for place in 1..8 {
        let (start_ns, pid, tid) = launches[launches.len() * place / 8];
        let mut pause = reports::pause(pid, 0, 0);
        pause.tid = tid;
        (pause.start_ns, pause.end_ns) = (start_ns - 900_000, start_ns - 1_000);
        pause.generation = (place % 3) as u8;
        analysis.add(DecodedItem::Record(Record::Pause(pause)));
    }
    analysis.end_trace(reader.finish(), None);
}

#[test]
fn reports_keep_to_the_published_schema() {
    let text = std::fs::read_to_string(test_kit::schema::published("report")).unwrap();
    let schema = serde_json::from_str(&text).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let validate = |report: &Report| {
        let report = serde_json::to_value(report).unwrap();
        let errors = validator.iter_errors(&report);
        let errors: Vec<String> =
            errors.map(|error| format!("{}: {error}", error.instance_path)).collect();
        assert_eq!(errors, [""; 0]);
        report
    };
    validate(&Analysis::default().report());

    let pauses = [50, 120, 210].map(|at| Record::Pause(reports::pause(8, at, at + 10)));
    let records = [vec![reports::process(8, 0, "generational")], pauses.to_vec()].concat();
    validate(&reports::report(records, Some(reports::end(500))));

    let mut ranks = Analysis::default();
    with_pauses(&mut ranks, "sampled_rank0.json.gz");
    with_pauses(&mut ranks, "sampled_rank1.json.gz");
    ranks.settle();
    let report = validate(&ranks.report());
    assert!(!report["gpu"]["ranks"]["jobs"][0]["pauses"].is_null());
    assert!(!report["advice"].as_array().unwrap().is_empty());

    for name in ["nccl_rank0.json.gz", "ns_resolution_rank0.json.gz"] {
        let mut analysis = Analysis::default();
        with_pauses(&mut analysis, name);
        analysis.settle();
        let report = validate(&analysis.report());
        assert_eq!(report["gpu"]["cause"][0]["pauses"]["count"], 7, "{name}");
        assert!(!report["steps"].is_null());
    }

    // A schema that lets everything pass would prove nothing.
    let mut wrong = serde_json::to_value(Analysis::default().report()).unwrap();
    wrong["verdict"]["level"] = "unheard-of".into();
    assert!(!validator.is_valid(&wrong));
}
