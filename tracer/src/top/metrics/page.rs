//! The metrics page: a snapshot as text, encoded per scrape but at most four times a second.

use crate::top::live_handle::LiveHandle;
use crate::top::metrics::access::without_arguments;
use crate::top::metrics::collect::MetricValue::{Durations, Real, Signed, Whole};
use crate::top::metrics::collect::{MetricValue, MetricsFigures, in_seconds};
use crate::top::metrics::families::{FAMILIES, MetricFamily};
use crate::top::metrics::monotonic_maxima::MonotonicMaxima;
use gctrace_analysis::live::{Histogram, PAUSE_CLASSES_NS, Snapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue,
    GaugeValueEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a page is cached: the recording is disturbed at most four times a second, however often
/// clients scrape.
pub(super) const FRESH: Duration = Duration::from_millis(250);

/// Interval of the snapshot. No metric depends on it; the shortest is the cheapest.
const INTERVAL: Duration = Duration::from_millis(100);

/// Produces pages of metrics, and caches the last for scrapes soon after.
#[derive(Debug)]
pub(super) struct MetricsPages {
    shared: Arc<LiveHandle>,
    /// Whether to include the arguments of command lines.
    arguments: bool,
    maxima: MonotonicMaxima,
    /// The last page, and when it was made.
    last: Option<(Instant, Arc<[u8]>)>,
}

impl MetricsPages {
    pub(super) fn new(shared: Arc<LiveHandle>, arguments: bool) -> Self {
        Self { shared, arguments, maxima: MonotonicMaxima::default(), last: None }
    }

    /// The last page while it is fresh, otherwise a new one.
    pub(super) fn page(&mut self) -> Result<Arc<[u8]>, std::fmt::Error> {
        if let Some((made, page)) = &self.last
            && made.elapsed() < FRESH
        {
            return Ok(Arc::clone(page));
        }
        let made = Instant::now();
        let mut snapshot = self.shared.snapshot(INTERVAL, None);
        self.maxima.apply(&mut snapshot);
        if !self.arguments {
            for process in &mut snapshot.processes {
                process.command = without_arguments(&process.command);
            }
        }
        let page: Arc<[u8]> = open_metrics(snapshot)?.into_bytes().into();
        self.last = Some((made, Arc::clone(&page)));
        Ok(page)
    }
}

/// A snapshot as one page of OpenMetrics text, ending in `# EOF`.
pub(super) fn open_metrics(snapshot: Snapshot) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsFigures::new(snapshot)));
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry)?;
    Ok(page)
}

impl Collector for MetricsFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for family in FAMILIES {
            let samples = (family.samples)(self);
            if samples.is_empty() {
                continue;
            }
            let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
            let (name, help) = (family.name, family.help);
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), family.kind)?;
            for (labels, value) in samples {
                if matches!(family.kind, MetricType::Info) {
                    metric.encode_info(&labels)?;
                } else if labels.is_empty() {
                    write_value(&mut metric, family, value)?;
                } else {
                    write_value(&mut metric.encode_family(&labels)?, family, value)?;
                }
            }
        }
        Ok(())
    }
}

fn write_value(
    sample: &mut MetricEncoder<'_>,
    family: &MetricFamily,
    value: MetricValue<'_>,
) -> Result<(), Error> {
    const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
    if let Durations(classes, time_ns) = value {
        let count = classes.iter().sum();
        let buckets = buckets(classes);
        return sample.encode_histogram::<NoLabelSet>(in_seconds(time_ns), count, &buckets, None);
    }
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

impl EncodeCounterValue for MetricValue<'_> {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> Result<(), Error> {
        match self {
            Whole(value) => EncodeCounterValue::encode(value, encoder),
            // No counter is signed.
            Signed(value) => EncodeCounterValue::encode(&value.unsigned_abs(), encoder),
            Real(value) => EncodeCounterValue::encode(value, encoder),
            Durations(..) => Err(Error),
        }
    }
}

impl EncodeGaugeValue for MetricValue<'_> {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> Result<(), Error> {
        match self {
            Whole(value) => EncodeGaugeValue::encode(value, encoder),
            Signed(value) => EncodeGaugeValue::encode(value, encoder),
            Real(value) => EncodeGaugeValue::encode(value, encoder),
            Durations(..) => Err(Error),
        }
    }
}
