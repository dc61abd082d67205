//! All metric families: name, unit, type, help and samples, in the order of the page.
//!
//! They follow from `analysis/src/live/figure_table.rs`. Names follow Prometheus conventions (base
//! units, unit at the end, `_total` for counters). `gctrace_process_*` is per recorded process, other
//! `gctrace_*` is the sum over all processes, and `process_*`, as usual, describes the exporter:
//! gctrace.

use super::collect::{MetricsFigures, Subject};
use super::labels;
use gctrace_analysis::figure::{Figure, Get, LabeledValue, Nature, Unit, Value, metric, number};
use gctrace_analysis::live::figure_table as figures;
use prometheus_client::metrics::MetricType;
use std::sync::LazyLock;

/// A family. Its OpenMetrics name is `name` followed by the unit.
pub(super) struct MetricFamily {
    /// Name without the unit and without `_total`; the encoder adds them.
    pub(super) name: String,
    /// Unit, if any; it ends the name.
    pub(super) unit: Option<&'static str>,
    /// OpenMetrics type: determines the suffixes of the samples.
    pub(super) kind: MetricType,
    /// Help text: one sentence without quotation marks or backslashes.
    pub(super) help: String,
    /// The samples of a page; a family without any is left out.
    pub(super) samples: Samples,
}

/// Finds the samples of a family.
type Samples = Box<dyn for<'a> Fn(&'a MetricsFigures) -> Vec<LabeledValue<'a>> + Send + Sync>;

/// Figures that no snapshot has.
const PAGE: &[Figure<MetricsFigures>] = &[metric(
    "processes_left_out",
    (Unit::Count, Nature::Level, None),
    Get::One(|page| Some(Value::Whole(page.left_out))),
    "Processes without metrics of their own because of the limit per page",
)];

/// All families, in the order of the page.
pub(super) static FAMILIES: LazyLock<Vec<MetricFamily>> = LazyLock::new(|| {
    let mut all = Vec::new();
    let gctrace = ["gctrace", "", ""];
    add(&mut all, gctrace, figures::RECORDING, |page| only(&page.snapshot));
    add(&mut all, gctrace, PAGE, only);
    let of_all = ["gctrace", "all processes", ", including exited ones"];
    add(&mut all, of_all, figures::COLLECTIONS, |page| only(&page.snapshot.totals.collections));
    add(&mut all, of_all, figures::ALL_COLLECTIONS, |page| only(&page.snapshot.totals.collections));
    let of_each = ["gctrace_process", "the process", ""];
    add(&mut all, of_each, figures::DESCRIPTION, MetricsFigures::processes);
    add(&mut all, of_each, figures::COLLECTIONS, MetricsFigures::process_collections);
    add(&mut all, of_each, figures::PROCESS, MetricsFigures::processes);
    add(&mut all, of_each, figures::PROCESS_GPU, MetricsFigures::process_gpus);
    add(&mut all, ["gctrace_gpu", "", ""], figures::GPU, |page| {
        page.snapshot.gpus.iter().map(|gpu| (vec![number("gpu", gpu.index)], true, gpu)).collect()
    });
    add(&mut all, gctrace, figures::RECORDER, |page| only(&page.snapshot.recorder));
    add(&mut all, ["process", "", ""], figures::EXPORTER, |page| only(&page.snapshot.recorder));
    all
});

/// A subject that needs no label.
fn only<S>(subject: &S) -> Vec<Subject<'_, S>> {
    vec![(Vec::new(), true, subject)]
}

/// Adds the families of a table: start of their names, the owner of the figures, the addition to a help that ends in
/// the owner, and the place of the table's subjects on a page.
fn add<S>(
    families: &mut Vec<MetricFamily>,
    [prefix, of, also]: [&str; 3],
    table: &'static [Figure<S>],
    subjects: for<'a> fn(&'a MetricsFigures) -> Vec<Subject<'a, S>>,
) {
    for figure in table {
        let also = if figure.help.ends_with("{of}") { also } else { "" };
        let basis = if let Some(of) = figure.basis { format!(" ({of})") } else { String::new() };
        families.push(MetricFamily {
            name: if figure.id.is_empty() {
                prefix.to_owned()
            } else {
                format!("{prefix}_{}", figure.id)
            },
            unit: match figure.unit {
                Unit::Ns | Unit::At | Unit::Classes => Some("seconds"),
                Unit::Bytes => Some("bytes"),
                Unit::Ratio => Some("ratio"),
                Unit::Count | Unit::Ppm | Unit::Info => None,
            },
            kind: match (figure.unit, figure.nature) {
                (Unit::Info, _) => MetricType::Info,
                (Unit::Classes, _) => MetricType::Histogram,
                (_, Nature::Total) => MetricType::Counter,
                (_, Nature::Lasting | Nature::Level) => MetricType::Gauge,
            },
            help: format!("{}{also}{basis}.", figure.help.replace("{of}", of)),
            samples: Box::new(move |page| samples(page, figure, subjects(page))),
        });
    }
}

/// The samples of a figure, labeled by its subject first.
fn samples<'a, S>(
    page: &'a MetricsFigures,
    figure: &Figure<S>,
    subjects: Vec<Subject<'a, S>>,
) -> Vec<LabeledValue<'a>> {
    let mut samples = Vec::new();
    for (of, is_running, subject) in subjects {
        if figure.nature == Nature::Level && !is_running {
            continue;
        }
        for (more, value) in figure.values(subject) {
            let more = more.into_iter().map(|(name, value)| (name, labels::plain(value)));
            let labels = of.iter().cloned().chain(more).collect();
            samples.push((labels, page.in_base(figure.unit, value)));
        }
    }
    samples
}
