//! How traces were recorded: pauses counted by source, and what each mode does not record.

use crate::analysis::TraceState;
use crate::distribution::Distribution;
use crate::report::{RecordedReport, Sources};
use crate::time::add_to;
use gctrace_event::EventSource;

/// Significant digits of percentiles over more than 4,096 values.
const DIGITS: u8 = 2;

/// Number of pauses by source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceCounts {
    probes: u64,
    injected: u64,
    /// Difference between the two sources for pauses recorded by both, in ns.
    apart: Option<Distribution>,
}

impl SourceCounts {
    /// A pause with these times, seen by `source`.
    pub(crate) fn add(&mut self, source: EventSource, start_ns: u64, end_ns: u64) {
        let counted = match source {
            EventSource::Probes => &mut self.probes,
            EventSource::Injected => &mut self.injected,
            EventSource::Both { start_ns: start, end_ns: end } => {
                let apart_ns = start.abs_diff(start_ns).max(end.abs_diff(end_ns));
                let apart = self.apart.get_or_insert_with(|| Distribution::new(DIGITS));
                apart.add(apart_ns);
                return;
            }
        };
        add_to(counted, 1);
    }

    fn report(&self) -> Sources {
        let apart = self.apart.as_ref();
        let percentiles = apart.and_then(|apart| apart.percentiles([50.0, 99.0]));
        Sources {
            probes: self.probes,
            injected: self.injected,
            both: apart.map_or(0, Distribution::count),
            both_apart_p50_ns: percentiles.map(|[half, _]| half),
            both_apart_p99_ns: percentiles.map(|[_, most]| most),
            both_apart_max_ns: apart.and_then(Distribution::max),
        }
    }
}

/// How a trace was recorded; `None` for traces of other tools.
pub(crate) fn report(trace: &TraceState) -> Option<RecordedReport> {
    let header = trace.header.as_ref()?;
    Some(RecordedReport {
        mode: header.mode.clone(),
        sources: trace.sources.report(),
        not_recorded: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_pauses_by_source() {
        let mut counts = SourceCounts::default();
        assert_eq!(counts.report().both_apart_max_ns, None);
        counts.add(EventSource::Probes, 1000, 2000);
        counts.add(EventSource::Injected, 1000, 2000);
        for (start_ns, end_ns) in [(1002, 2001), (996, 1999)] {
            counts.add(EventSource::Both { start_ns, end_ns }, 1000, 2000);
        }
        let expected = Sources {
            probes: 1,
            injected: 1,
            both: 2,
            both_apart_p50_ns: Some(2),
            both_apart_p99_ns: Some(4),
            both_apart_max_ns: Some(4),
        };
        assert_eq!(counts.report(), expected);
    }
}
