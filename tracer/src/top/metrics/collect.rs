//! Samples of a snapshot.
//!
//! Owns how samples are labeled, and the choice of processes on the page. `families.rs` says what
//! each metric shows.

use self::MetricValue::{Durations, Real, Signed, Whole};
use crate::top::metrics::labels;
use crate::top::metrics::labels::{GENERATION_NAMES, Label};
use gctrace_analysis::live::{
    CollectionCounts, GpuFigures, Histogram, ProcessFigures, ProcessGpu, SavedTime, Snapshot,
};
use gctrace_analysis::report::PauseTotal;
use gctrace_event::GcReason;
use std::collections::HashSet;

/// Maximum number of processes with metrics of their own, about 20 series each.
const PROCESSES: usize = 1000;

/// The figures of one page, all from one snapshot.
#[derive(Debug)]
pub(super) struct MetricsFigures {
    pub(super) snapshot: Snapshot,
    /// Processes without metrics of their own.
    pub(super) left_out: u64,
}

/// A value.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetricValue<'a> {
    Whole(u64),
    Signed(i64),
    Real(f64),
    /// Durations by class, and their sum in ns.
    Durations(&'a Histogram, u64),
}

/// A sample of a family.
pub(super) type Sample<'a> = (Vec<Label<'a>>, MetricValue<'a>);

/// Keeps the latest process for each pid, and at most [`PROCESSES`] of them: those with the most
/// time in pauses. Returns the number left out.
fn choose(processes: &mut Vec<ProcessFigures>) -> u64 {
    let mut seen = HashSet::new();
    processes.reverse();
    processes.retain(|process| seen.insert(process.pid));
    processes.reverse();
    if processes.len() <= PROCESSES {
        return 0;
    }
    processes.sort_by_cached_key(|process| {
        let time: u64 = process.collections.pause_ns.iter().sum();
        (std::cmp::Reverse(time), process.pid)
    });
    processes.drain(PROCESSES..).count() as u64
}

impl MetricsFigures {
    pub(super) fn new(mut snapshot: Snapshot) -> Self {
        let left_out = choose(&mut snapshot.processes);
        Self { snapshot, left_out }
    }

    /// Labels of the recording.
    pub(super) fn recording(&self) -> Vec<Label<'_>> {
        vec![
            labels::word("version", env!("CARGO_PKG_VERSION")),
            labels::text("mode", self.snapshot.mode.as_ref()),
            labels::text("host", &self.snapshot.host),
        ]
    }

    /// Collections of all processes by generation and reason.
    pub(super) fn of_all(&self, value: fn(&PauseTotal) -> MetricValue<'static>) -> Vec<Sample<'_>> {
        self.by_reason(&self.snapshot.totals.collections, &[], value)
    }

    /// Collections of each process by generation and reason.
    pub(super) fn of_each(
        &self,
        value: fn(&PauseTotal) -> MetricValue<'static>,
    ) -> Vec<Sample<'_>> {
        let of = |process: &ProcessFigures| {
            self.by_reason(&process.collections, &labels::process(process), value)
        };
        self.snapshot.processes.iter().flat_map(of).collect()
    }

    /// Pauses by generation and reason. `rate()` misses the first increase of a counter that appears
    /// with it, so series of the usual reason always exist, for three generations.
    fn by_reason(
        &self,
        of: &CollectionCounts,
        labels: &[Label<'static>],
        value: fn(&PauseTotal) -> MetricValue<'static>,
    ) -> Vec<Sample<'static>> {
        let mut reasons = of.by_reason.clone();
        // The reason of most collections.
        reasons.entry(GcReason::Automatic).or_default();
        let mut samples = Vec::new();
        for (reason, generations) in reasons {
            for (name, pauses) in GENERATION_NAMES.into_iter().zip(generations) {
                if name == "unknown" && pauses.count == 0 {
                    continue;
                }
                let labels = labels::with(labels, labels::word("generation", name));
                let reason = labels::word("reason", reason.into());
                samples.push((labels::with(&labels, reason), value(&pauses)));
            }
        }
        samples
    }

    /// Histograms of the durations of all collections by generation.
    pub(super) fn durations(&self) -> Vec<Sample<'_>> {
        let all = &self.snapshot.totals.collections;
        let generations = GENERATION_NAMES.into_iter().zip(all.histogram.iter().zip(all.pause_ns));
        let known = generations
            .filter(|(name, (classes, _))| *name != "unknown" || classes.iter().any(|n| *n > 0));
        known
            .map(|(name, (classes, time_ns))| {
                (vec![labels::word("generation", name)], Durations(classes, time_ns))
            })
            .collect()
    }

    /// A sample per process, including exited processes that are still in the snapshot.
    pub(super) fn each<'a>(
        &'a self,
        value: impl Fn(&'a ProcessFigures) -> Option<MetricValue<'a>>,
    ) -> Vec<Sample<'a>> {
        let processes = self.snapshot.processes.iter();
        processes.filter_map(|process| Some((labels::process(process), value(process)?))).collect()
    }

    /// A sample per running process.
    pub(super) fn running<'a>(
        &'a self,
        value: impl Fn(&'a ProcessFigures) -> Option<MetricValue<'a>>,
    ) -> Vec<Sample<'a>> {
        self.each(|process| if process.ended.is_none() { value(process) } else { None })
    }

    fn alive(&self) -> impl Iterator<Item = &ProcessFigures> {
        self.snapshot.processes.iter().filter(|process| process.ended.is_none())
    }

    /// What is known of each process, as labels.
    pub(super) fn described(&self) -> Vec<Sample<'_>> {
        let described = |process| {
            let mut all: Vec<Label<'_>> = labels::process(process);
            all.push(labels::text("interpreter", &process.interpreter));
            all.push(labels::text("command", &process.command));
            all.extend(process.parent.map(|parent| labels::number("parent", parent)));
            let inner = process.namespace_pid;
            all.extend(inner.map(|pid| labels::number("namespace_pid", pid)));
            (all, Whole(1))
        };
        self.snapshot.processes.iter().map(described).collect()
    }

    /// Examined garbage of each process by type.
    pub(super) fn garbage_types(&self) -> Vec<Sample<'_>> {
        let processes = self.snapshot.processes.iter();
        let types = processes.flat_map(|process| {
            let types = process.garbage.iter().flat_map(|garbage| &garbage.objects);
            types.map(move |(name, objects)| (process, name, objects))
        });
        types
            .map(|(process, name, objects)| {
                let name = labels::text("type", name);
                (labels::with(&labels::process(process), name), Whole(*objects))
            })
            .collect()
    }

    /// Objects that the collector of each running process tracks.
    pub(super) fn heap_objects(&self) -> Vec<Sample<'_>> {
        let heaps = self.alive().filter_map(|process| {
            let heap = process.heap_objects?;
            let scope = labels::word("scope", if heap.all { "all" } else { "oldest" });
            Some((labels::with(&labels::process(process), scope), Whole(heap.count)))
        });
        heaps.collect()
    }

    /// Thresholds of each running process by generation.
    pub(super) fn thresholds(&self) -> Vec<Sample<'_>> {
        let thresholds = self.alive().flat_map(|process| {
            let named = GENERATION_NAMES.into_iter().zip(process.thresholds.into_iter().flatten());
            named.map(|(name, threshold)| {
                let generation = labels::word("generation", name);
                let labels = labels::with(&labels::process(process), generation);
                (labels, Signed(threshold.into()))
            })
        });
        thresholds.collect()
    }

    /// What `gctrace auto` does in each running process.
    pub(super) fn searches(&self) -> Vec<Sample<'_>> {
        let searches = self.alive().filter_map(|process| {
            let auto = process.auto.as_ref()?;
            let mut all = labels::process(process);
            all.push(labels::text("state", &auto.state));
            all.push(labels::text("setting", auto.setting.as_deref().unwrap_or_default()));
            Some((all, Whole(1)))
        });
        searches.collect()
    }

    /// What it saved, with the ends of the interval.
    pub(super) fn savings(&self) -> Vec<Sample<'_>> {
        let savings = self.alive().flat_map(|process| {
            let saved = process.auto.as_ref().and_then(|auto| auto.saved);
            let ends = saved.into_iter().flat_map(|SavedTime { mean_ns, low_ns, high_ns }| {
                [("mean", mean_ns), ("low", low_ns), ("high", high_ns)]
            });
            ends.map(|(bound, ns)| {
                let bound = labels::word("bound", bound);
                (labels::with(&labels::process(process), bound), Real(ns as f64 / 1e9))
            })
        });
        savings.collect()
    }

    /// Samples of the devices of processes, by CUDA's index in the process. `running`: without
    /// exited processes.
    pub(super) fn on_gpus(
        &self,
        running: bool,
        value: fn(&ProcessGpu) -> Option<MetricValue<'static>>,
    ) -> Vec<Sample<'_>> {
        let processes = self.snapshot.processes.iter();
        let processes = processes.filter(|process| !running || process.ended.is_none());
        let samples = processes.flat_map(|process| {
            let gpus = process.gpus.iter();
            gpus.filter_map(|gpu| Some((device(process, gpu), value(gpu)?)))
        });
        samples.collect()
    }

    /// Idle time of the devices of processes by cause.
    pub(super) fn idle_causes(&self) -> Vec<Sample<'_>> {
        let processes = self.snapshot.processes.iter();
        let samples = processes.flat_map(|process| {
            process.gpus.iter().flat_map(move |gpu| {
                let parts = gpu.idle.iter().flat_map(|idle| &idle.total);
                parts.map(move |part| {
                    let cause = labels::word("cause", part.cause.into());
                    (labels::with(&device(process, gpu), cause), seconds(part.time_ns))
                })
            })
        });
        samples.collect()
    }

    /// The devices of running processes of which CUDA's and NVML's index are known.
    pub(super) fn known_by_both(&self) -> Vec<Sample<'_>> {
        let devices = self.alive().flat_map(|process| {
            process.gpus.iter().filter_map(|gpu| {
                let index = labels::number("gpu", gpu.nvml_index.filter(|_| !gpu.by_nvml)?);
                Some((labels::with(&device(process, gpu), index), Whole(1)))
            })
        });
        devices.collect()
    }

    /// Samples from NVML, labeled with NVML's index.
    pub(super) fn gpu_memory(&self) -> Vec<Sample<'_>> {
        let memory = self.alive().flat_map(|process| {
            process.gpus.iter().filter_map(|gpu| {
                let index = gpu.by_nvml.then_some(gpu.device).or(gpu.nvml_index)?;
                let index = labels::number("gpu", index);
                let labels = labels::with(&labels::process(process), index);
                Some((labels, Whole(gpu.memory_bytes?)))
            })
        });
        memory.collect()
    }

    /// A sample per GPU of the machine.
    pub(super) fn gpus(
        &self,
        value: fn(&GpuFigures) -> Option<MetricValue<'static>>,
    ) -> Vec<Sample<'_>> {
        let gpus = self.snapshot.gpus.iter();
        gpus.filter_map(|gpu| Some((vec![labels::number("gpu", gpu.index)], value(gpu)?))).collect()
    }

    /// Lost events by place. Always at least one series, so that alerts on losses can detect an
    /// absent metric.
    pub(super) fn lost(&self) -> Vec<Sample<'_>> {
        let lost = &self.snapshot.recorder.lost;
        if lost.is_empty() {
            return vec![(vec![labels::word("where", "")], Whole(0))];
        }
        let places = lost.iter();
        places.map(|(place, count)| (vec![labels::text("where", place)], Whole(*count))).collect()
    }

    /// A timestamp of CLOCK_MONOTONIC as Unix time in seconds.
    pub(super) fn unix(&self, at_ns: u64) -> MetricValue<'static> {
        // A process that was first seen after the time of the snapshot counts as seen at it.
        let ago = gctrace_units::duration_ns(at_ns, self.snapshot.at_ns);
        seconds(gctrace_units::beyond(self.snapshot.at_unix_ns, ago))
    }
}

/// Labels of a device, with CUDA's index in the process.
fn device(process: &ProcessFigures, gpu: &ProcessGpu) -> Vec<Label<'static>> {
    labels::with(&labels::process(process), labels::number("device", gpu.device))
}

pub(super) fn seconds(ns: u64) -> MetricValue<'static> {
    Real(in_seconds(ns))
}

/// Nanoseconds are exact in a double up to 104 days.
pub(super) fn in_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
