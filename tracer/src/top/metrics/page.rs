//! The metrics page: a snapshot as text, encoded per scrape but at most four times a second.

use crate::top::live_handle::LiveHandle;
use crate::top::metrics::access::without_arguments;
use crate::top::metrics::collect::MetricsFigures;
use crate::top::metrics::monotonic_maxima::MonotonicMaxima;
use gctrace_analysis::live::Snapshot;
use prometheus_client::registry::Registry;
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
