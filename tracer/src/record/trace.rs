//! The trace of a recording and what goes into it whatever the source.
//!
//! Owns the file, the tree of frames, the samples of GPUs, and who of two sources tells of a pause.

use crate::record::clock;
use crate::record::examination::Examination;
use crate::record::frames::FrameTree;
use crate::record::merge::PauseMerger;
use crate::record::merge::SourceTotals;
use crate::record::nvml::GpuSampling;
use crate::record::output::RecordOutput;
use gctrace_ebpf::PauseEvent;
use gctrace_event::GcSettings;
use gctrace_event::Pause;

/// Where everything is written.
pub(crate) struct RecordingTrace {
    /// The file.
    pub output: RecordOutput,
    /// Python frames.
    pub frames: FrameTree,
    /// Which processes were looked into for Python.
    pub examination: Examination,
    /// How the GPUs do, unless `--nvml-hz 0`.
    pub gpus: Option<GpuSampling>,
    /// Where collections are seen by probes and from within.
    merge: Option<PauseMerger>,
}

impl RecordingTrace {
    /// `both`: pauses come from two sources.
    pub(crate) fn new(output: RecordOutput, both: bool) -> Self {
        Self {
            output,
            frames: FrameTree::default(),
            examination: Examination::default(),
            gpus: None,
            merge: both.then(PauseMerger::default),
        }
    }

    /// Something that user and reader should know about the whole recording.
    pub(crate) fn note(&mut self, sentence: &str) {
        tracing::warn!("{sentence}");
        let now_ns = clock::monotonic_ns();
        self.output.note(None, now_ns, sentence.to_owned());
    }

    /// The probes tell of a pause.
    pub(crate) fn probed(&mut self, event: &PauseEvent) {
        if let Some(thresholds) = event.thresholds {
            self.output.settings(GcSettings {
                pid: event.pause.pid,
                at_ns: event.pause.end_ns,
                enabled: event.enabled,
                thresholds,
            });
        }
        self.pause(&event.pause);
    }

    /// A source tells of a pause ([`Pause::source`]).
    pub(crate) fn pause(&mut self, pause: &Pause) {
        let Some(merge) = &mut self.merge else {
            return self.output.pause(pause);
        };
        if let Some(merged) = merge.take(pause) {
            self.output.pause(&merged);
        }
    }

    /// Pauses by who saw them so far, where there are two sources.
    pub(crate) fn sources(&self) -> Option<SourceTotals> {
        self.merge.as_ref().map(PauseMerger::counts)
    }

    /// All sources were read once. Writes what is due by the clock.
    pub(crate) fn tick(&mut self) {
        for pause in self.merge.iter_mut().flat_map(PauseMerger::next_round) {
            self.output.pause(&pause);
        }
        if let Some(gpus) = &mut self.gpus {
            gpus.tick(&mut self.output);
        }
        self.output.tick();
    }

    /// Nothing more comes: what waits for its other half is written as it is.
    pub(crate) fn finish(&mut self) -> Option<SourceTotals> {
        if let Some(gpus) = &mut self.gpus {
            gpus.tick(&mut self.output);
        }
        let mut merge = self.merge.take()?;
        for pause in merge.finish() {
            self.output.pause(&pause);
        }
        Some(merge.counts())
    }
}
