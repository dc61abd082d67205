//! Stacks: from code objects and instructions to files, functions and lines.
//!
//! Owns the code objects and stacks that were met. Code objects come with their names and lines, read
//! while they were alive; only what did not fit or was not resident is read from the process here. The
//! tree of frames is `frames.rs`.

use crate::record::frames::FrameNode;
use crate::record::frames::FrameTree;
use crate::record::output::RecordOutput;
use gctrace_ebpf::CapturedFrame;
use gctrace_ebpf::CodeEvent;
use gctrace_ebpf::CodeId;
use gctrace_ebpf::StackEvent;
use gctrace_ebpf::StackId;
use gctrace_event::Frame;
use gctrace_event::FrameId;
use gctrace_probes::CodeObject;
use gctrace_probes::ProcessMemory;
use gctrace_probes::frames::FrameLayout;
use std::collections::HashMap;
use std::rc::Rc;

/// Everything known about stacks.
#[derive(Default)]
pub(crate) struct StackResolver {
    processes: HashMap<u32, ProcessCode>,
    /// By name, which is never used for two: a child that was forked inside a pause tells its parent's.
    innermost: HashMap<StackId, FrameId>,
    /// Processes that ended since the last look: their last pauses may still be on their way.
    ended: Vec<u32>,
    /// Pauses whose stack never came.
    lost: u64,
}

/// What is known of one process.
#[derive(Default)]
struct ProcessCode {
    codes: HashMap<CodeId, ResolvedCode>,
    stacks: Vec<StackId>,
}

struct ResolvedCode {
    object: CodeObject,
    file: Rc<str>,
    function: Rc<str>,
}

impl StackResolver {
    /// A code object was met for the first time.
    pub(crate) fn code(
        &mut self,
        event: &CodeEvent,
        layout: Option<&FrameLayout>,
        frames: &mut FrameTree,
    ) {
        let Some(object) = layout.and_then(|layout| decode(event, layout)) else {
            return;
        };
        let code = ResolvedCode {
            file: frames.name(&object.file),
            function: frames.name(&object.function),
            object,
        };
        let known = self.processes.entry(event.pid).or_default();
        known.codes.insert(event.code, code);
    }

    /// A stack was met for the first time: its frames are written, each below the one that called it.
    pub(crate) fn stack(
        &mut self,
        event: &StackEvent,
        frames: &mut FrameTree,
        output: &mut RecordOutput,
    ) {
        let mut innermost = None;
        if event.truncated {
            innermost = Some(special(innermost, Frame::OUTER, frames, output));
        }
        for frame in event.frames.iter().rev() {
            innermost = Some(match self.node(event.pid, *frame, innermost) {
                Some(node) => frames.place(node, output),
                None => special(innermost, Frame::UNREADABLE, frames, output),
            });
        }
        if let Some(frame) = innermost {
            let known = self.processes.entry(event.pid).or_default();
            known.stacks.push(event.id);
            self.innermost.insert(event.id, frame);
        }
    }

    /// The innermost frame of a stack that was met before.
    pub(crate) fn innermost(&mut self, stack: Option<StackId>) -> Option<FrameId> {
        let frame = self.innermost.get(&stack?).copied();
        self.lost += u64::from(frame.is_none());
        frame
    }

    /// A process ended or runs another program: what was met in it is no more.
    pub(crate) fn ended(&mut self, pid: u32) {
        self.ended.push(pid);
    }

    /// Every event that came with the end of a process was handled: it may be forgotten.
    pub(crate) fn forget_ended(&mut self) {
        for pid in self.ended.drain(..) {
            for stack in self.processes.remove(&pid).unwrap_or_default().stacks {
                self.innermost.remove(&stack);
            }
        }
    }

    /// Pauses whose stack never came.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    fn node(&self, pid: u32, frame: CapturedFrame, parent: Option<FrameId>) -> Option<FrameNode> {
        let code = self.processes.get(&pid)?.codes.get(&frame.code)?;
        Some(FrameNode {
            parent,
            function: Rc::clone(&code.function),
            file: Rc::clone(&code.file),
            line: code.object.frame_line(frame.offset),
        })
    }
}

fn special(
    parent: Option<FrameId>,
    function: &str,
    frames: &mut FrameTree,
    output: &mut RecordOutput,
) -> FrameId {
    let node = FrameNode {
        parent,
        function: frames.name(function),
        file: frames.name(""),
        line: None,
    };
    frames.place(node, output)
}

/// From what was read while it lived; what is cut off there, from the process, if it is still the same.
fn decode(event: &CodeEvent, layout: &FrameLayout) -> Option<CodeObject> {
    let copied = CodeObject::from_parts(
        event.first_line,
        &event.file_name,
        &event.function_name,
        &event.line_table,
        layout,
    )
    .ok();
    if copied.is_some() && event.line_table_length == Some(event.line_table.len() as u64) {
        return copied;
    }
    let whole = read(event.pid, event.code.address, layout).filter(|whole| {
        whole.first_line == event.first_line
            && copied.as_ref().is_none_or(|copied| {
                (&whole.file, &whole.function) == (&copied.file, &copied.function)
            })
    });
    whole.or(copied)
}

fn read(pid: u32, address: u64, layout: &FrameLayout) -> Option<CodeObject> {
    let memory = ProcessMemory::open(pid).ok()?;
    CodeObject::read(&memory, address, layout)
        .inspect_err(|error| tracing::debug!("process {pid}: {error}"))
        .ok()
}
