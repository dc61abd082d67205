//! Metrics per process.

use super::MetricValue::{Real, Signed, Whole};
use super::{FamilyWriter, MetricValue, MetricsFigures, Sample, by_reason, seconds};
use crate::top::metrics::families::MetricFamily;
use crate::top::metrics::labels::{GENERATION_NAMES, Label};
use crate::top::metrics::{families, labels};
use gctrace_analysis::live::{GpuBusy, ProcessFigures, ProcessGpu};
use std::collections::HashSet;
use std::fmt::Error;

/// Maximum number of processes with metrics of their own, about 20 series each.
pub(super) const PROCESSES: usize = 1000;

/// Keeps the latest process for each pid, and at most [`PROCESSES`] of them: those with the most
/// time in pauses. Returns the number left out.
pub(super) fn choose(processes: &mut Vec<ProcessFigures>) -> u64 {
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
    pub(super) fn processes(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        page.write(&families::PROCESS, self.each(|one| Some(described(one))))?;
        page.write(
            &families::PROCESS_SINCE,
            self.each(|one| Some((labels::process(one), self.unix(one.since_ns)))),
        )?;
        self.collections(page)?;
        self.garbage(page)?;
        self.heap_trend(page)?;
        self.settings(page)?;
        self.allocation(page)?;
        self.gpu_use(page)
    }

    fn collections(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        page.write(&families::PROCESS_PAUSES, self.reasons(|value| Whole(value.count)))?;
        page.write(&families::PROCESS_PAUSE_TIME, self.reasons(|value| seconds(value.time_ns)))?;
        self.plain(page, &families::PROCESS_PAUSED, |one| Some(seconds(one.paused_ns)))?;
        self.plain(page, &families::PROCESS_LONGEST_PAUSE, |one| {
            Some(seconds(one.collections.longest_ns))
        })?;
        self.plain(page, &families::PROCESS_COLLECTED, |one| {
            Some(Whole(one.collections.collected))
        })?;
        self.plain(page, &families::PROCESS_UNCOLLECTABLE, |one| {
            Some(Whole(one.collections.uncollectable))
        })
    }

    fn garbage(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let by_type = self.snapshot.processes.iter().flat_map(|one| {
            let types = one.garbage.iter().flat_map(|garbage| &garbage.objects);
            types.map(|(name, objects)| {
                let name = labels::text("type", name);
                (labels::with(&labels::process(one), name), Whole(*objects))
            })
        });
        page.write(&families::PROCESS_GARBAGE, by_type)?;
        self.plain(page, &families::PROCESS_GARBAGE_EXAMINED, |one| {
            Some(Whole(one.garbage.as_ref()?.examined_collected))
        })?;
        self.plain(page, &families::PROCESS_FREED_SINCE_FREEZE, |one| {
            Some(Whole(one.freeze?.freed_since))
        })
    }

    fn heap_trend(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let of = |figure: fn(&ProcessFigures) -> Option<MetricValue>| {
            self.running(move |one| Some((labels::process(one), figure(one)?)))
        };
        page.write(
            &families::PROCESS_HEAP_GROWING,
            of(|one| {
                let trend = one.heap_trend?;
                Some(Whole((trend.objects_rise || trend.resident_rises).into()))
            }),
        )?;
        page.write(
            &families::PROCESS_HEAP_GROWTH,
            of(|one| Some(Real(one.heap_trend?.objects_per_hour))),
        )?;
        page.write(
            &families::PROCESS_MEMORY_GROWTH,
            of(|one| Some(Real(one.heap_trend?.resident_bytes_per_hour?))),
        )?;
        page.write(
            &families::PROCESS_MEMORY_LIMIT,
            of(|one| Some(Whole(one.heap_trend?.memory_limit_bytes?))),
        )?;
        page.write(
            &families::PROCESS_LIMIT_REACHED,
            of(|one| Some(seconds(one.heap_trend?.reaches_limit_in_ns?))),
        )
    }

    fn settings(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let heap = self.running(|one| {
            let heap = one.heap_objects?;
            let scope = labels::word("scope", if heap.all { "all" } else { "oldest" });
            let labels = labels::with(&labels::process(one), scope);
            Some((labels, Whole(heap.count)))
        });
        page.write(&families::PROCESS_HEAP, heap)?;
        page.write(
            &families::PROCESS_ENABLED,
            self.running(|one| Some((labels::process(one), Whole(one.enabled?.into())))),
        )?;
        let thresholds = self.alive().flat_map(|one| {
            let named = GENERATION_NAMES.into_iter().zip(one.thresholds.into_iter().flatten());
            named.map(|(name, threshold)| {
                let generation = labels::word("generation", name);
                let labels = labels::with(&labels::process(one), generation);
                (labels, Signed(threshold.into()))
            })
        });
        page.write(&families::PROCESS_THRESHOLD, thresholds)
    }

    fn allocation(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let of = |figure: fn(&ProcessFigures) -> Option<MetricValue>| {
            self.running(move |one| Some((labels::process(one), figure(one)?)))
        };
        page.write(
            &families::PROCESS_CONTAINERS,
            of(|one| Some(Whole(one.pressure?.net_containers_per_second?))),
        )?;
        page.write(
            &families::PROCESS_ARENAS,
            of(|one| Some(Signed(one.pressure?.arena_bytes_per_second?))),
        )?;
        page.write(
            &families::PROCESS_ALLOCATIONS,
            of(|one| Some(Whole(one.pressure?.allocations_per_cpu_second?))),
        )?;
        page.write(&families::PROCESS_RESIDENT, of(|one| Some(Whole(one.resident_bytes?))))
    }

    fn gpu_use(&self, page: &mut FamilyWriter<'_>) -> Result<(), Error> {
        let same = self.on_gpus(|labels, gpu| {
            let gpu = labels::number("gpu", gpu.nvml_index.filter(|_| !gpu.by_nvml)?);
            Some((labels::with(&labels, gpu), Whole(1)))
        });
        page.write(&families::PROCESS_GPU, same)?;
        let allocated = self.on_gpus(|labels, gpu| {
            let bytes = gpu.torch_allocated_bytes?;
            Some((labels, Whole(bytes)))
        });
        page.write(&families::PROCESS_TORCH_ALLOCATED, allocated)?;
        let reserved = self.on_gpus(|labels, gpu| {
            let bytes = gpu.torch_reserved_bytes?;
            Some((labels, Whole(bytes)))
        });
        page.write(&families::PROCESS_TORCH_RESERVED, reserved)?;
        page.write(&families::PROCESS_GPU_MEMORY, self.gpu_memory())?;
        let busy = self.gpu_time(|busy| busy.total_busy_ns);
        page.write(&families::PROCESS_GPU_BUSY, busy)?;
        let idle = self.gpu_time(|busy| busy.total_idle_ns);
        page.write(&families::PROCESS_GPU_IDLE, idle)?;
        let overlap = self.gpu_time(|busy| busy.total_idle_in_gc_ns);
        page.write(&families::PROCESS_GPU_IDLE_IN_GC, overlap)
    }

    /// Samples of the devices of running processes, by CUDA's index in the process.
    fn on_gpus<'a>(
        &'a self,
        sample: fn(Vec<Label<'static>>, &ProcessGpu) -> Option<Sample<'a>>,
    ) -> impl Iterator<Item = Sample<'a>> {
        self.alive().flat_map(move |one| {
            let gpus = one.gpus.iter();
            gpus.filter_map(move |gpu| sample(device(one, gpu), gpu))
        })
    }

    /// Samples from NVML, labeled with NVML's index.
    fn gpu_memory(&self) -> impl Iterator<Item = Sample<'_>> {
        self.alive().flat_map(|one| {
            one.gpus.iter().filter_map(|gpu| {
                let device = gpu.by_nvml.then_some(gpu.device);
                let index = labels::number("gpu", device.or(gpu.nvml_index)?);
                let labels = labels::with(&labels::process(one), index);
                Some((labels, Whole(gpu.memory_bytes?)))
            })
        })
    }

    /// Samples from CUPTI, labeled with CUDA's index.
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
        value: fn(&gctrace_analysis::report::PauseTotal) -> MetricValue,
    ) -> impl Iterator<Item = Sample<'_>> {
        self.snapshot.processes.iter().flat_map(move |one| {
            by_reason(&one.collections, &labels::process(one), self.usual_reason())
                .into_iter()
                .map(move |(labels, figures)| (labels, value(&figures)))
        })
    }

    fn plain(
        &self,
        page: &mut FamilyWriter<'_>,
        family: &MetricFamily,
        value: fn(&ProcessFigures) -> Option<MetricValue>,
    ) -> Result<(), Error> {
        page.write(family, self.each(|one| Some((labels::process(one), value(one)?))))
    }

    /// A sample per process, including exited processes that are still in the snapshot.
    fn each<'a>(
        &'a self,
        sample: impl Fn(&'a ProcessFigures) -> Option<Sample<'a>>,
    ) -> impl Iterator<Item = Sample<'a>> {
        self.snapshot.processes.iter().filter_map(sample)
    }

    /// A sample per running process.
    fn running<'a>(
        &'a self,
        sample: impl Fn(&'a ProcessFigures) -> Option<Sample<'a>>,
    ) -> impl Iterator<Item = Sample<'a>> {
        self.alive().filter_map(sample)
    }

    fn alive(&self) -> impl Iterator<Item = &ProcessFigures> {
        self.snapshot.processes.iter().filter(|one| one.ended.is_none())
    }
}

fn described(one: &ProcessFigures) -> Sample<'_> {
    let mut all: Vec<Label<'_>> = labels::process(one);
    all.push(labels::text("interpreter", &one.interpreter));
    all.push(labels::text("command", &one.command));
    all.extend(one.parent.map(|parent| labels::number("parent", parent)));
    let inner = one.namespace_pid;
    all.extend(inner.map(|pid| labels::number("namespace_pid", pid)));
    (all, Whole(1))
}

/// Labels of a device, with CUDA's index in the process.
fn device(one: &ProcessFigures, gpu: &ProcessGpu) -> Vec<Label<'static>> {
    labels::with(&labels::process(one), labels::number("device", gpu.device))
}
