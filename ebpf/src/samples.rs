//! Samples of what recorded threads execute, by a program on a clock of each CPU, and their times off the CPU, by a
//! program at its switches.
//!
//! Owns the object of `bpf/sample.bpf.c`. Its findings arrive with the session's events.

use crate::attach::{LinkPlan, ProbeEnd};
use crate::decode::{loop_key, turns, waits_for};
use crate::error::Error;
use crate::event::{EarlierWait, LoopKey, StackId};
use crate::link::{ProbeLink, written};
use crate::session::BpfSession;
use crate::support::AttachMethod;
use crate::wire::{EarlierWaitWire, LoopKeyWire, LoopState};
use crate::{link, support};
use gctrace_event::Turns;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, ProgramAttachType};
use skeleton::{SampleSkel, SampleSkelBuilder};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use zerocopy::{FromBytes as _, IntoBytes as _};

crate::skeleton!(mod "sample");

/// All turns of a loop so far.
#[derive(Clone, Debug)]
pub struct LoopReading {
    /// The loop.
    pub key: LoopKey,
    /// Its counts; the interval and [`Turns::stack`] are left for the code that resolves frames.
    pub turns: Turns,
    /// The Python stack of its last wait; `None` if none was taken.
    pub stack: Option<StackId>,
}

/// The loaded program. Dropping it ends the samples.
pub struct SamplePrograms {
    // Declared, and so dropped, before the program that they run.
    links: Vec<Link>,
    /// Sees each system call of the machine, as long as there is a loop.
    system_calls: Option<Link>,
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
            rodata.long_turn_ns = gctrace_units::LONG_TURN_NS;
            rodata.long_pause_ns = gctrace_units::LONG_PAUSE_NS;
            rodata.turns_sent = gctrace_units::TURNS_RECORDED;
            rodata.turns_of_one_sent = gctrace_units::TURNS_OF_ONE_RECORDED;
            rodata.ns_of_one_sent = gctrace_units::NS_OF_ONE_RECORDED;
            for (number, reason) in (0..).zip(&mut rodata.reasons_of_calls) {
                // Not 0: the programs look at the first argument themselves.
                *reason = waits_for(number, 1) as u8;
            }
        }
        shared.lend(open.open_object_mut()).map_err(Error::Load)?;
        let attach = session.attach_kind();
        if attach == AttachMethod::Single {
            // The value 0, as in ordinary kprobe programs.
            open.progs.at_host_launch.set_attach_type(ProgramAttachType::CgroupInetIngress);
        }
        let skeleton = open.load().map_err(Error::Load)?;
        let switches = skeleton.progs.at_switch.attach().map_err(Error::Load)?;
        let wakings = skeleton.progs.at_waking.attach().map_err(Error::Load)?;
        let starts = skeleton.progs.at_thread_start.attach().map_err(Error::Load)?;
        let ends = skeleton.progs.at_thread_end.attach().map_err(Error::Load)?;
        let links = vec![switches, wakings, starts, ends];
        Ok(Self { links, system_calls: None, launches: Vec::new(), attach, skeleton })
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
            thread_id: if wait.thread_id != 0 { Some(wait.thread_id) } else { None },
        });
        Ok(waits.collect())
    }

    /// Counts turns between waits for a lock with this stack.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn takes_work(&self, stack: StackId) -> Result<(), Error> {
        let map = &self.skeleton.maps.work_stacks;
        map.update(&stack.to_ne_bytes(), &[1], MapFlags::ANY)
            .map_err(|source| Error::Map { map: "work_stacks", source })
    }

    /// Ends turns of loops at each entry of these system calls, whether they wait or not; at no others. With any, each
    /// system call of the machine runs a program.
    ///
    /// # Errors
    /// [`Error::Load`] with the kernel's error.
    pub fn look_at(&mut self, system_calls: &[i32]) -> Result<(), Error> {
        if let Some(globals) = self.skeleton.maps.bss_data.as_mut() {
            for (number, looks) in (0..).zip(&mut globals.looked_at) {
                *looks = system_calls.contains(&number).into();
            }
        }
        if system_calls.is_empty() {
            self.system_calls = None;
        } else if self.system_calls.is_none() {
            let link = self.skeleton.progs.at_system_call.attach().map_err(Error::Load)?;
            self.system_calls = Some(link);
        }
        Ok(())
    }

    /// All loops, with all turns of each.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn loops(&self) -> Result<Vec<LoopReading>, Error> {
        let map = &self.skeleton.maps.loops;
        let failed = |source| Error::Map { map: "loops", source };
        let mut all = Vec::new();
        for bytes in map.keys() {
            let Some(value) = map.lookup(&bytes, MapFlags::ANY).map_err(failed)? else { continue };
            let state = LoopState::read_from_bytes(&value);
            if let (Ok(key), Ok(state)) = (LoopKeyWire::read_from_bytes(&bytes), state) {
                all.push(LoopReading {
                    key: loop_key(&key),
                    turns: turns(&key, &state),
                    stack: if state.stack != 0 { Some(state.stack) } else { None },
                });
            }
        }
        Ok(all)
    }

    /// Makes room for other loops.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn forget_loop(&self, key: &LoopKey) -> Result<(), Error> {
        let key = LoopKeyWire {
            pid: key.pid,
            tid: key.tid,
            system_call: key.system_call,
            first_argument: key.place.argument,
        };
        let map = &self.skeleton.maps.loops;
        map.delete(key.as_bytes()).map_err(|source| Error::Map { map: "loops", source })
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
