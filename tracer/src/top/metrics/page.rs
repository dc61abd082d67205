//! The metrics page: a snapshot as text, encoded per scrape but at most four times a second.

use crate::top::live_handle::LiveHandle;
use crate::top::metrics::access::without_arguments;
use crate::top::metrics::collect::MetricsFigures;
use crate::top::metrics::monotonic_maxima::MonotonicMaxima;
use crate::top::metrics::text;
use crate::top::metrics::text::ExpositionFormat;
use gctrace_analysis::live::Snapshot;
use hyper::body::Bytes;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

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
    state: Mutex<PagesState>,
}

#[derive(Debug, Default)]
struct PagesState {
    steady: MonotonicMaxima,
    last: Option<LastPage>,
}

/// The last page in both formats, the second converted on demand.
#[derive(Debug)]
struct LastPage {
    made: Instant,
    open: Bytes,
    prometheus: Option<Bytes>,
}

impl MetricsPages {
    pub(super) fn new(shared: Arc<LiveHandle>, arguments: bool) -> Self {
        Self {
            shared,
            arguments,
            state: Mutex::default(),
        }
    }

    /// The page in this format: the cached one while it is fresh, otherwise a new one.
    pub(super) fn page(&self, format: ExpositionFormat) -> Result<Bytes, std::fmt::Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let old = state.last.take().filter(|last| last.made.elapsed() < FRESH);
        let mut last = match old {
            Some(last) => last,
            None => self.make(&mut state.steady)?,
        };
        let page = last.in_format(format);
        state.last = Some(last);
        Ok(page)
    }

    fn make(&self, steady: &mut MonotonicMaxima) -> Result<LastPage, std::fmt::Error> {
        let made = Instant::now();
        let mut snapshot = self.shared.snapshot(INTERVAL, None);
        steady.apply(&mut snapshot);
        if !self.arguments {
            for process in &mut snapshot.processes {
                process.command = without_arguments(&process.command);
            }
        }
        Ok(LastPage {
            made,
            open: Bytes::from(open_metrics(snapshot)?),
            prometheus: None,
        })
    }
}

impl LastPage {
    fn in_format(&mut self, format: ExpositionFormat) -> Bytes {
        if format == ExpositionFormat::OpenMetrics {
            return self.open.clone();
        }
        let open = &self.open;
        let made = self.prometheus.get_or_insert_with(|| {
            // Always valid UTF-8, as it was encoded as a `String`.
            Bytes::from(text::to_prometheus(&String::from_utf8_lossy(open)))
        });
        made.clone()
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
