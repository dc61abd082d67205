//! The state of one process, in bounded memory.
//!
//! Owns the effect of a record on it. `live_processes.rs` finds the process of a record,
//! `figures.rs` computes what is shown.

use super::history::PauseHistory;
use super::locations::LocationIndex;
use super::locations::LocationSums;
use super::pressure::LastPressure;
use super::process_gpus::ProcessGpus;
use super::ring::KEPT_NS;
use super::snapshot::HeapObjects;
use super::snapshot::PauseFigures;
use super::snapshot::ProcessEnd;
use super::steps::LiveSteps;
use super::steps::PauseTimes;
use super::sums::PauseSums;
use super::text::first_bytes;
use crate::time::intervals::Intervals;
use gctrace_event::Annotation;
use gctrace_event::BackwardStep;
use gctrace_event::GcSettings;
use gctrace_event::GpuOp;
use gctrace_event::Pause;
use gctrace_event::Process;
use gctrace_event::ProcessExit;
use std::collections::VecDeque;

/// Number of disjoint pause intervals, and of pause starts, that are kept for late records: at most
/// 1.5 MiB, in a process with more than 1,000 pauses a second.
const PAUSES: usize = (1 << 16) - 1;
/// Bytes of a command line that are kept.
const COMMAND_BYTES: usize = 4_096;
/// Bytes of an interpreter's version.
const VERSION_BYTES: usize = 64;

/// One process. A process id that is reused after its process ended is another process.
#[derive(Clone, Debug)]
pub(super) struct LiveProcess {
    pub(super) pid: u32,
    pub(super) described: Option<ProcessDescription>,
    pub(super) since_ns: u64,
    pub(super) ended: Option<ProcessEnd>,
    /// Its pauses, once there are any.
    pub(super) work: Option<Box<LivePauses>>,
    /// Time covered by pauses.
    pub(super) paused: Intervals,
    /// Starts of pauses, sorted.
    starts: VecDeque<u64>,
    pub(super) settings: Option<GcSettings>,
    pub(super) pressure: LastPressure,
    pub(super) resident_bytes: Option<u64>,
    pub(super) gpus: ProcessGpus,
    pub(super) steps: Option<Box<LiveSteps>>,
    /// Timestamp of its last record, to decide which process is dropped first.
    pub(super) active_ns: u64,
}

/// The contents of a process's description.
#[derive(Clone, Debug)]
pub(super) struct ProcessDescription {
    pub(super) namespace_pid: Option<u32>,
    pub(super) parent: Option<u32>,
    pub(super) rank: Option<u32>,
    /// Words joined by spaces.
    pub(super) command: String,
    /// Version of its interpreter, and whether that is free-threaded.
    pub(super) interpreter: Option<(String, bool)>,
}

/// Sums over the pauses of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct LivePauses {
    pub(super) sums: PauseSums,
    pub(super) history: PauseHistory,
    pub(super) places: LocationSums,
    pub(super) last: Option<PauseFigures>,
    pub(super) worst: Option<PauseFigures>,
    pub(super) heap: Option<HeapObjects>,
}

impl LiveProcess {
    /// A process about which nothing else is known yet.
    pub(super) fn new(pid: u32, since_ns: u64) -> Self {
        Self {
            pid,
            described: None,
            since_ns,
            ended: None,
            work: None,
            paused: Intervals::default(),
            starts: VecDeque::new(),
            settings: None,
            pressure: LastPressure::default(),
            resident_bytes: None,
            gpus: ProcessGpus::default(),
            steps: None,
            active_ns: since_ns,
        }
    }

    /// Adds a description; the earliest `since_ns` counts, because an exec does not end a process.
    pub(super) fn describe(&mut self, process: &Process) {
        self.since_ns = match self.described {
            Some(_) => self.since_ns.min(process.since_ns),
            None => process.since_ns,
        };
        let interpreter = process.interpreter.as_ref();
        let interpreter = interpreter.map(|known| {
            let version = first_bytes(&known.version, VERSION_BYTES);
            (version.to_owned(), known.free_threaded)
        });
        self.described = Some(ProcessDescription {
            namespace_pid: process.namespace_pid,
            parent: process.parent,
            rank: process.rank,
            command: first_bytes(&process.command.join(" "), COMMAND_BYTES).to_owned(),
            interpreter,
        });
    }

    pub(super) fn end(&mut self, exit: &ProcessExit) {
        self.ended = Some(ProcessEnd {
            at_ns: exit.at_ns,
            code: exit.code,
            signal: exit.signal,
        });
    }

    /// Whether it is known to run Python, or had a pause.
    pub(super) fn runs_python(&self) -> bool {
        let described = self.described.as_ref();
        let interpreter = described.and_then(|described| described.interpreter.as_ref());
        interpreter.is_some() || self.work.is_some()
    }

    pub(super) fn rank(&self) -> Option<u32> {
        self.described.as_ref().and_then(|described| described.rank)
    }

    /// Adds a pause that started at this line.
    pub(super) fn add_pause(&mut self, pause: &Pause, place: Option<LocationIndex>) {
        let (start_ns, end_ns) = (pause.start_ns, pause.end_ns);
        self.active_ns = self.active_ns.max(end_ns);
        let work = self.work.get_or_insert_with(Box::default);
        work.add(pause, place);
        let (gpus, steps) = (&mut self.gpus, &mut self.steps);
        if let Some(steps) = steps {
            steps.add_pause(start_ns);
        }
        self.paused.add(start_ns, end_ns, |from, until| {
            work.history.add_paused(from, until);
            gpus.add_paused(from, until);
            if let Some(steps) = steps {
                steps.add_paused(from, until);
            }
        });
        self.paused.trim(PAUSES, KEPT_NS, |from, until| {
            gpus.forget_paused(from, until)
        });
        self.add_start(start_ns);
    }

    fn add_start(&mut self, start_ns: u64) {
        // They arrive nearly in order.
        let later = self.starts.iter().rev();
        let later = later.take_while(|other| **other > start_ns).count();
        self.starts.insert(self.starts.len() - later, start_ns);
        let newest = self.starts.back().copied().unwrap_or(0);
        while let Some(oldest) = self.starts.front()
            && (self.starts.len() > PAUSES || oldest.saturating_add(KEPT_NS) < newest)
        {
            self.starts.pop_front();
        }
    }

    pub(super) fn set(&mut self, settings: &GcSettings) {
        let later = |known: &GcSettings| known.at_ns <= settings.at_ns;
        if self.settings.as_ref().is_none_or(later) {
            self.settings = Some(settings.clone());
        }
    }

    pub(super) fn add_op(&mut self, op: &GpuOp) {
        self.active_ns = self.active_ns.max(op.end_ns);
        self.gpus
            .add(op.device, op.start_ns, op.end_ns, &self.paused);
    }

    pub(super) fn add_backward(&mut self, pass: &BackwardStep) {
        let pauses = PauseTimes {
            covered: &self.paused,
            starts: &self.starts,
        };
        let steps = self.steps.get_or_insert_with(Box::default);
        steps.add_backward(pass, pauses);
    }

    pub(super) fn add_annotation(&mut self, annotation: &Annotation) {
        if !LiveSteps::is_step(annotation) {
            return;
        }
        let pauses = PauseTimes {
            covered: &self.paused,
            starts: &self.starts,
        };
        let steps = self.steps.get_or_insert_with(Box::default);
        steps.add_annotation(annotation, pauses);
    }
}

impl LivePauses {
    fn add(&mut self, pause: &Pause, place: Option<LocationIndex>) {
        let figures = PauseFigures {
            end_ns: pause.end_ns,
            duration_ns: pause.duration_ns(),
            generation: (pause.generation != Pause::UNKNOWN_GENERATION).then_some(pause.generation),
        };
        self.sums.add(pause);
        self.history.add(pause);
        self.places.add(place, figures.duration_ns);
        let shorter = |worst: PauseFigures| worst.duration_ns < figures.duration_ns;
        if self.worst.is_none_or(shorter) {
            self.worst = Some(figures);
        }
        if self.last.is_none_or(|last| last.end_ns <= figures.end_ns) {
            self.last = Some(figures);
        }
        let (all, count) = match (pause.heap_objects, pause.oldest_objects) {
            (Some(count), _) => (true, count),
            (None, Some(count)) => (false, count),
            (None, None) => return,
        };
        let at_ns = pause.end_ns;
        if self.heap.is_none_or(|heap| heap.at_ns <= at_ns) {
            self.heap = Some(HeapObjects { count, all, at_ns });
        }
    }
}
