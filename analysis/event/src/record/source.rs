//! Who saw an event.

/// Who saw an event. All moments are of CLOCK_MONOTONIC, whoever read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// Probes on the functions themselves (eBPF), from outside. Of traces of other tools: whatever
    /// that tool has.
    #[default]
    Probes,
    /// gctrace's library within the process: `gc.callbacks` for collections, CUPTI for calls.
    Injected,
    /// Both. The times of the event are those of the probes.
    Both {
        /// Begin as seen from within.
        start_ns: u64,
        /// End as seen from within; never before `start_ns`.
        end_ns: u64,
    },
}
