//! The trace of a recording, and the records written to it from any source.
//!
//! Owns the output, the tree of frames (each is written once for all sources and processes), the GPU samples, and the
//! choice between the two sources of a pause or a CUDA call.

use crate::clock;
use crate::record::call_sources::CallSources;
use crate::record::cells::CellNames;
use crate::record::cpu_waits::CpuWaits;
use crate::record::examination::Examination;
use crate::record::merge::{PauseMerger, ReadUntil, SourceTotals};
use crate::record::nvml::GpuSampling;
use crate::record::output::{RecordOutput, RecordSink};
use gctrace_ebpf::PauseEvent;
use gctrace_event::{Frame, FrameId, GcSettings, Pause, Record};
use std::collections::HashMap;
use std::rc::Rc;

/// The trace of a recording, shared by all sources: output, frames and merged pauses.
pub struct RecordingTrace {
    /// The trace file and the live view.
    pub output: RecordOutput,
    pub frames: FrameTree,
    /// The processes examined for Python.
    pub examination: Examination,
    /// The NVML sampling thread; `None` with `--nvml-hz 0` or if it did not start.
    pub gpus: Option<GpuSampling>,
    /// The source of a process's CUDA calls.
    pub calls: CallSources,
    /// Set if collections are recorded by probes and in-process.
    merge: Option<PauseMerger>,
    /// How long the threads that collect waited for a CPU.
    waits: CpuWaits,
}

impl RecordingTrace {
    /// `both`: pauses come from two sources.
    pub fn new(output: RecordOutput, both: bool, calls: CallSources) -> Self {
        Self {
            output,
            frames: FrameTree::default(),
            examination: Examination::default(),
            gpus: None,
            calls,
            merge: if both { Some(PauseMerger::default()) } else { None },
            waits: CpuWaits::default(),
        }
    }

    /// Writes a note about the whole recording, for the user and the reader of the trace.
    pub fn note(&mut self, sentence: &str) {
        tracing::warn!("{sentence}");
        let now_ns = clock::monotonic_ns();
        self.output.note(None, now_ns, sentence.to_owned());
    }

    /// A pause reported by the probes.
    pub fn probed(&mut self, event: &PauseEvent) {
        if let Some(thresholds) = event.thresholds {
            self.output.settings(GcSettings {
                pid: event.pause.pid,
                at_ns: event.pause.end_ns,
                enabled: event.enabled,
                thresholds,
                stack: None,
            });
        }
        self.pause(&event.pause);
    }

    /// A pause reported by a source ([`Pause::source`]).
    pub fn pause(&mut self, pause: &Pause) {
        self.waits.pause(pause);
        let Some(merge) = &mut self.merge else { return self.output.pause(pause) };
        if let Some(merged) = merge.take(pause) {
            self.output.pause(&merged);
        }
    }

    /// Pauses by source so far, if there are two sources.
    pub fn sources(&self) -> Option<SourceTotals> {
        self.merge.as_ref().map(PauseMerger::counts)
    }

    /// Both sources were read that far: writes pauses with an overdue other record.
    pub fn read_until(&mut self, read: ReadUntil) {
        for pause in self.merge.iter_mut().flat_map(|merge| merge.release(read)) {
            self.output.pause(&pause);
        }
    }

    /// The library lost records of collections of a process. Returns whether the probes may have
    /// them: then [`RecordingTrace::lost_by_both`] counts the rest.
    pub fn lost_in_process(&mut self, pid: u32, count: u64) -> bool {
        if let Some(merge) = &mut self.merge {
            merge.lost_in_process(pid, count);
        }
        self.merge.is_some()
    }

    /// Number of collections that neither of two sources recorded; `None` if there is one source.
    /// `lost_by_probes`: by process, the number that the probes did not record.
    pub fn lost_by_both(&self, lost_by_probes: &HashMap<u32, u64>) -> Option<u64> {
        let merge = self.merge.as_ref()?;
        Some(merge.lost_by_both(lost_by_probes))
    }

    /// To be called after every poll of all sources. Writes the records due by the clock.
    pub fn tick(&mut self) {
        if let Some(gpus) = &mut self.gpus {
            gpus.tick(&mut self.output);
        }
        self.waits.tick(clock::monotonic_ns(), &mut self.output);
        self.output.tick();
    }

    /// No more pauses will come: writes the waiting ones without their other half.
    pub fn finish(&mut self) {
        if let Some(gpus) = &mut self.gpus {
            gpus.tick(&mut self.output);
        }
        for pause in self.merge.iter_mut().flat_map(PauseMerger::finish) {
            self.output.pause(&pause);
        }
        let other = self.merge.as_ref().map(PauseMerger::of_other_clocks).cloned();
        for (pid, count) in other.unwrap_or_default() {
            self.note(&format!(
                "process {pid} has another clock than the kernel: of its pauses {count} that the library recorded \
                 are left out, and those of the probes count"
            ));
        }
    }
}

/// Every frame written to the trace so far, each identified by its caller, function, file and line.
#[derive(Default)]
pub struct FrameTree {
    tree: HashMap<FrameNode, FrameId>,
    names: HashMap<Rc<str>, Rc<str>>,
    cells: CellNames,
}

/// A frame, identified by its properties and its parent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FrameNode {
    /// The frame that called this one; `None` for the outermost.
    pub parent: Option<FrameId>,
    pub function: Rc<str>,
    /// Path of the source file as in `co_filename`: may be relative, or `<string>`.
    pub file: Rc<str>,
    /// Line that was running, counted from 1; `None` if the source gave none.
    pub line: Option<u32>,
}

impl FrameTree {
    /// The frame's id in the trace; writes the frame if it is new.
    pub fn place(&mut self, node: FrameNode, sink: &mut impl RecordSink) -> FrameId {
        if let Some(id) = self.tree.get(&node) {
            return *id;
        }
        let id = self.tree.len() as FrameId + 1;
        debug_assert!(id > 0, "invariant: memory ends before the ids of frames");
        sink.write(&Record::Frame(Frame {
            id,
            parent: node.parent,
            function: node.function.to_string(),
            file: node.file.to_string(),
            line: node.line,
        }));
        self.tree.insert(node, id);
        id
    }

    /// The shared copy of the name of a file of code, as the process `pid` has it; of a notebook's cell with its number,
    /// if that is known.
    pub fn file(&mut self, pid: u32, file: &str) -> Rc<str> {
        let numbered = self.cells.numbered(pid, file).map(str::to_owned);
        self.name(numbered.as_deref().unwrap_or(file))
    }

    /// The shared copy of a name.
    pub fn name(&mut self, name: &str) -> Rc<str> {
        if let Some(known) = self.names.get(name) {
            return Rc::clone(known);
        }
        let name: Rc<str> = Rc::from(name);
        self.names.insert(Rc::clone(&name), Rc::clone(&name));
        name
    }
}
