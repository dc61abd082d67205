//! Converts a snapshot to samples.
//!
//! Owns the mapping from figures to metrics, and the choice of processes on the page. `families.rs`
//! defines the metrics.

mod processes;

use self::MetricValue::{Real, Signed, Whole};
use crate::top::metrics::families::MetricFamily;
use crate::top::metrics::labels::{GENERATION_NAMES, Label};
use crate::top::metrics::{families, labels};
use gctrace_analysis::live::{CollectionCounts, GpuFigures, Histogram, PAUSE_CLASSES_NS, Snapshot};
use gctrace_analysis::report::PauseTotal;
use gctrace_event::{GcReason, RecordingMode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue,
    GaugeValueEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;
use std::fmt::Error;

/// The figures of one page, all from one snapshot.
#[derive(Debug)]
pub(super) struct MetricsFigures {
    snapshot: Snapshot,
    left_out: u64,
}

/// A value.
#[derive(Clone, Copy, Debug)]
enum MetricValue {
    Whole(u64),
    Signed(i64),
    Real(f64),
}

/// A sample of a family.
type Sample<'a> = (Vec<Label<'a>>, MetricValue);

impl MetricsFigures {
    pub(super) fn new(mut snapshot: Snapshot) -> Self {
        let left_out = processes::choose(&mut snapshot.processes);
        Self { snapshot, left_out }
    }

    fn recording(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let snapshot = &self.snapshot;
        let totals = &snapshot.totals;
        let of_recording = vec![
            labels::word("version", env!("CARGO_PKG_VERSION")),
            labels::text("mode", snapshot.mode.as_str()),
            labels::text("host", &snapshot.host),
        ];
        page.write(&families::RECORDING, [(of_recording, Whole(1))])?;
        page.one(&families::STARTED, self.unix(snapshot.started_ns))?;
        let alive = totals.processes - totals.ended;
        page.one(&families::PROCESSES, Whole(alive))?;
        page.one(&families::PROCESSES_SEEN, Whole(totals.processes))?;
        page.one(&families::PROCESSES_LEFT_OUT, Whole(self.left_out))
    }

    fn totals(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let all = &self.snapshot.totals.collections;
        let by_reason = by_reason(all, &[], self.usual_reason());
        let count = |(labels, value): &OfReason| (labels.clone(), Whole(value.count));
        let time = |(labels, value): &OfReason| (labels.clone(), seconds(value.time_ns));
        page.write(&families::PAUSES, by_reason.iter().map(count))?;
        page.write(&families::PAUSE_TIME, by_reason.iter().map(time))?;
        page.histograms(&families::PAUSE_DURATION, all)?;
        page.one(&families::LONGEST_PAUSE, seconds(all.longest_ns))?;
        page.one(&families::COLLECTED, Whole(all.collected))?;
        page.one(&families::UNCOLLECTABLE, Whole(all.uncollectable))?;
        page.one(&families::WITH_COLLECTED, Whole(all.with_collected))
    }

    fn gpus(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let gpus = &self.snapshot.gpus;
        let named = |index| vec![labels::number("gpu", index)];
        let described = gpus.iter().map(|gpu| {
            let name = labels::text("name", gpu.name.as_deref().unwrap_or(""));
            (labels::with(&named(gpu.index), name), Whole(1))
        });
        page.write(&families::GPU, described)?;
        let utilization = gpus.iter().filter_map(|gpu| {
            let percent = f64::from(gpu.utilization_percent?);
            Some((named(gpu.index), Real(percent / 100.0)))
        });
        page.write(&families::GPU_UTILIZATION, utilization)?;
        let memory = |bytes: fn(&GpuFigures) -> Option<u64>| {
            gpus.iter().filter_map(move |gpu| Some((named(gpu.index), Whole(bytes(gpu)?))))
        };
        page.write(&families::GPU_MEMORY_USED, memory(|gpu| gpu.memory_used_bytes))?;
        page.write(&families::GPU_MEMORY_CAPACITY, memory(|gpu| gpu.memory_total_bytes))
    }

    fn recorder(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let recorder = &self.snapshot.recorder;
        // Always at least one series, so that alerts on losses can detect an absent metric.
        let nowhere: Sample<'_> = (vec![labels::word("where", "")], Whole(0));
        let lost = recorder.lost.iter();
        let lost = lost.map(|(place, count)| {
            let place = labels::text("where", place);
            (vec![place], Whole(*count))
        });
        let none = recorder.lost.is_empty().then_some(nowhere);
        page.write(&families::LOST, lost.chain(none))?;
        page.one(&families::HITS, Whole(recorder.hits))?;
        let cost = recorder.probe_overhead_ns;
        let cost = cost.map(|cost| (Vec::new(), seconds(cost)));
        page.write(&families::PROBE_COST, cost)?;
        let cpu = recorder.cpu_ns.map(|ns| (Vec::new(), seconds(ns)));
        page.write(&families::OWN_CPU, cpu)?;
        let resident = recorder.resident_bytes.map(Whole);
        let resident = resident.map(|bytes| (Vec::new(), bytes));
        page.write(&families::OWN_RESIDENT, resident)
    }

    /// The reason of most collections. In-process recording does not see reasons.
    fn usual_reason(&self) -> GcReason {
        match self.snapshot.mode {
            RecordingMode::Inject => GcReason::Unknown,
            _ => GcReason::Automatic,
        }
    }

    /// A timestamp of CLOCK_MONOTONIC as Unix time in seconds.
    fn unix(&self, at_ns: u64) -> MetricValue {
        // A process that was first seen after the time of the snapshot counts as seen at it.
        let ago = self.snapshot.at_ns.saturating_sub(at_ns);
        seconds(self.snapshot.at_unix_ns.saturating_sub(ago))
    }
}

impl Collector for MetricsFigures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let page = &mut FamilyWriter { encoder };
        self.recording(page)?;
        self.totals(page)?;
        self.processes(page)?;
        self.gpus(page)?;
        self.recorder(page)
    }
}

type OfReason = (Vec<Label<'static>>, PauseTotal);

/// Pauses by generation and reason. `rate()` misses the first increase of a counter that appears
/// with it, so series of the usual reason always exist, for three generations.
fn by_reason(
    of: &CollectionCounts,
    labels: &[Label<'static>],
    usual_reason: GcReason,
) -> Vec<OfReason> {
    let mut reasons = of.by_reason.clone();
    reasons.entry(usual_reason).or_default();
    let mut samples = Vec::new();
    for (reason, generations) in reasons {
        for (name, value) in GENERATION_NAMES.into_iter().zip(generations) {
            if name == "unknown" && value.count == 0 {
                continue;
            }
            let mut all = labels.to_vec();
            all.push(labels::word("generation", name));
            all.push(labels::word("reason", reason.as_str()));
            samples.push((all, value));
        }
    }
    samples
}

/// Writes families.
struct FamilyWriter<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl FamilyWriter<'_> {
    /// A family of one sample.
    fn one(&mut self, family: &MetricFamily, value: MetricValue) -> Result<(), Error> {
        self.write(family, [(Vec::new(), value)])
    }

    /// A family; omitted if it has no samples.
    fn write<'a>(
        &mut self,
        family: &MetricFamily,
        samples: impl IntoIterator<Item = Sample<'a>>,
    ) -> Result<(), Error> {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let unit = unit(family);
        let (name, help) = (family.name, family.help);
        let mut encoder = self.encoder.encode_descriptor(name, help, unit.as_ref(), family.kind)?;
        for (labels, value) in samples {
            if matches!(family.kind, MetricType::Info) {
                encoder.encode_info(&labels)?;
                continue;
            }
            if labels.is_empty() {
                write_value(&mut encoder, family, value)?;
            } else {
                write_value(&mut encoder.encode_family(&labels)?, family, value)?;
            }
        }
        Ok(())
    }

    /// Histograms of pause lengths by generation.
    fn histograms(&mut self, family: &MetricFamily, of: &CollectionCounts) -> Result<(), Error> {
        let unit = unit(family);
        let (name, help) = (family.name, family.help);
        let mut encoder = self.encoder.encode_descriptor(name, help, unit.as_ref(), family.kind)?;
        let generations = of.histogram.iter().zip(of.pause_ns);
        for (name, (classes, time_ns)) in GENERATION_NAMES.into_iter().zip(generations) {
            let count = classes.iter().sum();
            if name == "unknown" && count == 0 {
                continue;
            }
            let labels = vec![labels::word("generation", name)];
            let mut sample = encoder.encode_family(&labels)?;
            let buckets = buckets(classes);
            sample.encode_histogram::<NoLabelSet>(in_seconds(time_ns), count, &buckets, None)?;
        }
        Ok(())
    }
}

fn write_value(
    sample: &mut MetricEncoder<'_>,
    family: &MetricFamily,
    value: MetricValue,
) -> Result<(), Error> {
    const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
    match family.kind {
        MetricType::Counter => sample.encode_counter(&value, NO_EXEMPLAR),
        _ => sample.encode_gauge(&value),
    }
}

/// Upper bound in seconds and count of each bucket.
fn buckets(classes: &Histogram) -> Vec<(f64, u64)> {
    let bounds = PAUSE_CLASSES_NS.iter().map(|bound| in_seconds(*bound));
    bounds.chain([f64::INFINITY]).zip(classes.iter().copied()).collect()
}

fn unit(family: &MetricFamily) -> Option<Unit> {
    family.unit.map(|unit| Unit::Other(unit.to_owned()))
}

fn seconds(ns: u64) -> MetricValue {
    Real(in_seconds(ns))
}

/// Nanoseconds are exact in a double up to 104 days.
fn in_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl EncodeCounterValue for MetricValue {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> Result<(), Error> {
        match self {
            Whole(value) => EncodeCounterValue::encode(value, encoder),
            // No counter is signed.
            Signed(value) => EncodeCounterValue::encode(&value.unsigned_abs(), encoder),
            Real(value) => EncodeCounterValue::encode(value, encoder),
        }
    }
}

impl EncodeGaugeValue for MetricValue {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> Result<(), Error> {
        match self {
            Whole(value) => EncodeGaugeValue::encode(value, encoder),
            Signed(value) => EncodeGaugeValue::encode(value, encoder),
            Real(value) => EncodeGaugeValue::encode(value, encoder),
        }
    }
}
