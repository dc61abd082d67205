//! Probes in the recorded process alone: no other process of the machine pays for them.
//!
//! The kernel can limit a link to one process, but then its children have no probes either, and a
//! link for each of them would make every fork wait for user space. So there are two cases, chosen
//! by the number of recorded processes: one is probed alone; before a second one runs, the probes are
//! placed in every process.

use super::{Attachment, BpfSession};
use crate::attach::PlannedPoint;
use crate::error::Error;
use gctrace_abi::ProbePointKind;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Where probes are, as long as there is one recorded process.
#[derive(Debug)]
pub(super) struct ProbedAlone {
    /// The kernel can, and nothing would be missed.
    is_possible: bool,
    follows_children: bool,
    /// The process with links limited to it; until it ends.
    pid: Option<u32>,
    /// Probes are placed in this process alone now.
    is_on: bool,
    files: Vec<FileAlone>,
}

/// A file with probes in one process.
#[derive(Debug)]
struct FileAlone {
    file: File,
    points: Vec<PlannedPoint>,
    /// Index of the first point in that process, and of the first in all others.
    first: u32,
    elsewhere: Option<u32>,
}

impl ProbedAlone {
    pub(super) fn new(is_possible: bool, follows_children: bool) -> Self {
        Self { is_possible, follows_children, pid: None, is_on: false, files: Vec::new() }
    }

    /// The only process with probes now.
    pub(super) fn process(&self) -> Option<u32> {
        if self.is_on { self.pid } else { None }
    }
}

impl BpfSession {
    /// Whether [`BpfSession::probe_only`] has an effect.
    pub fn may_probe_one(&self) -> bool {
        self.alone.is_possible
    }

    /// Places probes in this process alone from now on, if [`BpfSession::may_probe_one`]. To be called
    /// once, before any other process is recorded.
    pub fn probe_only(&mut self, pid: u32) {
        if self.alone.is_possible {
            self.alone.pid = Some(pid);
            self.set_alone(true);
        }
    }

    /// Whether [`BpfSession::probe_everywhere`] is due at this exec: it is not the first program of the
    /// process that is probed alone.
    pub fn ends_alone(&self, pid: u32, by_thread: bool, is_first: bool) -> bool {
        let Some(alone) = self.alone.process() else { return false };
        if pid == alone { by_thread || self.alone.follows_children && !is_first } else { true }
    }

    /// Places probes in every process from now on. Probes now in one process alone are also placed in all others, by
    /// `attach` (file, probed functions, the process without them); returns these new attachments.
    pub(crate) fn place_everywhere(
        &mut self,
        attach: impl Fn(&mut Self, &Path, &[PlannedPoint], u32) -> Result<Attachment, Error>,
    ) -> Result<Vec<Attachment>, Error> {
        let Some(pid) = self.alone.process() else { return Ok(Vec::new()) };
        self.alone.is_on = false;
        let mut files = std::mem::take(&mut self.alone.files);
        let placed = files.iter_mut().map(|placed| {
            let path = PathBuf::from(format!("/proc/self/fd/{}", placed.file.as_raw_fd()));
            placed.elsewhere = Some(self.points);
            attach(self, &path, &placed.points, pid)
        });
        let placed = placed.collect();
        self.alone.files = files;
        self.set_alone(false);
        placed
    }

    /// Places probes in every process from now on, and leaves those placed so far as they are.
    pub fn end_alone(&mut self) {
        self.set_alone(false);
    }

    /// The only probed process has ended, or a thread other than its main thread executed a program. The kernel
    /// recognizes the process by its main thread: a process with its former pid is an ordinary one now.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn was_alone(&mut self, pid: u32) -> Result<(), Error> {
        if self.alone.pid != Some(pid) {
            return Ok(());
        }
        for placed in std::mem::take(&mut self.alone.files) {
            for (at, point) in (0..).zip(&placed.points) {
                // First: a hit counts once at most.
                self.set_point(placed.first + at, point, Some(pid))?;
                if let Some(elsewhere) = placed.elsewhere {
                    self.set_point(elsewhere + at, point, None)?;
                }
            }
        }
        self.alone.pid = None;
        self.set_alone(false);
        Ok(())
    }

    /// Remembers points placed in one process alone.
    pub(crate) fn remember_alone(
        &mut self,
        path: &Path,
        points: &[PlannedPoint],
        first: u32,
    ) -> Result<(), Error> {
        // An entry point is probed for a program that has not reached it.
        let is_entry = points.iter().any(|point| point.kind == ProbePointKind::ProgramEntry);
        if self.alone.process().is_none() || is_entry {
            return Ok(());
        }
        let file = File::open(path)
            .map_err(|source| Error::Attach { file: path.to_owned(), source: source.into() })?;
        let points = points.to_vec();
        self.alone.files.push(FileAlone { file, points, first, elsewhere: None });
        Ok(())
    }

    /// The only process with probes now.
    pub(crate) fn probed_alone(&self) -> Option<u32> {
        self.alone.process()
    }

    fn set_alone(&mut self, is_on: bool) {
        self.alone.is_on = is_on;
        if let Some(bss) = self.skeleton.maps.bss_data.as_mut() {
            bss.probed_alone = self.alone.pid.unwrap_or(0);
            bss.others_wait = is_on && self.alone.follows_children;
        }
    }
}
