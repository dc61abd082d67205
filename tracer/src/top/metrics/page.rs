//! The metrics page: a snapshot as text, encoded per scrape but at most four times a second.

use crate::top::live_handle::LiveHandle;
use crate::top::metrics::access::without_arguments;
use crate::top::metrics::collect::{MetricsFigures, in_seconds};
use crate::top::metrics::families::{FAMILIES, MetricFamily};
use gctrace_analysis::figure::Value::{self, Durations, Real, Signed, Whole};
use gctrace_analysis::live::{GpuBusy, PAUSE_CLASSES_NS, Snapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue,
    GaugeValueEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashMap;
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
        for family in FAMILIES.iter() {
            let samples = (family.samples)(self);
            if samples.is_empty() {
                continue;
            }
            let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
            let (name, help) = (&family.name, &family.help);
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
    value: Value<'_>,
) -> Result<(), Error> {
    const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
    if let Durations(classes, time_ns) = value {
        let count = classes.iter().sum();
        let buckets = buckets(classes);
        return sample.encode_histogram::<NoLabelSet>(in_seconds(time_ns), count, &buckets, None);
    }
    match family.kind {
        MetricType::Counter => sample.encode_counter(&Encoded(value), NO_EXEMPLAR),
        _ => sample.encode_gauge(&Encoded(value)),
    }
}

/// Upper bound in seconds and count of each bucket.
fn buckets(classes: &[u64]) -> Vec<(f64, u64)> {
    let bounds = PAUSE_CLASSES_NS.iter().map(|bound| in_seconds(*bound));
    bounds.chain([f64::INFINITY]).zip(classes.iter().copied()).collect()
}

/// A value for the encoder.
#[derive(Debug)]
struct Encoded<'a>(Value<'a>);

impl EncodeCounterValue for Encoded<'_> {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> Result<(), Error> {
        match self.0 {
            Whole(value) => EncodeCounterValue::encode(&value, encoder),
            // No counter is signed.
            Signed(value) => EncodeCounterValue::encode(&value.unsigned_abs(), encoder),
            Real(value) => EncodeCounterValue::encode(&value, encoder),
            Durations(..) => Err(Error),
        }
    }
}

impl EncodeGaugeValue for Encoded<'_> {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> Result<(), Error> {
        match self.0 {
            Whole(value) => EncodeGaugeValue::encode(&value, encoder),
            Signed(value) => EncodeGaugeValue::encode(&value, encoder),
            Real(value) => EncodeGaugeValue::encode(&value, encoder),
            Durations(..) => Err(Error),
        }
    }
}

/// A GPU of a process: pid, start of its recording (as pids are reused), device.
type GpuBusyKey = (u32, u64, u32);

/// The largest values so far of the processes in the last snapshot: keeps GPU counters from decreasing during the life
/// of a process.
///
/// GPU times arrive late: an interval first counted as idle may turn out to have been busy, and the counter becomes
/// slightly smaller. Prometheus would take that for a counter reset and add the whole value again. Collections are
/// counted only when they have ended, and never revised.
#[derive(Debug, Default)]
pub(super) struct MonotonicMaxima {
    gpus: HashMap<GpuBusyKey, GpuBusy>,
}

impl MonotonicMaxima {
    /// Raises values that have decreased to their maximum.
    pub(super) fn apply(&mut self, snapshot: &mut Snapshot) {
        let mut now = HashMap::new();
        for process in &mut snapshot.processes {
            for gpu in &mut process.gpus {
                let Some(busy) = &mut gpu.busy else { continue };
                let key = (process.pid, process.since_ns, gpu.device);
                if let Some(before) = self.gpus.get(&key) {
                    busy.total_busy_ns = busy.total_busy_ns.max(before.total_busy_ns);
                    busy.total_idle_ns = busy.total_idle_ns.max(before.total_idle_ns);
                    busy.total_idle_in_gc_ns =
                        busy.total_idle_in_gc_ns.max(before.total_idle_in_gc_ns);
                }
                now.insert(key, *busy);
            }
        }
        self.gpus = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::live::{ProcessFigures, ProcessGpu};

    fn snapshot(pid: u32, since_ns: u64, times: [u64; 3]) -> Snapshot {
        let busy = GpuBusy {
            total_busy_ns: times[0],
            total_idle_ns: times[1],
            total_idle_in_gc_ns: times[2],
            ..GpuBusy::default()
        };
        let gpus = vec![ProcessGpu { busy: Some(busy), ..ProcessGpu::default() }];
        Snapshot {
            processes: vec![ProcessFigures { pid, since_ns, gpus, ..ProcessFigures::default() }],
            ..Snapshot::default()
        }
    }

    fn raised(steady: &mut MonotonicMaxima, mut snapshot: Snapshot) -> [u64; 3] {
        steady.apply(&mut snapshot);
        let busy = snapshot.processes[0].gpus[0].busy.unwrap();
        [busy.total_busy_ns, busy.total_idle_ns, busy.total_idle_in_gc_ns]
    }

    #[test]
    fn counters_of_a_process_never_decrease() {
        let mut steady = MonotonicMaxima::default();
        assert_eq!(raised(&mut steady, snapshot(1, 5, [10, 8, 4])), [10, 8, 4]);
        assert_eq!(raised(&mut steady, snapshot(1, 5, [12, 6, 3])), [12, 8, 4]);
        assert_eq!(raised(&mut steady, snapshot(1, 5, [12, 9, 3])), [12, 9, 4]);
    }

    #[test]
    fn another_process_with_the_same_pid_starts_anew() {
        let mut steady = MonotonicMaxima::default();
        raised(&mut steady, snapshot(1, 5, [10, 8, 4]));
        assert_eq!(raised(&mut steady, snapshot(1, 99, [1, 1, 1])), [1, 1, 1]);
        assert_eq!(steady.gpus.len(), 1, "what ended is forgotten");
    }
}
