//! Reports of many traces: the traces described one by one, and references to them. Owns the choice. Sums and
//! distributions are made before, of all traces.

use super::{IdleLedger, Report};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The most traces that a condensed report describes. With a device and a step table each takes
/// some 30 kB of JSON, so all of them less than 5 MB.
pub const DESCRIBED_TRACES: usize = 128;

impl Report {
    /// Leaves out what the report says about single traces, except for the [`DESCRIBED_TRACES`] that explain the
    /// most. First come traces with one of the longest pauses or gaps, with a rank or host that stands out, and
    /// damaged ones, then traces with the most expensive pauses. Indices of traces refer to the shorter list. Does
    /// nothing if there are no more.
    ///
    /// The tables of `gctrace export --format parquet` have all.
    pub fn condense(&mut self) {
        if self.traces.len() <= DESCRIBED_TRACES {
            return;
        }
        let kept = self.telling();
        let index: BTreeMap<usize, usize> =
            kept.iter().enumerate().map(|(new, old)| (*old, new)).collect();
        self.traces_left_out = (self.traces.len() - kept.len()) as u64;
        let mut old = 0..;
        self.traces.retain(|_| matches!(old.next(), Some(old) if index.contains_key(&old)));
        self.renumber(&index);
    }

    /// The traces to describe, ascending.
    fn telling(&self) -> BTreeSet<usize> {
        let gpu = self.gpu.as_ref();
        let jobs = || gpu.and_then(|gpu| gpu.ranks.as_ref()).into_iter();
        let jobs = || jobs().flat_map(|ranks| &ranks.jobs);
        let mut idle: Vec<&IdleLedger> = gpu.into_iter().flat_map(|gpu| &gpu.idle).collect();
        idle.sort_by_key(|ledger| (Reverse(ledger.idle_ns), ledger.id.trace));
        let outliers = jobs().flat_map(|job| &job.spread);
        let outliers = outliers.flat_map(|spread| &spread.outliers);
        let damaged = self.traces.iter().enumerate();
        let damaged = damaged
            .filter_map(|(index, trace)| if trace.is_incomplete() { Some(index) } else { None });
        let paused = self.traces.iter().enumerate();
        let mut costs: BTreeMap<usize, (u64, u64)> =
            paused.map(|(index, trace)| (index, (0, trace.pauses.time_ns))).collect();
        for cause in gpu.into_iter().flat_map(|gpu| &gpu.cause) {
            if let Some((cost_ns, _)) = costs.get_mut(&cause.trace) {
                *cost_ns = (*cost_ns).max(cause.cost_ns);
            }
        }
        let mut costly: Vec<(usize, (u64, u64))> = costs.into_iter().collect();
        costly.sort_by_key(|(index, cost)| (Reverse(*cost), *index));
        let longest = self.worst.iter().map(|pause| pause.trace);
        let in_order = longest
            .chain(self.phases.iter().map(|phases| phases.trace))
            .chain(idle.into_iter().map(|ledger| ledger.id.trace).take(DESCRIBED_TRACES / 4))
            .chain(outliers.filter_map(|rank| usize::try_from(rank.trace).ok()))
            .chain(damaged.take(DESCRIBED_TRACES / 4))
            .chain(costly.into_iter().map(|(index, _)| index));
        let mut kept = BTreeSet::new();
        for index in in_order {
            if kept.len() == DESCRIBED_TRACES {
                break;
            }
            kept.insert(index);
        }
        kept
    }

    /// Keeps records about traces of `index`, from old to new numbers.
    fn renumber(&mut self, index: &BTreeMap<usize, usize>) {
        let known = |trace: &mut usize| {
            let Some(new) = index.get(trace) else { return false };
            *trace = *new;
            true
        };
        let known_rank = |trace: &mut u64| {
            let Ok(old) = usize::try_from(*trace) else { return false };
            let Some(new) = index.get(&old) else { return false };
            *trace = *new as u64;
            true
        };
        self.processes.retain_mut(|process| known(&mut process.trace));
        self.worst.retain_mut(|worst| known(&mut worst.trace));
        self.gpus.retain_mut(|gpus| known(&mut gpus.trace));
        self.phases.take_if(|phases| !known(&mut phases.trace));
        if let Some(bounds) = &mut self.gpu_bounds {
            bounds.processes.retain_mut(|process| known(&mut process.trace));
        }
        if let Some(cuda) = &mut self.cuda {
            cuda.memory.retain_mut(|memory| known(&mut memory.trace));
        }
        if let Some(steps) = &mut self.steps {
            let before = steps.processes.len();
            steps.processes.retain_mut(|process| known(&mut process.trace));
            steps.processes_left_out += (before - steps.processes.len()) as u64;
        }
        let Some(gpu) = &mut self.gpu else { return };
        gpu.devices.retain_mut(|device| known(&mut device.id.trace));
        gpu.cause.retain_mut(|cause| known(&mut cause.trace));
        gpu.clocks.retain_mut(|clock| known(&mut clock.trace) && known(&mut clock.gc_trace));
        gpu.not_merged.retain_mut(|not_merged| known(&mut not_merged.trace));
        gpu.idle.retain_mut(|ledger| known(&mut ledger.id.trace));
        if let Some(launching) = &mut gpu.launching {
            launching.devices.retain_mut(|device| known(&mut device.id.trace));
        }
        let Some(ranks) = &mut gpu.ranks else { return };
        ranks.unrelated.retain_mut(|unrelated| known_rank(&mut unrelated.trace));
        for job in &mut ranks.jobs {
            job.ranks.retain_mut(|rank| known_rank(&mut rank.trace));
            for spread in &mut job.spread {
                let before = spread.outliers.len();
                spread.outliers.retain_mut(|outlier| known_rank(&mut outlier.trace));
                spread.outliers_left_out += (before - spread.outliers.len()) as u64;
            }
            if job.ranks.is_empty() {
                job.communicators.clear();
            }
            let described: BTreeSet<u32> = job.ranks.iter().map(|rank| rank.rank).collect();
            let Some(pauses) = &mut job.pauses else { continue };
            let columns: Vec<bool> =
                pauses.victims.iter().map(|rank| described.contains(rank)).collect();
            let keep = |row: &mut Vec<i64>| {
                let mut column = columns.iter();
                row.retain(|_| column.next().copied().unwrap_or(false));
            };
            pauses.victims.retain(|rank| described.contains(rank));
            for source in pauses.sources.iter_mut().chain([&mut pauses.all]) {
                keep(&mut source.earlier_ns);
            }
        }
    }
}
