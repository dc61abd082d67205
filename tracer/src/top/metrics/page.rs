//! The page: a snapshot as text, made anew when it is asked for, but not more often than a few times a second.

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

/// A page is given again for this long: however often clients ask, the recording is disturbed four times a second
/// at most.
pub(super) const FRESH: Duration = Duration::from_millis(250);

/// Interval of the snapshot. Nothing on the page is of an interval; the shortest is the cheapest.
const INTERVAL: Duration = Duration::from_millis(100);

/// Makes pages.
#[derive(Debug)]
pub(super) struct MetricsPages {
    shared: Arc<LiveHandle>,
    /// Command lines are shown whole.
    arguments: bool,
    state: Mutex<PagesState>,
}

#[derive(Debug, Default)]
struct PagesState {
    steady: MonotonicMaxima,
    last: Option<LastPage>,
}

/// The last page in both formats, the second made when it is asked for.
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

    /// The page now.
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
        steady.hold(&mut snapshot);
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
            // It is text of ours, so nothing is lost.
            Bytes::from(text::to_prometheus(&String::from_utf8_lossy(open)))
        });
        made.clone()
    }
}

/// A snapshot in OpenMetrics text.
pub(super) fn open_metrics(snapshot: Snapshot) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsFigures::new(snapshot)));
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry)?;
    Ok(page)
}
