//! A page, read by the Prometheus project's parser.

#![expect(clippy::disallowed_methods, reason = "variables of tests, not of gctrace")]

use crate::top::metrics::page::open_metrics;
use gctrace_analysis::live::Snapshot;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) type Labels = BTreeMap<String, String>;

/// The samples, by name and labels.
pub(super) struct Parsed {
    families: Vec<FamilyText>,
}

#[derive(Deserialize)]
struct FamilyText {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    unit: String,
    help: String,
    samples: Vec<(String, Labels, Value)>,
}

/// A family on the page.
pub(super) struct Described<'a> {
    pub(super) kind: &'a str,
    pub(super) unit: &'a str,
    pub(super) help: &'a str,
    pub(super) samples: usize,
}

impl Parsed {
    /// The page of a snapshot; `None`, with a message, if the parser is missing.
    pub(super) fn read(test: &str, snapshot: &Snapshot) -> Option<Self> {
        let page = open_metrics(snapshot.clone()).unwrap();
        let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv-metrics/bin/python");
        let named = std::env::var_os("GCTRACE_METRICS_PYTHON").filter(|path| !path.is_empty());
        let python = named.map_or(made, PathBuf::from);
        if !python.exists() {
            eprintln!(
                "skipped {test}: no parser of metrics at {}; scripts/venv.sh metrics makes it, GCTRACE_METRICS_PYTHON names it",
                python.display()
            );
            return None;
        }
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/python/openmetrics_page.py");
        let mut parser = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        parser.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let answered = parser.wait_with_output().unwrap();
        assert!(answered.status.success(), "refused by the parser:\n{page}");
        let families = serde_json::from_slice(&answered.stdout).unwrap();
        Some(Self { families })
    }

    pub(super) fn families(&self) -> usize {
        self.families.len()
    }

    pub(super) fn family(&self, name: &str) -> Described<'_> {
        let found = self.families.iter().find(|family| family.name == name);
        let found = found.unwrap_or_else(|| panic!("no family {name}"));
        Described {
            kind: &found.kind,
            unit: &found.unit,
            help: &found.help,
            samples: found.samples.len(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &(String, Labels, Value)> {
        self.families.iter().flat_map(|family| &family.samples)
    }

    /// Samples of this name with at least these labels.
    fn find(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&(String, Labels, Value)> {
        let has = |found: &Labels| {
            labels.iter().all(|(key, value)| found.get(*key).map(String::as_str) == Some(*value))
        };
        self.all().filter(|(found, found_labels, _)| found == name && has(found_labels)).collect()
    }

    pub(super) fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        !self.find(name, labels).is_empty()
    }

    /// Asserts the value of the sample with exactly these labels.
    #[track_caller]
    pub(super) fn is(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let mut found = self.find(name, labels);
        found.retain(|(_, found, _)| found.len() == labels.len());
        assert_eq!(found.len(), 1, "{name} {labels:?}");
        assert_eq!(found[0].2.as_f64(), Some(value), "{name} {labels:?}");
    }

    pub(super) fn bucket(&self, name: &str, generation: &str, bound: f64) -> f64 {
        let found = self.find(&format!("{name}_bucket"), &[("generation", generation)]);
        let found = found.into_iter().find(|(_, labels, _)| labels["le"].parse() == Ok(bound));
        found.and_then(|(_, _, value)| value.as_f64()).unwrap()
    }

    pub(super) fn labels(&self, name: &str, labels: &[(&str, &str)]) -> &Labels {
        let found = self.find(name, labels);
        assert_eq!(found.len(), 1, "{name} {labels:?}");
        &found[0].1
    }
}
