//! The figures of one process.

use super::garbage::pressure;
use super::gpus::LiveGpus;
use super::live_process::LiveProcess;
use super::locations::LocationTable;
use super::ring::{BUCKET_NS, bucket, index};
use super::snapshot::{ProcessDetail, ProcessEnd, ProcessFigures, TimelineCell, ppm};
use super::{HISTORY_SECONDS, LINES, garbage};
use gctrace_event::Process;

/// The buckets of an interval: from `from` on before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketRange {
    pub(super) from: u64,
    pub(super) until: u64,
}

impl LiveProcess {
    pub(super) fn figures(
        &self,
        now_ns: u64,
        interval: BucketRange,
        gpus: &LiveGpus,
    ) -> ProcessFigures {
        let mut figures = self.description();
        self.add_pauses(&mut figures, interval);
        let exit = self.sums.exit;
        let until_ns = if let Some(exit) = exit { exit.at_ns } else { now_ns };
        let wall_ns = until_ns.saturating_sub(self.since_ns());
        // A process that just started was not paused.
        figures.share_ppm = ppm(figures.paused_ns.min(wall_ns), wall_ns).unwrap_or(0);
        if let Some(settings) = &self.sums.settings.latest {
            figures.enabled = settings.enabled;
            figures.thresholds = Some(settings.thresholds);
        }
        figures.pressure = pressure(&self.sums.pressure, self.sums.version());
        figures.auto = self.auto.as_deref().cloned();
        figures.resident_bytes = self.sums.memory.report.resident_bytes;
        figures.turns = self.turns.as_ref().and_then(|turns| turns.live(self.sums.pid));
        figures.garbage = garbage::figures(&self.sums.garbage);
        figures.heap_trend = self.trend.as_ref().map(garbage::trend);
        figures.freeze = garbage::freeze(&self.sums);
        let history = self.work.as_ref().map(|work| &work.history);
        let length = interval.until - interval.from;
        // A process that ended uses no GPU, whatever the last NVML sample contained.
        let by_nvml = gpus.used_by(self.sums.pid).filter(|_| exit.is_none());
        let torch = &self.sums.leaks.devices;
        figures.gpus = self.gpus.figures((interval.until, length), history, torch, by_nvml);
        for gpu in figures.gpus.iter_mut().filter(|gpu| gpu.busy.is_some()) {
            gpu.idle = self.idle.as_ref().and_then(|idle| idle.figures(gpu.device));
        }
        figures
    }

    fn description(&self) -> ProcessFigures {
        let undescribed = Process::default();
        let described = self.sums.described.as_ref().unwrap_or(&undescribed);
        let interpreter = self.sums.interpreter();
        ProcessFigures {
            pid: self.sums.pid,
            namespace_pid: described.namespace_pid,
            parent: described.parent,
            rank: self.sums.rank(),
            command: described.command.concat(),
            interpreter: if let Some(interpreter) = interpreter {
                let suffix = if interpreter.free_threaded { "t" } else { "" };
                format!("{}{suffix}", interpreter.version)
            } else {
                String::new()
            },
            since_ns: self.since_ns(),
            ended: self.sums.exit.map(|exit| ProcessEnd {
                at_ns: exit.at_ns,
                code: exit.code,
                signal: exit.signal,
            }),
            ..ProcessFigures::default()
        }
    }

    fn add_pauses(&self, figures: &mut ProcessFigures, interval: BucketRange) {
        let seconds = self.seconds(interval.until);
        let Some(work) = &self.work else {
            figures.history_ns = vec![0; index(seconds)];
            return;
        };
        let bucket_sums = work.history.bucket_sums(interval.from, interval.until);
        figures.collections = work.history.sums.figures();
        figures.interval_pauses = bucket_sums.pauses;
        figures.interval_pause_ns = bucket_sums.pause_ns;
        figures.interval_paused_ns = bucket_sums.paused_ns;
        figures.history_ns = work.history.by_second(interval.until, seconds);
        figures.paused_ns = self.sums.paused.length_ns();
        figures.last = work.last;
        figures.worst = work.worst;
        figures.heap_objects = work.heap;
    }

    /// Seconds that the process lived before a bucket, partial ones included; at most the number
    /// shown.
    fn seconds(&self, until: u64) -> u64 {
        let age_ns = (until * BUCKET_NS).saturating_sub(self.since_ns());
        age_ns.div_ceil(1_000_000_000).min(HISTORY_SECONDS as u64)
    }

    pub(super) fn detail(
        &self,
        until: u64,
        places: &LocationTable,
        gpus: &LiveGpus,
    ) -> ProcessDetail {
        let (lines, other_lines) = match &self.work {
            Some(work) => work.places.figures(places, LINES),
            None => Default::default(),
        };
        let observed_ns = (until * BUCKET_NS).saturating_sub(self.since_ns());
        let (steps, step_basis) = match &self.steps {
            Some(steps) => steps.figures(),
            None => Default::default(),
        };
        ProcessDetail {
            pid: self.sums.pid,
            lines,
            other_lines,
            born_at: self.born.map(|place| places.names(place).0),
            garbage: garbage::detail(&self.sums.garbage, observed_ns),
            layers: self.layers.as_deref().cloned(),
            steps,
            step_basis,
            timeline: self.timeline(until, gpus),
            cell_ns: BUCKET_NS,
            timeline_end_ns: until * BUCKET_NS,
        }
    }

    fn timeline(&self, until: u64, gpus: &LiveGpus) -> Vec<TimelineCell> {
        let most = HISTORY_SECONDS as u64 * 1_000_000_000 / BUCKET_NS;
        let from = until.saturating_sub(most);
        let from = from.max(bucket(self.since_ns())).min(until);
        let by_nvml = gpus.used_by(self.sums.pid).map(|(index, _)| index).next();
        let cells = (from..until).map(|bucket| TimelineCell {
            gpu_utilization_percent: by_nvml.and_then(|index| gpus.utilization(index, bucket)),
            ..TimelineCell::default()
        });
        let mut cells: Vec<TimelineCell> = cells.collect();
        let at = |bucket: u64| index(bucket - from);
        if let Some(work) = &self.work {
            for (bucket, ns) in work.history.paused_by_bucket(from, until) {
                cells[at(bucket)].gc_ns = u64::from(ns).min(BUCKET_NS);
            }
        }
        if let Some(work) = self.gpus.first() {
            let start = work.known_from().max(from);
            let known = until.min(work.known_until());
            for bucket in start..known {
                cells[at(bucket)].gpu_busy_ns = Some(0);
            }
            for (bucket, ns) in work.by_bucket(start, known) {
                cells[at(bucket)].gpu_busy_ns = Some(u64::from(ns).min(BUCKET_NS));
            }
        }
        cells
    }
}
