//! docs/metrics.md, the dashboards and the rules name existing metrics, with valid PromQL.

#![expect(clippy::disallowed_methods, reason = "variables of tests, not of gctrace")]

use crate::top::metrics::collect::MetricsFigures;
use crate::top::metrics::families::{FAMILIES, MetricFamily};
use crate::top::metrics::page::open_metrics;
use crate::top::metrics::tests::example::example;
use prometheus_client::metrics::MetricType;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};
use test_kit::limit::WithTimeout as _;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The name of a family in queries; a histogram has several.
fn asked_for(family: &MetricFamily) -> String {
    let unit = family.unit.map(|unit| format!("_{unit}"));
    let suffix = match family.kind {
        MetricType::Counter => "_total",
        MetricType::Info => "_info",
        _ => "",
    };
    format!("{}{}{suffix}", family.name, unit.unwrap_or_default())
}

/// Names of the series of a page.
fn series() -> BTreeSet<String> {
    let page = open_metrics(example()).unwrap();
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

/// The words of a query that look like metrics of gctrace, or series that its rules record.
fn named(query: &str) -> BTreeSet<String> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = query.split(|c| !part_of_name(c));
    let ours = |word: &&str| {
        word.starts_with("gctrace") || word.starts_with("process_") || word.contains(":gctrace")
    };
    words.filter(ours).map(str::to_owned).collect()
}

fn dashboards() -> [Value; 2] {
    ["grafana-dashboard.json", "grafana-job-dashboard.json"]
        .map(|name| serde_json::from_str(&document(name)).unwrap())
}

/// Names and queries of the recording rules, one line each.
fn recorded() -> BTreeMap<String, String> {
    let rules = document("prometheus-rules.yml");
    let lines: Vec<&str> = rules.lines().collect();
    let pairs = lines.windows(2).filter_map(|pair| match pair {
        [name, query] => Some((
            name.trim().strip_prefix("- record: ")?.to_owned(),
            query.trim().strip_prefix("expr: ")?.to_owned(),
        )),
        _ => None,
    });
    pairs.collect()
}

/// Queries of the panels, with the variables set to all processes.
fn queries_of_panels() -> Vec<String> {
    let dashboards = dashboards();
    let panels = dashboards.iter().flat_map(|dashboard| dashboard["panels"].as_array().unwrap());
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    queries
        .map(|query| {
            ["$instance", "$rank", "$pid", "$job"]
                .into_iter()
                .fold(query.replace("$__rate_interval", "1m"), |query, variable| {
                    query.replace(variable, ".*")
                })
        })
        .collect()
}

/// Queries of the document, without comments.
fn queries_of_document() -> Vec<String> {
    let document = document("metrics.md");
    let block = document.split("```promql\n").nth(1).unwrap();
    let block = block.split("```").next().unwrap();
    let lines = block.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Set to write the tables of docs/metrics.md instead of comparing them.
const UPDATE: &str = "GCTRACE_UPDATE_METRICS";

/// The heading of the table of a family in the document.
fn section(family: &MetricFamily) -> &'static str {
    match family.name.as_str() {
        name if name.starts_with("gctrace_process") && !name.starts_with("gctrace_processes") => {
            "### Per process"
        }
        name if name.starts_with("gctrace_gpu") => "### GPUs",
        name if name.starts_with("process_") => "### gctrace itself",
        "gctrace_lost_events" | "gctrace_probe_hits" | "gctrace_probe_cost" => "### gctrace itself",
        _ => "### All processes",
    }
}

/// The row of a family: its type and unit, the labels of its samples, its help.
fn row(family: &MetricFamily, figures: &MetricsFigures) -> String {
    let mut labels = Vec::new();
    for (name, _) in (family.samples)(figures).iter().flat_map(|(labels, _)| labels) {
        let of_section = section(family) == "### Per process" && ["pid", "rank"].contains(name);
        let name = format!("`{name}`");
        if !of_section && !labels.contains(&name) {
            labels.push(name);
        }
    }
    let unit = family.unit.map(|unit| format!(", {unit}")).unwrap_or_default();
    let (name, kind, labels) = (asked_for(family), family.kind.as_str(), labels.join(", "));
    let help = family.help.trim_end_matches('.');
    format!("| `{name}` | {kind}{unit} | {labels} | {help} |\n").replace("|  |", "| |")
}

#[test]
fn the_tables_of_the_document_are_those_of_the_page() {
    let figures = MetricsFigures::new(example());
    let before = document("metrics.md");
    let mut made = String::new();
    let mut heading = "";
    for line in before.lines() {
        if line.starts_with('#') {
            heading = line;
        }
        let is_listed = heading.starts_with("###");
        if !is_listed || !line.starts_with("| `") {
            made.push_str(line);
            made.push('\n');
        }
        if is_listed && line.starts_with("|---") {
            let families = FAMILIES.iter().filter(|family| section(family) == heading);
            made.extend(families.map(|family| row(family, &figures)));
        }
    }
    if std::env::var_os(UPDATE).is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
        std::fs::write(path, &made).unwrap();
    }
    let remedy = format!("{UPDATE}=1 cargo test -p gctrace --bin gctrace metrics::");
    assert!(made == document("metrics.md"), "docs/metrics.md is old: {remedy}");
    for family in FAMILIES.iter() {
        assert!(made.contains(&row(family, &figures)), "{} has no table", family.name);
    }
}

#[test]
fn the_document_lists_every_recorded_series() {
    let document = document("metrics.md");
    for name in recorded().keys() {
        assert!(document.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn questions_are_about_series_that_there_are() {
    let mut series = series();
    let recorded = recorded();
    assert_eq!(recorded.len(), 12, "{recorded:?}");
    series.extend(recorded.keys().cloned());
    let dashboards = dashboards();
    let variables =
        dashboards.iter().flat_map(|dashboard| dashboard["templating"]["list"].as_array().unwrap());
    let variables = variables.filter_map(|variable| variable["query"]["query"].as_str());
    let queries = queries_of_panels().into_iter().chain(queries_of_document());
    let queries = queries.chain(recorded.into_values());
    for query in queries.chain(variables.map(str::to_owned)) {
        let names = named(&query);
        assert!(!names.is_empty(), "{query}");
        for name in names {
            assert!(series.contains(&name), "{name} in: {query}");
        }
    }
}

#[test]
fn every_panel_has_a_place_and_a_data_source() {
    let mut numbers = BTreeSet::new();
    let dashboards = dashboards();
    let panels = dashboards.iter().flat_map(|dashboard| {
        let panels = dashboard["panels"].as_array().unwrap();
        panels.iter().map(|panel| (&dashboard["uid"], panel))
    });
    for (dashboard, panel) in panels {
        let number = (dashboard.as_str(), panel["id"].as_u64().unwrap());
        assert!(numbers.insert(number), "{panel}");
        let place = &panel["gridPos"];
        let right = place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap();
        assert!(right <= 24, "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
        }
    }
}

#[test]
fn promtool_takes_every_query() {
    let queries: Vec<String> =
        queries_of_panels().into_iter().chain(queries_of_document()).collect();
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(index, query)| serde_json::json!({"record": format!("rule:{index}"), "expr": query}))
        .collect();
    // JSON is YAML too.
    let rules = serde_json::json!({"groups": [{"name": "all", "rules": rules}]});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, rules.to_string()).unwrap();
    let Some(checked) = promtool("promtool_takes_every_query", ["check", "rules"], &file) else {
        return;
    };
    let answered = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{answered}");
    let found = format!("{} rules found", queries.len());
    assert!(String::from_utf8_lossy(&checked.stdout).contains(&found));
}

/// Nine ranks, one of which stands out: docs/prometheus-rules.test.yml.
#[test]
fn rules_give_what_their_test_expects() {
    let test = "rules_give_what_their_test_expects";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/prometheus-rules.test.yml");
    if let Some(tested) = promtool(test, ["test", "rules"], &file) {
        assert!(tested.status.success(), "{tested:?}");
        assert!(String::from_utf8_lossy(&tested.stdout).contains("SUCCESS"));
    }
}

/// Words between `{{` and `}}`.
fn labels(legend: &str) -> Vec<&str> {
    let parts = legend.split("{{").skip(1);
    parts.filter_map(|part| part.split("}}").next()).collect()
}

/// Each panel about a job shows something of the nine ranks, with the labels that its legend names.
#[test]
fn panels_of_a_job_show_its_ranks() {
    let test = "panels_of_a_job_show_its_ranks";
    let [_, job] = dashboards();
    let panels = job["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array());
    let mut expected = Vec::new();
    for target in targets.flatten() {
        let query = target["expr"].as_str().unwrap().replace("$job", ".*");
        let legend = target["legendFormat"].as_str().unwrap_or_default();
        expected.push((format!("group({query})"), "{}".to_owned()));
        for label in labels(legend) {
            let found = format!(r#"label_replace({query}, "found", "yes", "{label}", ".+")"#);
            let found = format!("group by (found) ({found})");
            expected.push((found, r#"{found="yes"}"#.to_owned()));
        }
    }
    assert!(expected.len() > 15, "{expected:?}");
    let tests = expected.iter().map(|(query, labels)| {
        let samples = serde_json::json!([{"labels": labels, "value": 1}]);
        serde_json::json!({"expr": query, "eval_time": "20m", "exp_samples": samples})
    });
    let tests = serde_json::json!(tests.collect::<Vec<Value>>());
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/prometheus-rules.yml");
    let about = document("prometheus-rules.test.yml");
    let (series, _) = about.split_once("    promql_expr_test:").unwrap();
    let series = series.replace("prometheus-rules.yml]", &format!("{}]", rules.display()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panels.yml");
    std::fs::write(&file, format!("{series}    promql_expr_test: {tests}\n")).unwrap();
    if let Some(tested) = promtool(test, ["test", "rules"], &file) {
        assert!(tested.status.success(), "{tested:?}");
        assert!(String::from_utf8_lossy(&tested.stdout).contains("SUCCESS"));
    }
}

fn promtool(test: &str, command: [&str; 2], file: &Path) -> Option<Output> {
    let mut promtool = Command::new("promtool");
    let output = promtool.args(command).arg(file).output_in_time();
    if output.is_err() {
        eprintln!("skipped {test}: no promtool here (scripts/promtool.sh)");
    }
    output.ok()
}
