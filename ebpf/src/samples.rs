//! Samples of what recorded threads execute, by a program on a clock of each CPU, and their times off the CPU, by a
//! program at its switches.
//!
//! Owns the object of `bpf/sample.bpf.c`. Its findings arrive with the session's events.

use crate::attach::{LinkPlan, ProbeEnd};
use crate::error::Error;
use crate::event::EarlierWait;
use crate::link::{ProbeLink, written};
use crate::session::BpfSession;
use crate::support::AttachMethod;
use crate::wire::EarlierWaitWire;
use crate::{link, support};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, ProgramAttachType};
use skeleton::{SampleSkel, SampleSkelBuilder};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

crate::skeleton!(mod "sample");

/// The loaded program. Dropping it ends the samples.
pub struct SamplePrograms {
    // Declared, and so dropped, before the program that they run.
    links: Vec<Link>,
    launches: Vec<ProbeLink>,
    attach: AttachMethod,
    skeleton: SampleSkel<'static>,
}

impl SamplePrograms {
    /// Loads the program for a session with [`crate::SessionConfig::samples`]. `stack_depth`: frames of a
    /// stack, as there.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Map`].
    pub fn load(session: &BpfSession, stack_depth: u32) -> Result<Self, Error> {
        let shared = session.shared_maps()?;
        // Borrowed by the skeleton for its whole life: until gctrace ends.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = SampleSkelBuilder::default().open(storage).map_err(Error::Load)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.stack_depth = stack_depth.min(crate::MAX_STACK_DEPTH);
            rodata.has_loops = support::has_loops();
        }
        shared.lend(open.open_object_mut()).map_err(Error::Load)?;
        let attach = session.attach_kind();
        if attach == AttachMethod::Single {
            // The value 0, as in ordinary kprobe programs.
            open.progs.at_host_launch.set_attach_type(ProgramAttachType::CgroupInetIngress);
        }
        let skeleton = open.load().map_err(Error::Load)?;
        let switches = skeleton.progs.at_switch.attach().map_err(Error::Load)?;
        Ok(Self { links: vec![switches], launches: Vec::new(), attach, skeleton })
    }

    /// Takes the stack of each recorded thread that launches a function of the host. `functions`: file offsets of a
    /// CUDA driver's functions for such launches.
    ///
    /// # Errors
    /// [`Error::Attach`] with the kernel's error.
    pub fn attach_launches(&mut self, file: &Path, functions: &[u64]) -> Result<(), Error> {
        let mut plan = LinkPlan::default();
        functions.iter().for_each(|offset| plan.push(*offset, 0, None));
        let program = &self.skeleton.progs.at_host_launch;
        let linked = link::attach(self.attach, None, program, file, &plan, ProbeEnd::Entry);
        let linked = linked
            .map_err(|source| Error::Attach { file: file.to_owned(), source: source.into() })?;
        self.launches.extend(linked);
        Ok(())
    }

    /// Begins a wait for each thread of recorded processes that waits already, without a recorded switch.
    ///
    /// # Errors
    /// [`Error::Load`] if the kernel does not list its tasks.
    pub fn earlier_waits(&self) -> Result<Vec<EarlierWait>, Error> {
        let waits =
            written::<EarlierWaitWire>(&self.skeleton.progs.list_waits).map_err(Error::Load)?;
        let waits = waits.into_iter().map(|wait| EarlierWait {
            pid: wait.pid,
            tid: wait.tid,
            start_ns: wait.start_ns,
            thread_id: (wait.thread_id != 0).then_some(wait.thread_id),
        });
        Ok(waits.collect())
    }

    /// Takes a sample whenever `clock`, a perf event of one CPU with a frequency, ticks while a recorded
    /// thread runs there.
    ///
    /// # Errors
    /// [`Error::Load`] with the kernel's error.
    pub fn attach(&mut self, clock: OwnedFd) -> Result<(), Error> {
        let link = self.skeleton.progs.at_sample.attach_perf_event(clock.as_raw_fd());
        self.links.push(link.map_err(Error::Load)?);
        // The link closes it.
        std::mem::forget(clock);
        Ok(())
    }
}
