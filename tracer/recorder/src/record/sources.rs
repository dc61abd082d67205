//! The sources of a recording: the kernel's probes, and the injected library, in-process.
//!
//! Owns the order of their polls. The trace has the facts that one source must know of the other: the pauses of both,
//! the examined processes, and the source of a process's CUDA calls.

use crate::launch::CommandEnd;
use crate::record::Source;
use crate::record::inprocess::InProcessSource;
use crate::record::kernel::KernelSource;
use crate::record::losses::RecordingLosses;
use crate::record::merge::ReadUntil;
use crate::record::trace::RecordingTrace;
use gctrace_event::TraceEnd;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long to wait for the events of programs that are stopped when the recording ends: they
/// arrive within microseconds.
const RELEASE: Duration = Duration::from_millis(250);

/// The sources of one recording; at least one.
pub(super) struct RecordingSources {
    /// `None` if everything is recorded in-process.
    pub kernel: Option<KernelSource>,
    /// `None` if nothing is recorded in-process.
    pub inprocess: Option<InProcessSource>,
}

impl RecordingSources {
    /// The kernel comes first. A call that both report is then known to be CUPTI's: its library is
    /// read between the poll of the probes and the handling of their events.
    fn all(&mut self) -> impl Iterator<Item = &mut dyn Source> {
        let kernel = self.kernel.as_mut().map(|source| source as &mut dyn Source);
        let inprocess = self.inprocess.as_mut();
        kernel.into_iter().chain(inprocess.map(|source| source as &mut dyn Source))
    }

    /// Drains and handles the events of all sources.
    pub(super) fn poll(&mut self, trace: &mut RecordingTrace) -> anyhow::Result<()> {
        for source in self.all() {
            source.poll(trace)?;
        }
        for source in self.all() {
            source.handle(trace);
        }
        if let (Some(kernel), Some(inprocess)) = (&self.kernel, &self.inprocess) {
            trace.read_until(ReadUntil {
                probes_ns: kernel.read_until_ns(),
                injected_ns: inprocess.read_until_ns(),
            });
        }
        Ok(())
    }

    /// Does the work due by the clock.
    pub(super) fn tick(&mut self, trace: &mut RecordingTrace) {
        for source in self.all() {
            source.tick(trace);
        }
    }

    /// Descriptors that are readable when events wait.
    pub(super) fn wake_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let kernel = self.kernel.as_ref().map(Source::wake_descriptor);
        let inprocess = self.inprocess.as_ref().map(Source::wake_descriptor);
        kernel.into_iter().chain(inprocess)
    }

    /// Pids of living processes that run Python: as the probes see them, or, without probes, those
    /// that handed over a ring.
    pub(super) fn pids(&self) -> Vec<u32> {
        match (&self.kernel, &self.inprocess) {
            (Some(kernel), _) => kernel.pids(),
            (None, Some(inprocess)) => inprocess.pids(),
            (None, None) => Vec::new(),
        }
    }

    /// Losses, hits and cost so far.
    ///
    /// # Errors
    /// The kernel does not report the counts.
    pub(super) fn tally(&mut self, trace: &RecordingTrace) -> anyhow::Result<RecordingLosses> {
        let examined = trace.examination.result(self.kernel.is_some());
        let mut losses =
            RecordingLosses { unexamined: examined.unexamined(), ..RecordingLosses::default() };
        for source in self.all() {
            source.tally(trace, &mut losses)?;
        }
        Ok(losses)
    }

    /// The recording ends: from here on no program is stopped, stopped ones are resumed, and no
    /// allocations are counted.
    pub(super) fn stop(&mut self, trace: &mut RecordingTrace) -> anyhow::Result<()> {
        let resumed = self.resume_stopped(trace);
        if let Some(kernel) = &mut self.kernel {
            kernel.end_windows();
        }
        resumed
    }

    fn resume_stopped(&mut self, trace: &mut RecordingTrace) -> anyhow::Result<()> {
        if let Some(kernel) = &mut self.kernel {
            kernel.end_stops();
        }
        let begin = Instant::now();
        loop {
            self.poll(trace)?;
            let any = if let Some(kernel) = &self.kernel { kernel.stopped.resume() } else { false };
            if !any || begin.elapsed() >= RELEASE {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends all sources, the library's first: from its records follow the calls of the probes to write, and the
    /// collections that no probe saw. Returns the number of recorded processes that still run.
    ///
    /// # Errors
    /// The kernel does not report the losses.
    pub(super) fn finish(
        mut self,
        trace: &mut RecordingTrace,
        end: &mut TraceEnd,
        ended: Option<CommandEnd>,
    ) -> anyhow::Result<usize> {
        let mut alive = 0;
        if let Some(inprocess) = self.inprocess.take() {
            alive = inprocess.finish(trace, end, ended)?;
            // The probes' records of the pauses that it read last.
            self.poll(trace)?;
        }
        end.processes = Some(trace.examination.result(self.kernel.is_some()));
        trace.finish();
        if let Some(kernel) = self.kernel {
            alive = kernel.finish(trace, end, ended)?;
        }
        Ok(alive)
    }
}
