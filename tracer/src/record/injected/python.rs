//! What the ring of an interpreter says -> records of the trace. Pure.

use super::said::Notice;
use super::said::Said;
use super::said::Weight;
use super::texts::NAME_LOST;
use super::texts::Texts;
use crate::record::frames::Frames;
use crate::record::frames::Node;
use gctrace_event::Counters;
use gctrace_event::FrameId;
use gctrace_event::Interpreter;
use gctrace_event::Pause;
use gctrace_event::Reason;
use gctrace_event::Record;
use gctrace_event::Settings;
use gctrace_event::Source;
use gctrace_ring::HookState;
use gctrace_ring::Moment;
use gctrace_ring::TextId;
use std::collections::HashMap;

/// Where collections are counted that ran while the program had our callback out.
pub(super) const MISSED: &str = "collections of which gctrace's entry in gc.callbacks was not told";

/// Frames remembered of one ring; stacks of the others end where they would begin.
const MOST_FRAMES: usize = 1 << 20;
/// Collections that can be under way at once: one for each thread.
const MOST_OPEN: usize = 1 << 14;

/// What is known of one ring.
#[derive(Debug)]
pub(super) struct PythonRing {
    pid: u32,
    texts: Texts,
    /// By the ring's name of it.
    frames: HashMap<u32, FrameId>,
    /// Collections that have begun, by thread and interpreter.
    open: HashMap<(u32, i64), Begun>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at_ns: u64,
    generation: u8,
}

impl PythonRing {
    /// Of this process.
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            texts: Texts::default(),
            frames: HashMap::new(),
            open: HashMap::new(),
        }
    }

    /// What follows from a record.
    pub(super) fn take(
        &mut self,
        record: &gctrace_ring::Record,
        frames: &mut Frames,
        said: &mut Vec<Said>,
    ) {
        use gctrace_ring::Record as From;
        match *record {
            From::Text(piece) => self.texts.take(&piece),
            From::Frame {
                id,
                parent,
                function,
                file,
                line,
            } => {
                let node = Node {
                    parent: self.frames.get(&parent).copied(),
                    function: frames.name(self.name(function)),
                    file: frames.name(self.texts.or_empty(file)),
                    line: (line > 0).then_some(line),
                };
                let placed = frames.place(node, said);
                if self.frames.len() < MOST_FRAMES {
                    self.frames.insert(id, placed);
                }
            }
            From::Interpreter {
                version,
                file,
                free_threaded,
                ..
            } => said.push(Said::Interpreter(self.interpreter(
                version,
                file,
                free_threaded,
            ))),
            From::Settings {
                at_ns,
                // The trace has settings by process: those of its main interpreter.
                interpreter: 0,
                thresholds,
                enabled,
            } => said.push(Said::Record(Record::Settings(Settings {
                pid: self.pid,
                at_ns,
                enabled: Some(enabled),
                thresholds,
            }))),
            From::PauseBegin {
                at_ns,
                tid,
                generation,
                interpreter,
            } if self.open.len() < MOST_OPEN => {
                let begun = Begun { at_ns, generation };
                self.open.insert((tid, interpreter), begun);
            }
            From::Pause {
                moment,
                tid,
                generation,
                interpreter,
                collected,
                uncollectable,
                frame,
                at_exit,
            } => {
                self.open.remove(&(tid, interpreter));
                said.push(Said::Record(Record::Pause(Pause {
                    reason: match at_exit {
                        true => Reason::Shutdown,
                        false => Reason::Unknown,
                    },
                    collected: Some(collected),
                    uncollectable: Some(uncollectable),
                    stack: self.frames.get(&frame).copied(),
                    ..self.pause(moment, tid, generation, interpreter)
                })));
            }
            From::Hook {
                at_ns,
                state,
                detail,
                count,
                ..
            } => self.hook(at_ns, state, detail, count, said),
            _ => {}
        }
    }

    /// The process has ended: collections that it died in. `lost`: records of collections were lost, so that
    /// what is open may have ended.
    pub(super) fn ended(&mut self, at_ns: u64, lost: bool, said: &mut Vec<Said>) {
        for ((tid, interpreter), begun) in std::mem::take(&mut self.open) {
            let moment = Moment {
                begin_ns: begun.at_ns,
                end_ns: at_ns,
            };
            if !lost {
                said.push(Said::Record(Record::Pause(Pause {
                    unfinished: true,
                    ..self.pause(moment, tid, begun.generation, interpreter)
                })));
            }
        }
    }

    fn pause(&self, moment: Moment, tid: u32, generation: u8, interpreter: i64) -> Pause {
        Pause {
            pid: self.pid,
            tid,
            begin_ns: moment.begin_ns,
            end_ns: moment.end_ns.max(moment.begin_ns),
            generation,
            reason: Reason::Unknown,
            collected: None,
            uncollectable: None,
            interpreter: Some(interpreter),
            cpu_ns: None,
            stop_the_world_ns: None,
            oldest_objects: None,
            heap_objects: None,
            unfinished: false,
            stack: None,
            young_count: None,
            counters: Counters::default(),
            source: Source::Injected,
        }
    }

    fn name(&self, text: TextId) -> &str {
        self.texts.get(text).unwrap_or(NAME_LOST)
    }

    fn interpreter(&self, version: TextId, file: TextId, free_threaded: bool) -> Interpreter {
        // `3.11.7 (main, Dec  4 2023, 18:10:11) [Clang 15.0.7 ]`
        let words = self.texts.or_empty(version).split_whitespace();
        let version = words.into_iter().next().unwrap_or_default();
        Interpreter {
            file: self.texts.or_empty(file).to_owned(),
            version: version.to_owned(),
            free_threaded,
            collector: collector(version, free_threaded).to_owned(),
            found_by: "injected library".to_owned(),
            build_id: None,
        }
    }

    fn hook(&self, at_ns: u64, state: HookState, detail: TextId, count: u64, said: &mut Vec<Said>) {
        let why = self.texts.get(detail);
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        let text = match state {
            HookState::Installed => return said.push(Said::SeenSince(at_ns)),
            HookState::CountingAllocations => return,
            HookState::Restored => format!(
                "the program took gctrace out of gc.callbacks; it was put back, and the collections in \
                 between were missed{why}"
            ),
            HookState::GivenUp => format!(
                "the program took gctrace out of gc.callbacks again: its collections are not seen any more{why}"
            ),
            HookState::Bypassed => {
                "collections ran of which gc.callbacks was not told, or not gctrace in it"
                    .to_owned()
            }
            HookState::Failed => format!("collections cannot be seen from within{why}"),
            HookState::NotCountingAllocations => format!("allocations are not counted{why}"),
        };
        if count > 0 {
            said.push(Said::Missed(MISSED, count));
        }
        if matches!(state, HookState::Failed | HookState::GivenUp) {
            said.push(Said::Unhooked);
        }
        said.push(Said::Notice(Notice {
            at_ns,
            weight: Weight::Warning,
            text,
        }));
    }
}

/// 3.14.0 - 3.14.4 alone have an incremental collector.
fn collector(version: &str, free_threaded: bool) -> &'static str {
    let mut numbers = version.split('.').map(|part| {
        let digits = part.find(|letter: char| !letter.is_ascii_digit());
        part.get(..digits.unwrap_or(part.len()))?
            .parse::<u32>()
            .ok()
    });
    let mut next = || numbers.next().flatten();
    match (free_threaded, next(), next(), next()) {
        (true, ..) => "free-threaded",
        (false, Some(3), Some(14), Some(0..=4)) => "incremental",
        _ => "generational",
    }
}

#[cfg(test)]
mod tests;
