//! Turns the records of an interpreter's ring into records of the trace. Pure but for the numbers of cells (`cells.rs`).

use super::garbage::GarbageRecords;
use super::layers::layers;
use super::ring_event::{InjectedNotice, NoticeLevel, RingEvent};
use super::texts::{NAME_LOST, RingTexts};
use super::turns::{turn, turns};
use crate::record::trace::{FrameNode, FrameTree};
use gctrace_event::{
    AliveLines, Called, CalledKind, CollectorKind, CycleId, DeviceMemory, EmptyCache, EventSource,
    FrameId, GcReason, GcSettings, Interpreter, KindId, NamedMarker, Pause, PauseMemory, StepMark,
    UnseenCollections,
};
use gctrace_ring::{
    HookState, PythonMessage, RingAliveLine, RingCacheMemory, RingEmptyCache, RingPause,
    RingPauseMemory, RingReason, StepMarker, TextId, TimeInterval,
};
use std::collections::{HashMap, HashSet};

/// Place where collections are counted that ran while the program had our callback removed.
pub(super) const MISSED: &str = "collections without a call of gctrace's entry in gc.callbacks";

/// Frames remembered per ring; stacks that continue in others end there.
const MAX_FRAMES: usize = 1 << 20;
/// `c10::DeviceType` of CUDA devices.
const CUDA_DEVICE: i8 = 1;
/// A collection in progress for longer than this when a recording ends hangs, in ns.
const HANGS_NS: u64 = 2_000_000_000;
/// Collections that can be in progress at once: one for each thread.
const MAX_OPEN: usize = 1 << 14;

/// Decoder of one process's ring of collections: frames by id, and pauses that have not ended.
#[derive(Debug, Default)]
pub(super) struct PythonRing {
    pid: u32,
    texts: RingTexts,
    /// By the frame's id in the ring.
    frames: HashMap<u32, FrameId>,
    /// Collections in progress, by thread and interpreter.
    open: HashMap<(u32, i64), OpenPause>,
    garbage: GarbageRecords,
    /// The last table of layers that came whole.
    table: u32,
    /// Interpreters that have begun to end, at most [`MAX_OPEN`].
    ending: HashSet<i64>,
}

/// A start or an end of an interpreter with uncounted collections.
const UNCOUNTED: UnseenCollections =
    UnseenCollections { at_start: 0, at_end: 0, uncounted: 1, end_ns: 0 };

#[derive(Clone, Copy, Debug)]
struct OpenPause {
    at_ns: u64,
    generation: u8,
}

impl PythonRing {
    /// Starts to decode a new ring of the process; all its texts and frames are still to come.
    /// `before`: the last numbers of kinds of objects and of cycles in its earlier rings.
    pub(super) fn new(pid: u32, before: (KindId, CycleId)) -> Self {
        Self { pid, garbage: GarbageRecords::new(pid, before), ..Self::default() }
    }

    /// The last numbers of kinds of objects and of cycles.
    pub(super) fn last_numbers(&self) -> (KindId, CycleId) {
        self.garbage.last_numbers()
    }

    /// Decodes one message; appends the events that it completes, if any.
    pub(super) fn take(
        &mut self,
        message: PythonMessage,
        frames: &mut FrameTree,
        ring_events: &mut Vec<RingEvent>,
    ) {
        use PythonMessage as From;
        match message {
            From::Text { id, text } => self.texts.take(id, text),
            From::Frame { id, parent, function, file, line } => {
                let node = FrameNode {
                    parent: self.frames.get(&parent).copied(),
                    function: frames.name(self.name(function)),
                    file: frames.file(self.pid, self.texts.or_empty(file)),
                    line: if line > 0 { Some(line) } else { None },
                };
                let placed = frames.place(node, ring_events);
                if self.frames.len() < MAX_FRAMES {
                    self.frames.insert(id, placed);
                }
            }
            From::Interpreter { version, file, free_threaded, .. } => ring_events
                .push(RingEvent::Interpreter(self.interpreter(version, file, free_threaded))),
            From::Settings {
                at_ns,
                // The trace has settings by process: its main interpreter's.
                interpreter: 0,
                thresholds,
                enabled,
                frame,
            } => ring_events.push(RingEvent::of(GcSettings {
                pid: self.pid,
                at_ns,
                enabled: Some(enabled),
                thresholds,
                stack: self.frames.get(&frame).copied(),
            })),
            From::PauseStart { at_ns, tid, generation, interpreter }
                if self.open.len() < MAX_OPEN =>
            {
                let begun = OpenPause { at_ns, generation };
                self.open.insert((tid, interpreter), begun);
            }
            From::Pause(pause) => {
                self.open.remove(&(pause.tid, pause.interpreter));
                let garbage = self.garbage.of_pause(pause.tid, pause.interval);
                ring_events.extend(garbage.map(RingEvent::of));
                ring_events.push(RingEvent::of(Pause {
                    reason: match pause.reason {
                        RingReason::Unknown => GcReason::Unknown,
                        RingReason::Automatic => GcReason::Automatic,
                        RingReason::Explicit => GcReason::Manual,
                        RingReason::Exit => GcReason::Shutdown,
                    },
                    collected: pause.collected.map(u64::from),
                    uncollectable: pause.uncollectable.map(u64::from),
                    stack: self.frames.get(&pause.frame).copied(),
                    oldest_objects: pause.oldest_objects.map(u64::from),
                    freed_bytes: pause.freed_bytes,
                    cpu_ns: pause.cpu_ns,
                    ..self.pause(&pause)
                }));
            }
            From::Called(called) => ring_events.push(RingEvent::of(Called {
                pid: self.pid,
                tid: called.tid,
                at_ns: called.at_ns,
                kind: if called.is_callback { CalledKind::Callback } else { CalledKind::Finalizer },
                calls: called.calls.into(),
                time_ns: called.time_ns,
                stack: self.frames.get(&called.frame).copied(),
            })),
            From::ObjectKind { id, type_name, function, file, line } => {
                let code = (function, file, line);
                let mut kind = self.garbage.kind(&self.texts, id, type_name, code);
                kind.name.file =
                    kind.name.file.map(|file| frames.file(self.pid, &file).to_string());
                ring_events.push(RingEvent::of(kind));
            }
            From::Cycle { id, edges } => {
                ring_events.push(RingEvent::of(self.garbage.cycle(&self.texts, id, &edges)));
            }
            From::Garbage(garbage) => self.garbage.found(&garbage),
            From::Layers(step) => {
                let layers = layers(self.pid, &self.texts, &step);
                if matches!(&layers, Some(layers) if layers.rows.is_some()) {
                    self.table = step.table;
                }
                // A step that repeats a lost table has no information.
                let layers = if self.table == step.table { layers } else { None };
                ring_events.extend(layers.map(RingEvent::of));
            }
            From::EmptyCache(call) => ring_events.push(RingEvent::of(self.empty_cache(&call))),
            From::Alive { at_ns, lines } => {
                ring_events.push(RingEvent::of(self.alive(at_ns, &lines)))
            }
            From::CacheMemory(memory) => {
                ring_events.extend(self.cache_memory(&memory).map(RingEvent::of));
            }
            From::PauseMemory(memory) => {
                ring_events.extend(self.pause_memory(&memory).map(RingEvent::of));
            }
            From::StepMark { at_ns, end_ns, tid, cpu_ns, marker, name } => {
                ring_events.push(RingEvent::of(StepMark {
                    pid: self.pid,
                    tid,
                    marker: self.marker(marker, name),
                    start_ns: at_ns,
                    end_ns: end_ns.max(at_ns),
                    cpu_ns: if cpu_ns > 0 { Some(cpu_ns) } else { None },
                }))
            }
            From::Fork { at_ns, pid, parent } => {
                ring_events.push(RingEvent::Forked { at_ns, pid, parent });
            }
            From::Turns(counted) => ring_events.push(RingEvent::of(turns(self.pid, counted))),
            From::Turn(long) => ring_events.push(RingEvent::of(turn(self.pid, &long))),
            From::Hook { at_ns, state: HookState::Installed, count, .. } => {
                ring_events.push(RingEvent::SeenSince(at_ns));
                ring_events.push(RingEvent::Unseen(match count {
                    HookState::UNCOUNTED => UNCOUNTED,
                    at_start => UnseenCollections { at_start, ..UnseenCollections::default() },
                }));
            }
            From::Hook { state: HookState::Ending, interpreter, .. }
                if self.ending.len() < MAX_OPEN =>
            {
                self.ending.insert(interpreter);
            }
            From::Hook { state: HookState::Ended, interpreter, count: at_end, .. } => {
                self.ending.remove(&interpreter);
                ring_events.push(RingEvent::Unseen(UnseenCollections {
                    at_end,
                    ..UnseenCollections::default()
                }));
            }
            From::Hook { state: HookState::EndTook, count: end_ns, .. } => {
                ring_events.push(RingEvent::Unseen(UnseenCollections {
                    end_ns,
                    ..UnseenCollections::default()
                }));
            }
            From::Hook { at_ns, state, detail, count, .. } => {
                self.hook(at_ns, state, detail, count, ring_events)
            }
            // For an interpreter that is not the main one, and beyond the bounds.
            From::Settings { .. } | From::PauseStart { .. } => {}
        }
    }

    /// The recording ended: closes collections that have been in progress for long, as they hang. `lost`: as of
    /// [`PythonRing::ended`].
    pub(super) fn left(&mut self, at_ns: u64, lost: bool, ring_events: &mut Vec<RingEvent>) {
        self.open.retain(|_, begun| gctrace_units::duration_ns(begun.at_ns, at_ns) >= HANGS_NS);
        self.ending.clear();
        self.ended(at_ns, lost, ring_events);
    }

    /// The process exited: closes collections that were in progress. `lost`: records of collections were lost, so the
    /// collections in progress may have ended.
    pub(super) fn ended(&mut self, at_ns: u64, lost: bool, ring_events: &mut Vec<RingEvent>) {
        let uncounted = self.ending.drain().map(|_| RingEvent::Unseen(UNCOUNTED));
        ring_events.extend(uncounted);
        for ((tid, interpreter), begun) in std::mem::take(&mut self.open) {
            let pause = RingPause {
                interval: TimeInterval { start_ns: begun.at_ns, end_ns: at_ns },
                tid,
                generation: begun.generation,
                interpreter,
                ..RingPause::default()
            };
            if !lost {
                let garbage = self.garbage.of_pause(tid, pause.interval);
                ring_events.extend(garbage.map(RingEvent::of));
                ring_events.push(RingEvent::of(Pause { unfinished: true, ..self.pause(&pause) }));
            }
        }
    }

    fn pause(&self, pause: &RingPause) -> Pause {
        Pause {
            pid: self.pid,
            tid: pause.tid,
            start_ns: pause.interval.start_ns,
            end_ns: pause.interval.end_ns.max(pause.interval.start_ns),
            generation: pause.generation,
            interpreter: Some(pause.interpreter),
            source: EventSource::Injected,
            ..Pause::default()
        }
    }

    fn alive(&self, at_ns: u64, lines: &[RingAliveLine]) -> AliveLines {
        // A line is unknown if its frame found no room.
        let lines = lines
            .iter()
            .filter_map(|line| Some((*self.frames.get(&line.frame)?, line.objects, line.bytes)));
        AliveLines { pid: self.pid, at_ns, lines: lines.collect() }
    }

    fn empty_cache(&self, call: &RingEmptyCache) -> EmptyCache {
        EmptyCache {
            pid: self.pid,
            tid: call.tid,
            start_ns: call.interval.start_ns,
            end_ns: call.interval.end_ns.max(call.interval.start_ns),
            reserved_before: call.before,
            reserved_after: call.after,
            stack: self.frames.get(&call.frame).copied(),
        }
    }

    /// `None`: no machine has so many devices.
    fn cache_memory(&self, memory: &RingCacheMemory) -> Option<DeviceMemory> {
        Some(DeviceMemory {
            pid: self.pid,
            tid: memory.tid,
            at_ns: memory.at_ns,
            allocated: memory.allocated,
            reserved: memory.reserved,
            bytes: 0,
            device: i8::try_from(memory.device).ok()?,
            device_type: CUDA_DEVICE,
        })
    }

    /// As [`PythonRing::cache_memory`].
    fn pause_memory(&self, memory: &RingPauseMemory) -> Option<PauseMemory> {
        Some(PauseMemory {
            pid: self.pid,
            tid: memory.tid,
            start_ns: memory.interval.start_ns,
            end_ns: memory.interval.end_ns.max(memory.interval.start_ns),
            device_type: CUDA_DEVICE,
            device: i8::try_from(memory.device).ok()?,
            freed_bytes: memory.freed,
            freed_blocks: None,
        })
    }

    fn name(&self, text: TextId) -> &str {
        self.texts.get(text).unwrap_or(NAME_LOST)
    }

    fn marker(&self, marker: StepMarker, name: TextId) -> NamedMarker {
        let name = self.name(name).to_owned();
        match marker {
            StepMarker::Function => NamedMarker::Function(name),
            StepMarker::Optimizer => NamedMarker::Optimizer(name),
            StepMarker::Backward => NamedMarker::Backward,
            StepMarker::DataLoader => NamedMarker::DataLoader(name),
        }
    }

    fn interpreter(&self, version: TextId, file: TextId, free_threaded: bool) -> Interpreter {
        // `3.11.7 (main, Dec  4 2023, 18:10:11) [Clang 15.0.7 ]`
        let version = self.texts.or_empty(version).trim_ascii_start();
        let version = version.split_whitespace().next().unwrap_or(version);
        Interpreter {
            file: self.texts.or_empty(file).to_owned(),
            version: version.to_owned(),
            free_threaded,
            collector: collector(version, free_threaded),
            found_by: "injected library".to_owned(),
            build_id: None,
        }
    }

    fn hook(
        &self,
        at_ns: u64,
        state: HookState,
        detail: TextId,
        count: u64,
        ring_events: &mut Vec<RingEvent>,
    ) {
        let why = self.texts.get(detail);
        let why = if let Some(why) = why { format!(": {why}") } else { String::new() };
        let text = match state {
            HookState::Installed
            | HookState::EndTook
            | HookState::Ending
            | HookState::Ended
            | HookState::CountingAllocations => return,
            HookState::Restored => format!(
                "the program removed gctrace from gc.callbacks; it was put back, but the collections in \
                 between were missed{why}"
            ),
            HookState::GivenUp => format!(
                "the program removed gctrace from gc.callbacks again: its collections are no longer recorded{why}"
            ),
            HookState::Bypassed => {
                "collections ran without a call of gctrace's entry in gc.callbacks".to_owned()
            }
            HookState::Failed => format!("collections cannot be recorded in-process{why}"),
            HookState::NotWatchingFunction => {
                format!("calls of the function of --step-function are not recorded{why}")
            }
            HookState::NotExaminingGarbage => {
                format!("the garbage of collections is not examined in-process (--garbage){why}")
            }
            HookState::NotMeasuringLayers => {
                format!("memory by layer is not measured (--layers){why}")
            }
            HookState::NoMemoryHistory => {
                format!("there is no history of device memory (--memory-history){why}")
            }
            HookState::NotCountingAllocations => format!("allocations are not counted{why}"),
        };
        if count > 0 {
            ring_events.push(RingEvent::Missed(MISSED, count));
        }
        if state == HookState::NotWatchingFunction {
            ring_events.push(RingEvent::FunctionUnwatched);
        }
        if matches!(state, HookState::Failed | HookState::GivenUp) {
            ring_events.push(RingEvent::Unhooked);
        }
        let weight = match state {
            HookState::NotExaminingGarbage => NoticeLevel::Note,
            _ => NoticeLevel::Warning,
        };
        ring_events.push(RingEvent::Notice(InjectedNotice { at_ns, weight, text }));
    }
}

/// Only 3.14.0 - 3.14.4 have an incremental collector.
fn collector(version: &str, free_threaded: bool) -> CollectorKind {
    let mut numbers = version.split('.').map(|part| {
        let digits = part.find(|letter: char| !letter.is_ascii_digit());
        part.get(..digits.unwrap_or(part.len()))?.parse::<u32>().ok()
    });
    let mut next = || numbers.next().flatten();
    match (free_threaded, next(), next(), next()) {
        (true, ..) => CollectorKind::FreeThreaded,
        (false, Some(3), Some(14), Some(0..=4)) => CollectorKind::Incremental,
        _ => CollectorKind::Generational,
    }
}

#[cfg(test)]
mod tests;
