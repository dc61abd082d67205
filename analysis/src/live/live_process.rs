//! The state of one process, in bounded memory.
//!
//! Owns the effect of a record on it. `live_processes.rs` finds the process of a record, `figures.rs` computes the
//! figures shown.

use super::history::PauseHistory;
use super::idle::LiveIdle;
use super::locations::{LocationSums, LocationTable, first_bytes};
use super::process_gpus::ProcessGpus;
use super::snapshot::{AutoFigures, HeapObjects, PauseFigures};
use super::steps::{LiveSteps, StepPauses};
use crate::accumulate::process_sums::ProcessSums;
use crate::bounded::{Keep, WINDOW_NS};
use crate::leak_watch::alive::AliveByLine;
use crate::pauses::known_generation;
use crate::report::{HeapTrend, LatestLayers};
use crate::stacks::StackLines;
use crate::turns::LoopSums;
use gctrace_event::{
    Annotation, CudaCall, GpuOp, GpuOpKind, Interpreter, Pause, Process, Record, StepMark,
};
use std::collections::VecDeque;

/// Number of disjoint pause intervals, and of pause starts, that are kept for late records: at most
/// 1.5 MiB, in a process with more than 1,000 pauses a second.
const PAUSES: usize = (1 << 16) - 1;
/// Maximum length of a command line, in bytes; longer ones are cut.
const COMMAND_BYTES: usize = 4_096;
/// Maximum length of an interpreter's version, in bytes.
const VERSION_BYTES: usize = 64;

/// One process. A process id that is reused after its process ended is another process.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveProcess {
    pub(super) sums: ProcessSums,
    /// Start of its first record.
    first_ns: u64,
    /// Its pauses, once there are any.
    pub(super) work: Option<Box<LivePauses>>,
    /// How its heap grows, computed when a full collection changes it.
    pub(super) trend: Option<HeapTrend>,
    pub(super) alive: AliveByLine<StackLines>,
    /// Birth line of the fastest growing objects.
    pub(super) born: Option<StackLines>,
    /// Starts of pauses, sorted.
    starts: VecDeque<u64>,
    pub(super) gpus: ProcessGpus,
    /// Why its GPUs were idle; only if CUPTI records the process.
    pub(super) idle: Option<Box<LiveIdle>>,
    pub(super) steps: Option<Box<LiveSteps>>,
    pub(super) auto: Option<Box<AutoFigures>>,
    /// PyTorch's memory by layer.
    pub(super) layers: Option<Box<LatestLayers>>,
    /// Its loops, once there are any.
    pub(super) turns: Option<Box<LoopSums>>,
    /// Timestamp of its last record, to decide which process is dropped first.
    pub(super) active_ns: u64,
}

/// Sums over the pauses of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct LivePauses {
    pub(super) history: PauseHistory,
    pub(super) places: LocationSums,
    pub(super) last: Option<PauseFigures>,
    pub(super) worst: Option<PauseFigures>,
    pub(super) heap: Option<HeapObjects>,
}

impl LiveProcess {
    /// A process without any other known facts yet.
    pub(super) fn new(pid: u32, since_ns: u64) -> Self {
        Self {
            sums: ProcessSums::new(pid, Keep::Window, PAUSES),
            first_ns: since_ns,
            active_ns: since_ns,
            ..Self::default()
        }
    }

    /// Adds a description; only the parts that are shown are kept.
    pub(super) fn describe(&mut self, process: &Process) {
        let interpreter = process.interpreter.as_ref().map(|interpreter| Interpreter {
            version: first_bytes(&interpreter.version, VERSION_BYTES).to_owned(),
            free_threaded: interpreter.free_threaded,
            ..Interpreter::default()
        });
        let command = process.command.join(" ");
        self.sums.describe(Process {
            command: vec![first_bytes(&command, COMMAND_BYTES).to_owned()],
            interpreter,
            torch: None,
            ..*process
        });
    }

    /// From when on its pauses are complete.
    pub(super) fn since_ns(&self) -> u64 {
        self.sums.since_ns().unwrap_or(self.first_ns)
    }

    /// Whether it is known to run Python, or had a pause.
    pub(super) fn runs_python(&self) -> bool {
        self.sums.interpreter().is_some() || self.work.is_some()
    }

    /// Adds any record of it but a pause.
    pub(super) fn record(&mut self, record: &Record, places: &LocationTable) {
        match record {
            Record::GpuOp(op) => self.add_op(op),
            Record::CudaCall(call) => self.add_call(call),
            Record::Step(mark) => self.add_mark(mark),
            Record::Annotation(annotation) => self.add_annotation(annotation),
            Record::AliveLines(alive) => self.alive.add(alive, |frame| places.of(Some(frame))),
            Record::Turns(turns) => self.turns.get_or_insert_default().add(turns, None),
            Record::Turn(turn) => {
                let turns = self.turns.get_or_insert_default();
                turns.trim();
                turns.add_turn(turn.clone());
            }
            Record::Layers(layers) => self.layers.get_or_insert_default().add(layers),
            _ => {
                self.sums.record(record);
            }
        }
    }

    /// Adds a pause that started at this line.
    pub(super) fn add_pause(&mut self, pause: &Pause, place: Option<StackLines>) {
        let (start_ns, end_ns) = (pause.start_ns, pause.end_ns);
        self.active_ns = self.active_ns.max(end_ns);
        let work = self.work.get_or_insert_with(Box::default);
        work.add(pause, place);
        if let Some(turns) = &mut self.turns {
            turns.add_pause(pause);
        }
        let (gpus, idle, steps) = (&mut self.gpus, &mut self.idle, &mut self.steps);
        if let Some(steps) = steps {
            steps.add_pause(start_ns);
        }
        self.sums.paused.add(start_ns, end_ns, |from, until| {
            work.history.add_paused(from, until);
            gpus.add_paused(from, until);
            if let Some(idle) = idle {
                idle.add_paused(from, until);
            }
            if let Some(steps) = steps {
                steps.add_paused(from, until);
            }
        });
        let full = self.sums.is_full(pause.generation);
        let may_grow = self.sums.add_pause(pause, full);
        self.sums.paused.trim(|from, until| gpus.forget_paused(from, until));
        if may_grow {
            self.look_at_trend(end_ns);
        }
        self.add_start(start_ns);
    }

    /// Adds its resident memory.
    pub(super) fn add_resident(&mut self, at_ns: u64, bytes: u64) {
        if self.sums.add_resident(at_ns, bytes) {
            self.look_at_trend(at_ns);
        }
    }

    fn look_at_trend(&mut self, until_ns: u64) {
        let span_ns = (self.since_ns(), until_ns);
        let life = self.sums.life(span_ns, None);
        self.trend = self.sums.leaks.trend(&life);
        let lines = self.trend.as_mut().map(|trend| self.alive.growing(trend, &life));
        self.born = lines.and_then(|lines| Some(lines.first()?.0));
    }

    fn add_start(&mut self, start_ns: u64) {
        // They arrive nearly in order.
        let later = self.starts.iter().rev();
        let later = later.take_while(|other| **other > start_ns).count();
        self.starts.insert(self.starts.len() - later, start_ns);
        while let (Some(oldest), Some(newest)) = (self.starts.front(), self.starts.back())
            && (self.starts.len() > PAUSES || newest - oldest > WINDOW_NS)
        {
            self.starts.pop_front();
        }
    }

    fn add_op(&mut self, op: &GpuOp) {
        self.active_ns = self.active_ns.max(op.end_ns);
        if op.kind != GpuOpKind::HostFunction {
            self.gpus.add(op.device, op.start_ns, op.end_ns, &self.sums.paused);
        }
        self.idle.get_or_insert_default().add_op(op, &self.sums.paused);
    }

    fn add_call(&mut self, call: &CudaCall) {
        if self.idle.is_some() || call.correlation.is_some() {
            self.idle.get_or_insert_default().add_call(call);
        }
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        if let Some(idle) = &mut self.idle {
            idle.end();
        }
    }

    fn add_mark(&mut self, mark: &StepMark) {
        let pauses = StepPauses { covered: &self.sums.paused, starts: &self.starts };
        let steps = self.steps.get_or_insert_with(Box::default);
        steps.add_mark(mark, pauses);
    }

    fn add_annotation(&mut self, annotation: &Annotation) {
        if annotation.step_number().is_none() {
            return;
        }
        let pauses = StepPauses { covered: &self.sums.paused, starts: &self.starts };
        let steps = self.steps.get_or_insert_with(Box::default);
        steps.add_annotation(annotation, pauses);
    }
}

impl LivePauses {
    fn add(&mut self, pause: &Pause, place: Option<StackLines>) {
        let figures = PauseFigures {
            end_ns: pause.end_ns,
            duration_ns: pause.duration_ns(),
            generation: known_generation(pause),
        };
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
