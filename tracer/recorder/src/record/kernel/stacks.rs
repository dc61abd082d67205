//! Resolves stacks: from code objects and instructions to files, functions and lines.
//!
//! Owns the code objects and stacks seen so far. Code objects arrive with their names and lines, read while they were
//! alive; only parts that did not fit or were not resident are read from the process here. The tree of frames is in
//! `frames.rs`.

use crate::record::output::RecordOutput;
use crate::record::trace::{FrameNode, FrameTree};
use gctrace_cpython::frames::walk;
use gctrace_cpython::{CodeObject, FrameLayout};
use gctrace_ebpf::{CapturedFrame, CodeEvent, CodeId, StackEvent, StackId};
use gctrace_event::{Frame, FrameId, takes_work};
use gctrace_probes::ProcessMemory;
use std::collections::HashMap;
use std::rc::Rc;

/// The stacks and code objects of all recorded processes.
#[derive(Default)]
pub(crate) struct StackResolver {
    processes: HashMap<u32, ProcessCode>,
    /// Ids are unique across processes: a child forked inside a pause reports its parent's.
    innermost: HashMap<StackId, FrameId>,
    /// Processes that exited since the last drain: their last pauses may still be in the ring.
    ended: Vec<u32>,
    /// Pauses with a stack that never arrived.
    lost: u64,
}

/// The code objects of one process.
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
    /// Stores a code object that was seen for the first time.
    pub(crate) fn code(
        &mut self,
        event: &CodeEvent,
        layout: Option<&FrameLayout>,
        frames: &mut FrameTree,
    ) {
        let Some(layout) = layout else { return };
        let Some(object) = decode(event, layout) else { return };
        let code = ResolvedCode {
            file: frames.file(event.pid, &object.file),
            function: frames.name(&object.function),
            object,
        };
        let known = self.processes.entry(event.pid).or_default();
        known.codes.insert(event.code, code);
    }

    /// Writes the frames of a new stack, each below its caller.
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
        if event.unreadable {
            innermost = Some(special(innermost, Frame::UNREADABLE, frames, output));
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

    /// Whether a thread with this stack waits for work, if it waits for a lock.
    pub(crate) fn takes_work(&self, event: &StackEvent) -> bool {
        let Some(process) = self.processes.get(&event.pid) else { return false };
        let codes = event.frames.iter().map_while(|frame| process.codes.get(&frame.code));
        takes_work(codes.map(|code| (&*code.file, &*code.function)))
    }

    /// The innermost frame of the stack of a thread that waits, read from its memory; at most `depth` frames. It
    /// holds if the thread still waits afterwards.
    pub(crate) fn waiting(
        (pid, mut memory): (u32, &ProcessMemory),
        thread: u64,
        (layout, depth): (&FrameLayout, usize),
        frames: &mut FrameTree,
        output: &mut RecordOutput,
    ) -> Option<FrameId> {
        let mut walked = walk(&mut memory, thread, &layout.stack, depth + 1)?;
        let is_cut = walked.len() > depth;
        walked.truncate(depth);
        let mut innermost = is_cut.then(|| special(None, Frame::OUTER, frames, output));
        for frame in walked.iter().rev() {
            innermost = Some(match CodeObject::read(&mut memory, frame.code, layout) {
                Some(code) => {
                    let node = FrameNode {
                        parent: innermost,
                        function: frames.name(&code.function),
                        file: frames.file(pid, &code.file),
                        line: code.frame_line(frame.byte_offset),
                    };
                    frames.place(node, output)
                }
                None => special(innermost, Frame::UNREADABLE, frames, output),
            });
        }
        innermost
    }

    /// The innermost frame of a known stack.
    pub(crate) fn innermost(&mut self, stack: Option<StackId>) -> Option<FrameId> {
        let frame = self.innermost.get(&stack?).copied();
        self.lost += u64::from(frame.is_none());
        frame
    }

    /// The same of a stack whose event may be on its way.
    pub(crate) fn innermost_so_far(&self, stack: Option<StackId>) -> Option<FrameId> {
        self.innermost.get(&stack?).copied()
    }

    /// The process exited or executed another program: its code objects are gone.
    pub(crate) fn ended(&mut self, pid: u32) {
        self.ended.push(pid);
    }

    /// Forgets exited processes, once every event up to their exit was handled.
    pub(crate) fn forget_ended(&mut self) {
        for pid in self.ended.drain(..) {
            let process = self.processes.remove(&pid).into_iter();
            for stack in process.flat_map(|process| process.stacks) {
                self.innermost.remove(&stack);
            }
        }
    }

    /// Number of pauses with a stack that was never received, and so is unknown.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Function, file and line of a known code object, at this instruction of it.
    pub(crate) fn place(&self, pid: u32, frame: CapturedFrame) -> Option<FrameNode> {
        self.node(pid, frame, None)
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
    let node =
        FrameNode { parent, function: frames.name(function), file: frames.name(""), line: None };
    frames.place(node, output)
}

/// Decodes the parts read while the object was alive; reads cut-off parts from the process, if the object is still the
/// same.
fn decode(event: &CodeEvent, layout: &FrameLayout) -> Option<CodeObject> {
    let copied = CodeObject::from_parts(
        event.first_line,
        &event.file_name,
        &event.function_name,
        &event.line_table,
        layout,
    );
    if copied.is_some() && event.line_table_length == Some(event.line_table.len() as u64) {
        return copied;
    }
    let Some(whole) = read(event.pid, event.code.address, layout) else { return copied };
    if whole.first_line != event.first_line {
        return copied;
    }
    match &copied {
        Some(part) if (&whole.file, &whole.function) != (&part.file, &part.function) => copied,
        _ => Some(whole),
    }
}

fn read(pid: u32, address: u64, layout: &FrameLayout) -> Option<CodeObject> {
    let memory = ProcessMemory::open(pid).ok()?;
    let code = CodeObject::read(&mut &memory, address, layout);
    if code.is_none() {
        tracing::debug!("process {pid}: no code object can be read at {address:#x}");
    }
    code
}
