//! What collections free: a probe where the collector enters the loop over its garbage.
//!
//! Owns the object of `bpf/garbage.bpf.c`. What it finds arrives with the session's events.

use crate::attach::LinkPlan;
use crate::error::Error;
use crate::link;
use crate::session::Attachment;
use crate::session::BpfSession;
use crate::support;
use crate::support::AttachMethod;
use libbpf_rs::Link;
use libbpf_rs::ProgramAttachType;
use libbpf_rs::skel::OpenSkel as _;
use libbpf_rs::skel::SkelBuilder as _;
use skeleton::GarbageSkel;
use skeleton::GarbageSkelBuilder;
use std::mem::MaybeUninit;
use std::path::Path;

mod skeleton {
    #![allow(
        warnings,
        clippy::all,
        clippy::allow_attributes,
        clippy::undocumented_unsafe_blocks,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "generated"
    )]
    include!(concat!(env!("OUT_DIR"), "/garbage.skel.rs"));
}

/// The loaded programs; nothing is probed until [`GarbagePrograms::attach`].
pub struct GarbagePrograms {
    _at_exit: Link,
    attach: AttachMethod,
    skeleton: GarbageSkel<'static>,
}

impl GarbagePrograms {
    /// Loads the programs. `budget`: share of each
    /// process's CPU time that examining its garbage may cost; from 1 on all garbage is examined.
    ///
    /// # Errors
    /// [`Error::NoLoops`] before Linux 5.17; [`Error::Load`], [`Error::Map`], [`Error::Tracepoint`].
    pub fn load(session: &BpfSession, budget: f64) -> Result<Self, Error> {
        if !support::has_loops() {
            return Err(Error::NoLoops);
        }
        let shared = session.shared_maps()?;
        let attach = session.attach_kind();
        // Borrowed by the skeleton for its whole life: until gctrace ends.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = GarbageSkelBuilder::default()
            .open(storage)
            .map_err(Error::Load)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            // Between 0 and a million: saturates, and NaN is 0.
            rodata.garbage_budget_ppm = (budget * 1e6).round() as u64;
        }
        shared.lend(open.open_object_mut()).map_err(Error::Load)?;
        if attach == AttachMethod::Single {
            // The value 0, which ordinary kprobe programs have.
            let program = &mut open.progs.at_garbage;
            program.set_attach_type(ProgramAttachType::CgroupInetIngress);
        }
        let skeleton = open.load().map_err(Error::Load)?;
        let tracepoint = "sched_process_exit";
        let at_exit = skeleton
            .progs
            .on_thread_exit
            .attach_raw_tracepoint(tracepoint)
            .map_err(|source| Error::Tracepoint { tracepoint, source })?;
        Ok(Self {
            _at_exit: at_exit,
            attach,
            skeleton,
        })
    }

    /// Places the probe in a file, at this offset. `point`: index of the point in the session, whose
    /// layout is that of the file ([`BpfSession::add_point`]).
    ///
    /// # Errors
    /// [`Error::Attach`] with the kernel's error.
    pub fn attach(&mut self, file: &Path, offset: u64, point: u32) -> Result<Attachment, Error> {
        let mut plan = LinkPlan::default();
        plan.push(offset, point.into(), None);
        let program = &self.skeleton.progs.at_garbage;
        let links = link::attach(self.attach, program, file, &plan, false);
        links.map(Attachment::new).map_err(|source| Error::Attach {
            file: file.to_owned(),
            source: source.into(),
        })
    }
}
