//! What collections free: a probe where the collector enters the loop over its garbage.
//!
//! Owns the object of `bpf/garbage.bpf.c`. Its findings arrive with the session's events.

use crate::attach::{LinkPlan, PlannedPoint, ProbeEnd};
use crate::error::Error;
use crate::session::{Attachment, BpfSession};
use crate::support::AttachMethod;
use crate::{link, support};
use gctrace_abi::ProbePointKind;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, ProgramAttachType};
use skeleton::{GarbageSkel, GarbageSkelBuilder};
use std::mem::MaybeUninit;
use std::path::Path;

crate::skeleton!(mod "garbage");

/// The loaded programs; nothing is probed until [`GarbagePrograms::attach`].
pub struct GarbagePrograms {
    attach: AttachMethod,
    skeleton: GarbageSkel<'static>,
}

/// Number of lists that can be examined at the same time, 15 KiB each: the kernel may preempt a
/// thread that examines one, so a few for each CPU.
fn walks() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(4).clamp(32, 512)
}

impl GarbagePrograms {
    /// Loads the programs. `budget`: share of each
    /// process's CPU time that examining its garbage may cost; from 1 on all garbage is examined.
    ///
    /// # Errors
    /// [`Error::NoLoops`] before Linux 5.17; [`Error::Load`], [`Error::Map`].
    pub fn load(session: &BpfSession, budget: f64) -> Result<Self, Error> {
        if !support::has_loops() {
            return Err(Error::NoLoops);
        }
        let shared = session.shared_maps()?;
        let attach = session.attach_kind();
        // Borrowed by the skeleton for its whole life: until gctrace ends.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = GarbageSkelBuilder::default().open(storage).map_err(Error::Load)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            // Between 0 and a million: saturates, and NaN is 0.
            rodata.garbage_budget_ppm = (budget * 1e6).round() as u64;
        }
        shared.lend(open.open_object_mut()).map_err(Error::Load)?;
        if attach == AttachMethod::Single {
            // The value 0, as in ordinary kprobe programs.
            let program = &mut open.progs.at_garbage;
            program.set_attach_type(ProgramAttachType::CgroupInetIngress);
        }
        let walks = walks();
        for map in [&mut open.maps.garbage_walks, &mut open.maps.free_walks] {
            map.set_max_entries(walks).map_err(Error::Load)?;
        }
        let skeleton = open.load().map_err(Error::Load)?;
        for index in 0..walks {
            let free = &skeleton.maps.free_walks;
            free.update(&[], &index.to_ne_bytes(), MapFlags::ANY)
                .map_err(|source| Error::Map { map: "free_walks", source })?;
        }
        Ok(Self { attach, skeleton })
    }

    /// Places the probe in a file, in the same processes as the session's probes.
    ///
    /// # Errors
    /// [`Error::Attach`] with the kernel's error; [`Error::TooMany`].
    pub fn attach(
        &self,
        session: &mut BpfSession,
        file: &Path,
        point: &PlannedPoint,
    ) -> Result<Attachment, Error> {
        let index = session.next_point();
        let attachment = self.attach_except(session, file, point, None)?;
        session.remember_alone(file, std::slice::from_ref(point), index)?;
        Ok(attachment)
    }

    /// `except`: hits of the process with this id are ignored.
    fn attach_except(
        &self,
        session: &mut BpfSession,
        file: &Path,
        point: &PlannedPoint,
        except: Option<u32>,
    ) -> Result<Attachment, Error> {
        let index = session.add_point(point, except)?;
        let mut plan = LinkPlan::default();
        if let Some(offset) = point.entry {
            plan.push(offset, index.into(), None);
        }
        let program = &self.skeleton.progs.at_garbage;
        let only = session.probed_alone();
        let links = link::attach(self.attach, only, program, file, &plan, ProbeEnd::Entry);
        links
            .map(Attachment::new)
            .map_err(|source| Error::Attach { file: file.to_owned(), source: source.into() })
    }
}

impl BpfSession {
    /// Places probes in every process from now on. Probes now in one process alone are also placed in all others;
    /// returns these new attachments. `garbage`: the garbage programs, if they are loaded; they may own some of these
    /// probes.
    ///
    /// # Errors
    /// [`Error::Attach`] with the kernel's error: other processes have no probes in that file.
    pub fn probe_everywhere(
        &mut self,
        garbage: Option<&GarbagePrograms>,
    ) -> Result<Vec<Attachment>, Error> {
        self.place_everywhere(|session, file, points, pid| match (garbage, points) {
            (Some(garbage), [point]) if point.kind == ProbePointKind::Garbage => {
                garbage.attach_except(session, file, point, Some(pid))
            }
            (_, points) => session.attach_points(file, points, Some(pid)),
        })
    }
}
