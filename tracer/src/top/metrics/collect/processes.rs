//! The metrics of single processes.

use super::Figures;
use super::Page;
use super::Sample;
use super::Value;
use super::by_reason;
use super::seconds;
use crate::top::metrics::families;
use crate::top::metrics::families::Family;
use crate::top::metrics::labels;
use crate::top::metrics::labels::GENERATION_NAMES;
use crate::top::metrics::labels::Label;
use gctrace_analysis::live::GpuBusy;
use gctrace_analysis::live::ProcessFigures;
use gctrace_analysis::live::ProcessGpu;
use std::collections::HashMap;
use std::fmt::Error;

/// Most processes with metrics of their own: about 20 series each.
pub(super) const PROCESSES: usize = 1000;

/// Leaves one process for each id, the one that came last, and no more than [`PROCESSES`]: those with most time in
/// pauses. How many that leaves out.
pub(super) fn choose(processes: &mut Vec<ProcessFigures>) -> u64 {
    let last: HashMap<u32, usize> = processes
        .iter()
        .enumerate()
        .map(|(index, process)| (process.pid, index))
        .collect();
    let mut index = 0;
    processes.retain(|process| {
        let is_last = last.get(&process.pid) == Some(&index);
        index += 1;
        is_last
    });
    let left_out = processes.len().saturating_sub(PROCESSES);
    if left_out > 0 {
        processes.sort_by_cached_key(|process| {
            let time: u64 = process.collections.pause_ns.iter().sum();
            (std::cmp::Reverse(time), process.pid)
        });
        processes.truncate(PROCESSES);
    }
    u64::try_from(left_out).unwrap_or(u64::MAX)
}

impl Figures {
    pub(super) fn processes(&self, page: &mut Page<'_>) -> Result<(), Error> {
        page.write(&families::PROCESS, self.each(|one| Some(described(one))))?;
        page.write(
            &families::PROCESS_SINCE,
            self.each(|one| Some((labels::process(one), self.unix(one.since_ns)))),
        )?;
        self.collections(page)?;
        self.settings(page)?;
        self.allocation(page)?;
        self.gpu_use(page)
    }

    fn collections(&self, page: &mut Page<'_>) -> Result<(), Error> {
        page.write(
            &families::PROCESS_PAUSES,
            self.reasons(|value| Value::Whole(value.count)),
        )?;
        page.write(
            &families::PROCESS_PAUSE_TIME,
            self.reasons(|value| seconds(value.time_ns)),
        )?;
        self.plain(page, &families::PROCESS_LONGEST_PAUSE, |one| {
            Some(seconds(one.collections.longest_ns))
        })?;
        self.plain(page, &families::PROCESS_COLLECTED, |one| {
            Some(Value::Whole(one.collections.collected))
        })?;
        self.plain(page, &families::PROCESS_UNCOLLECTABLE, |one| {
            Some(Value::Whole(one.collections.uncollectable))
        })
    }

    fn settings(&self, page: &mut Page<'_>) -> Result<(), Error> {
        let heap = self.running(|one| {
            let heap = one.heap_objects?;
            let scope = labels::word("scope", if heap.all { "all" } else { "oldest" });
            let labels = labels::with(&labels::process(one), scope);
            Some((labels, Value::Whole(heap.count)))
        });
        page.write(&families::PROCESS_HEAP, heap)?;
        page.write(
            &families::PROCESS_ENABLED,
            self.running(|one| Some((labels::process(one), Value::Whole(one.enabled?.into())))),
        )?;
        let thresholds = self.alive().flat_map(|one| {
            let named = GENERATION_NAMES
                .into_iter()
                .zip(one.thresholds.into_iter().flatten());
            named.map(|(name, threshold)| {
                let generation = labels::word("generation", name);
                let labels = labels::with(&labels::process(one), generation);
                (labels, Value::Signed(threshold.into()))
            })
        });
        page.write(&families::PROCESS_THRESHOLD, thresholds)
    }

    fn allocation(&self, page: &mut Page<'_>) -> Result<(), Error> {
        let of = |figure: fn(&ProcessFigures) -> Option<Value>| {
            self.running(move |one| Some((labels::process(one), figure(one)?)))
        };
        page.write(
            &families::PROCESS_CONTAINERS,
            of(|one| Some(Value::Whole(one.pressure?.net_containers_per_second?))),
        )?;
        page.write(
            &families::PROCESS_ARENAS,
            of(|one| Some(Value::Signed(one.pressure?.arena_bytes_per_second?))),
        )?;
        page.write(
            &families::PROCESS_ALLOCATIONS,
            of(|one| Some(Value::Whole(one.pressure?.allocations_per_cpu_second?))),
        )?;
        page.write(
            &families::PROCESS_RESIDENT,
            of(|one| Some(Value::Whole(one.resident_bytes?))),
        )
    }

    fn gpu_use(&self, page: &mut Page<'_>) -> Result<(), Error> {
        let memory = self.alive().flat_map(|one| {
            one.gpus.iter().filter_map(|gpu| {
                let bytes = gpu.memory_bytes?;
                Some((device(one, gpu), Value::Whole(bytes)))
            })
        });
        page.write(&families::PROCESS_GPU_MEMORY, memory)?;
        page.write(
            &families::PROCESS_GPU_BUSY,
            self.gpu_time(|busy| busy.total_busy_ns),
        )?;
        page.write(
            &families::PROCESS_GPU_IDLE,
            self.gpu_time(|busy| busy.total_idle_ns),
        )?;
        page.write(
            &families::PROCESS_GPU_IDLE_IN_GC,
            self.gpu_time(|busy| busy.total_idle_in_gc_ns),
        )
    }

    fn gpu_time(&self, time: fn(&GpuBusy) -> u64) -> impl Iterator<Item = Sample<'_>> {
        self.snapshot.processes.iter().flat_map(move |one| {
            one.gpus.iter().filter_map(move |gpu| {
                let busy = gpu.busy.as_ref()?;
                Some((device(one, gpu), seconds(time(busy))))
            })
        })
    }

    fn reasons(
        &self,
        value: fn(&gctrace_analysis::live::CountAndTime) -> Value,
    ) -> impl Iterator<Item = Sample<'_>> {
        self.snapshot.processes.iter().flat_map(move |one| {
            by_reason(&one.collections, &labels::process(one))
                .into_iter()
                .map(move |(labels, figures)| (labels, value(&figures)))
        })
    }

    fn plain(
        &self,
        page: &mut Page<'_>,
        family: &Family,
        value: fn(&ProcessFigures) -> Option<Value>,
    ) -> Result<(), Error> {
        page.write(
            family,
            self.each(|one| Some((labels::process(one), value(one)?))),
        )
    }

    /// A sample of each process; one that ended still has its counters for as long as it is in the snapshot.
    fn each<'a>(
        &'a self,
        sample: impl Fn(&'a ProcessFigures) -> Option<Sample<'a>>,
    ) -> impl Iterator<Item = Sample<'a>> {
        self.snapshot.processes.iter().filter_map(sample)
    }

    /// A sample of each process that has not ended.
    fn running<'a>(
        &'a self,
        sample: impl Fn(&'a ProcessFigures) -> Option<Sample<'a>>,
    ) -> impl Iterator<Item = Sample<'a>> {
        self.alive().filter_map(sample)
    }

    fn alive(&self) -> impl Iterator<Item = &ProcessFigures> {
        self.snapshot
            .processes
            .iter()
            .filter(|one| one.ended.is_none())
    }
}

fn described(one: &ProcessFigures) -> Sample<'_> {
    let mut all: Vec<Label<'_>> = labels::process(one);
    all.push(labels::text("interpreter", &one.interpreter));
    all.push(labels::text("command", &one.command));
    all.extend(one.parent.map(|parent| labels::number("parent", parent)));
    let inner = one.namespace_pid;
    all.extend(inner.map(|pid| labels::number("namespace_pid", pid)));
    (all, Value::Whole(1))
}

/// Which GPU, and by whose count: NVML's index is the machine's, CUDA's the process's own.
fn device(one: &ProcessFigures, gpu: &ProcessGpu) -> Vec<Label<'static>> {
    let mut all = labels::process(one);
    all.push(labels::number("device", gpu.device));
    let counted = if gpu.by_nvml { "nvml" } else { "cuda" };
    all.push(labels::word("counted_by", counted));
    all
}
