//! Sampled once a second in the live view: memory of the recorded processes, the state of `gctrace auto` in them,
//! gctrace's own overhead, and losses.

use crate::apply::AgentFolder;
use crate::clock::monotonic_ns;
use crate::invoker::Invoker;
use crate::launch::usage_ns;
use crate::record::Recording;
use crate::top::LiveHandle;
use gctrace_analysis::live::{AutoFigures, RecorderCost, SavedTime};
use gctrace_probes::process_memory;
use gctrace_settings::AutoReport;
use nix::sys::resource::UsageWho;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Samples the memory of recorded processes, gctrace's own cost and losses, once a second.
pub(super) struct ResourceSampler {
    trace: Option<String>,
    next: Instant,
    /// Where the agents of recorded processes report; `None`: there is none.
    agents: HashMap<u32, Option<AgentFolder>>,
    /// Only processes of this user are asked for them.
    user: u32,
    /// Whether the warning about unreadable losses was printed.
    has_complained: bool,
}

impl ResourceSampler {
    /// The first sample is due now; `trace` is the trace written by the recording.
    pub(super) fn new(trace: Option<&Path>) -> Self {
        Self {
            trace: trace.map(|path| path.display().to_string()),
            next: Instant::now(),
            agents: HashMap::new(),
            user: Invoker::detect().uid,
            has_complained: false,
        }
    }

    /// Samples if due, or if it is the `last` time.
    pub(super) fn tick(&mut self, recording: &mut Recording<'_>, shared: &LiveHandle, last: bool) {
        let now = Instant::now();
        if now < self.next && !last {
            return;
        }
        self.next = now + SAMPLE_EVERY;
        let pids = recording.python_processes();
        let resident: Vec<(u32, u64)> = pids
            .iter()
            .filter_map(|pid| Some((*pid, process_memory::resident_bytes(*pid)?)))
            .collect();
        self.agents.retain(|pid, _| pids.contains(pid));
        let searches: Vec<(u32, AutoFigures)> = pids
            .iter()
            .filter_map(|pid| {
                let agent = self.agents.entry(*pid);
                let agent =
                    agent.or_insert_with(|| AgentFolder::of(*pid, self.user).ok().flatten());
                Some((*pid, figures(&agent.as_ref()?.report()?.auto?)))
            })
            .collect();
        let recorder = self.recorder(recording);
        let mut live = shared.live();
        let now_ns = monotonic_ns();
        for (pid, bytes) in resident {
            live.resident(pid, now_ns, bytes);
        }
        for (pid, figures) in searches {
            live.auto(pid, figures);
        }
        live.recorder(now_ns, recorder);
    }

    fn recorder(&mut self, recording: &mut Recording) -> RecorderCost {
        let tally = recording.tally().unwrap_or_else(|error| {
            if !std::mem::replace(&mut self.has_complained, true) {
                tracing::warn!("the number of lost events is unknown: {error:#}");
            }
            Default::default()
        });
        RecorderCost {
            lost: tally.lost,
            unexamined: tally.unexamined,
            cpu_ns: usage_ns(UsageWho::RUSAGE_SELF),
            // Computed by `Live` from successive samples.
            cpu_ppm: None,
            resident_bytes: process_memory::resident_bytes(std::process::id()),
            hits: tally.hits,
            probe_overhead_ns: tally.cost_ns,
            elsewhere_overhead_ns: tally.elsewhere_ns,
            trace: self.trace.clone(),
        }
    }
}

fn figures(search: &AutoReport) -> AutoFigures {
    AutoFigures {
        state: search.state.as_ref().to_owned(),
        setting: search.setting.as_ref().map(ToString::to_string),
        saved: search.saved.map(|saved| SavedTime {
            mean_ns: saved.mean_ns,
            low_ns: saved.low_ns,
            high_ns: saved.high_ns,
        }),
        cost_ns: search.cost_ns,
    }
}
