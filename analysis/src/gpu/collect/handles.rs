//! Launches that were only counted, and streams of traces that know them only by handle.
//!
//! gctrace's probes record the stream of a call as the program passes it, not its device, and there
//! are no operations to derive it from.

use super::part::SortedStreams;
use super::{ProcessBuilder, TimelineCollector};
use crate::gpu::timeline::{CountedLaunches, Stream};
use gctrace_event::CudaLaunches;

impl TimelineCollector {
    /// Adds launches that were only counted.
    pub fn add_launches(&mut self, launches: &CudaLaunches) {
        let part = self.processes.entry(launches.pid).or_default();
        let thread = part.thread(launches.tid);
        part.counted_launches.push((thread, *launches));
    }
}

impl ProcessBuilder {
    /// The streams that calls and counted launches name.
    pub(super) fn streams_by_handle(&self) -> SortedStreams {
        let of_calls = self.calls.iter().filter_map(|raw| raw.stream);
        let of_launches = self.counted_launches.iter().map(|(_, launches)| launches.stream);
        SortedStreams::of(of_calls.chain(of_launches).map(|number| Stream { device: None, number }))
    }

    pub(super) fn take_counted_launches(
        &mut self,
        streams: &SortedStreams,
    ) -> Vec<CountedLaunches> {
        let launches = std::mem::take(&mut self.counted_launches);
        let mut launches: Vec<CountedLaunches> = launches
            .into_iter()
            .map(|(thread, launches)| CountedLaunches {
                first_ns: launches.first_ns,
                last_ns: launches.last_ns.max(launches.first_ns),
                count: launches.count,
                thread,
                stream: streams.only(launches.stream),
            })
            .collect();
        launches.sort_by_key(|launches| (launches.first_ns, launches.last_ns));
        launches
    }
}
