//! The loaded programs: attach, follow, poll, count.

mod alone;
mod counters;
mod shared;
mod totals;
mod waits;

pub use shared::SharedMaps;
pub use totals::{GarbageCounts, ProgramCounts, SampleCounts};

use crate::attach::{PlannedPoint, ProbeEnd, plan_links};
use crate::counts::CounterSet;
use crate::decode::decode;
use crate::error::Error;
use crate::event::KernelEvent;
use crate::layout::layout;
use crate::link;
use crate::link::ProbeLink;
use crate::release::StoppedProcesses;
use crate::support::{AttachMethod, KernelSupport, per_cpu_sum, room_for_rings};
use crate::wire::skeleton::{GctraceSkel, GctraceSkelBuilder};
use crate::wire::{FileKey, FollowedProcess, LayoutWire, MAX_LAYOUTS, MAX_POINTS};
use gctrace_cpython::{CollectorLayout, FrameLayout, ObjectLayout};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, OpenObject, ProgramAttachType, ProgramType, RingBuffer,
    RingBufferBuilder,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use zerocopy::IntoBytes as _;

/// Options for loading a session; they cannot be changed afterwards.
#[derive(Clone, Copy, Debug)]
pub struct SessionConfig {
    /// Whether to record the children of recorded processes.
    pub follow_children: bool,
    /// Size of the ring buffer for pauses in bytes: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Number of Python frames recorded at the start of a pause, up to [`crate::MAX_STACK_DEPTH`];
    /// 0: none.
    pub stack_depth: u32,
    /// Performance counters to record of pauses and processes; none in the default set.
    pub counters: CounterSet,
    /// Whether samples are to be taken ([`crate::SamplePrograms`]).
    pub samples: bool,
}

/// The loaded programs. Dropping it detaches everything.
pub struct BpfSession {
    // Declared, and so dropped, before the programs it reads from.
    rings: RingBuffer<'static>,
    batch: Rc<RefCell<Vec<KernelEvent>>>,
    _tracepoints: Vec<Link>,
    pub(crate) arena_links: Vec<ProbeLink>,
    method: AttachMethod,
    /// The kernel can limit a link to one process.
    filters_processes: bool,
    alone: alone::ProbedAlone,
    points: u32,
    layouts: u32,
    counter_set: CounterSet,
    samples: bool,
    pub(crate) skeleton: GctraceSkel<'static>,
}

/// The probes of one file. Dropping it detaches them; [`detach`] does so for many at once.
#[derive(Debug)]
#[must_use = "dropping it detaches the probes"]
pub struct Attachment {
    links: Vec<ProbeLink>,
}

impl Attachment {
    pub(crate) fn new(links: Vec<ProbeLink>) -> Self {
        Self { links }
    }
}

/// Detaches the probes of many files. The kernel waits for a grace period for each link (about 45
/// ms); waiting for all of them in parallel takes no longer than for one.
pub fn detach(attachments: impl IntoIterator<Item = Attachment>) {
    // `uprobe_unregister_sync`: no program may run in a probe after its memory is freed.
    // https://github.com/torvalds/linux/blob/v6.13/kernel/events/uprobes.c
    std::thread::scope(|scope| {
        for link in attachments.into_iter().flat_map(|attachment| attachment.links) {
            // If no thread can be created, the closure is dropped here, and its link with it.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(link));
        }
    });
}

impl BpfSession {
    /// Loads the programs and attaches the tracepoints; nothing is recorded yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kernel lacks something, [`Error::Load`] without privileges.
    pub fn open(config: SessionConfig, support: &KernelSupport) -> Result<Self, Error> {
        if config.ring_bytes < 4096 || !config.ring_bytes.is_power_of_two() {
            return Err(Error::RingSize(config.ring_bytes));
        }
        if let Some(refusal) = support.refusal() {
            return Err(refusal);
        }
        // Only for a process that is probed alone.
        let stops_children = config.follow_children && support.filters(true);
        let skeleton = load(config, support, stops_children)?;
        let tracepoints = attach_tracepoints(&skeleton, stops_children)?;
        let batch = Rc::new(RefCell::new(Vec::new()));
        room_for_rings(config.ring_bytes)
            .map_err(|source| Error::NoRoom { bytes: config.ring_bytes, source })?;
        let rings = rings(&skeleton, &batch).map_err(Error::Load)?;
        Ok(Self {
            rings,
            batch,
            _tracepoints: tracepoints,
            arena_links: Vec::new(),
            method: support.attach(),
            filters_processes: support.process_filter,
            alone: alone::ProbedAlone::new(
                support.filters(config.follow_children),
                config.follow_children,
            ),
            points: 0,
            layouts: 0,
            counter_set: config.counters,
            samples: config.samples,
            skeleton,
        })
    }

    /// Records children of this process from their fork on, until called with `false`.
    pub fn record_own_children(&mut self, yes: bool) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_mut() {
            bss.launcher_pid = if yes { std::process::id() } else { 0 };
        }
    }

    /// Until when programs may be stopped, in nanoseconds of CLOCK_MONOTONIC; 0: not any more. None
    /// are stopped before the first call. A process that is being stopped during a call is in
    /// [`StoppedProcesses`], and its event follows.
    pub fn may_stop_until(&mut self, at_ns: u64) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_mut() {
            bss.stop_until_ns = at_ns;
        }
    }

    /// Records a process that is already running.
    ///
    /// # Errors
    /// [`Error::Map`] if there are too many.
    pub fn follow(&self, pid: u32) -> Result<(), Error> {
        update(
            &self.skeleton.maps.followed,
            "followed",
            &pid.to_ne_bytes(),
            FollowedProcess { incarnation: 1, ..FollowedProcess::default() }.as_bytes(),
        )
    }

    /// Where the interpreter of a recorded process is: `runtime` is the address of `_PyRuntime`, `layout` from
    /// [`BpfSession::add_layout`]. Samples need it. The first probe that fires stores it too, but in a running process
    /// that may be late.
    pub fn note_interpreter(&self, pid: u32, layout: u32, runtime: u64) {
        let (map, key) = (&self.skeleton.maps.followed, pid.to_ne_bytes());
        // As long as none fired, no program changes the entry.
        if let Ok(Some(bytes)) = map.lookup(&key, MapFlags::ANY)
            && let Some(known) = crate::wire::read::<FollowedProcess>(&bytes)
            && self.samples
            && known.runtime == 0
        {
            let process = FollowedProcess { layout, runtime, ..known };
            let _ = map.update(&key, process.as_bytes(), MapFlags::EXIST);
        }
    }

    /// The address of `_PyRuntime` of a recorded process; `None` while it is unknown.
    pub fn runtime(&self, pid: u32) -> Option<u64> {
        let known =
            self.skeleton.maps.followed.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??;
        let known = crate::wire::read::<FollowedProcess>(&known)?;
        if known.runtime != 0 { Some(known.runtime) } else { None }
    }

    /// Stops recording a process; does nothing if it is not recorded.
    pub fn unfollow(&self, pid: u32) {
        let _ = self.skeleton.maps.followed.delete(&pid.to_ne_bytes());
    }

    /// Programs of this file are no longer stopped at exec: they were examined.
    ///
    /// # Errors
    /// [`Error::Map`] if there are too many.
    pub fn mark_known(&self, file: FileKey) -> Result<(), Error> {
        update(&self.skeleton.maps.known_files, "known_files", file.as_bytes(), &1u32.to_ne_bytes())
    }

    /// The stopped processes that wait for their probes.
    ///
    /// # Errors
    /// [`Error::Map`] if the descriptor cannot be duplicated.
    pub fn stopped(&self) -> Result<StoppedProcesses, Error> {
        MapHandle::try_from(&self.skeleton.maps.stopped)
            .map(StoppedProcesses::new)
            .map_err(|source| Error::Map { map: "stopped", source })
    }

    /// Registers the layout of a build; returns its index for [`PlannedPoint::layout`]. Without
    /// `collector` pauses are timed and nothing is read, without `stack` they have no stacks, without
    /// `objects` garbage has no code.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn add_layout(
        &mut self,
        collector: Option<&CollectorLayout>,
        stack: Option<&FrameLayout>,
        objects: Option<&ObjectLayout>,
    ) -> Result<u32, Error> {
        self.add_wire_layout(&layout(collector, stack, objects))
    }

    pub(crate) fn add_wire_layout(&mut self, layout: &LayoutWire) -> Result<u32, Error> {
        let index = self.layouts;
        if index >= MAX_LAYOUTS {
            return Err(Error::TooMany { what: "different interpreters", limit: MAX_LAYOUTS });
        }
        update(&self.skeleton.maps.layouts, "layouts", &index.to_ne_bytes(), layout.as_bytes())?;
        self.layouts += 1;
        Ok(index)
    }

    /// Places probes in a file. They fire in every process that maps it, now and later, or in one
    /// ([`BpfSession::probe_only`]).
    ///
    /// # Errors
    /// [`Error::Attach`] with the kernel's error.
    pub fn attach(&mut self, file: &Path, points: &[PlannedPoint]) -> Result<Attachment, Error> {
        let first = self.points;
        let attachment = self.attach_points(file, points, None)?;
        self.remember_alone(file, points, first)?;
        Ok(attachment)
    }

    /// `except`: hits of the process with this id are ignored.
    pub(crate) fn attach_points(
        &mut self,
        file: &Path,
        points: &[PlannedPoint],
        except: Option<u32>,
    ) -> Result<Attachment, Error> {
        let first = self.points;
        let free = (MAX_POINTS - first) as usize;
        if points.len() > free {
            return Err(Error::TooMany { what: "probed functions", limit: MAX_POINTS });
        }
        for (index, point) in (first..).zip(points) {
            self.set_point(index, point, except)?;
        }
        self.points += points.len() as u32;
        self.link(file, points, first)
    }

    /// Registers a point that a program of another object will be attached to; returns its index. `except`: hits of the
    /// process with this id are ignored.
    pub(crate) fn add_point(
        &mut self,
        point: &PlannedPoint,
        except: Option<u32>,
    ) -> Result<u32, Error> {
        let index = self.points;
        if index >= MAX_POINTS {
            return Err(Error::TooMany { what: "probed functions", limit: MAX_POINTS });
        }
        self.set_point(index, point, except)?;
        self.points += 1;
        Ok(index)
    }

    pub(crate) fn next_point(&self) -> u32 {
        self.points
    }

    pub(crate) fn set_point(
        &self,
        index: u32,
        point: &PlannedPoint,
        except: Option<u32>,
    ) -> Result<(), Error> {
        let wire = point.wire(except);
        update(&self.skeleton.maps.points, "points", &index.to_ne_bytes(), wire.as_bytes())
    }

    fn link(&self, file: &Path, points: &[PlannedPoint], first: u32) -> Result<Attachment, Error> {
        let mut links = Vec::new();
        for (end, plan) in plan_links(points, first, self.method) {
            let programs = &self.skeleton.progs;
            let program = match end {
                ProbeEnd::Entry => &programs.at_entry,
                ProbeEnd::Return => &programs.at_return,
                ProbeEnd::Both => &programs.at_both_ends,
            };
            let linked = link::attach(self.method, self.alone.process(), program, file, &plan, end);
            links.extend(linked.map_err(|source| Error::Attach {
                file: file.to_owned(),
                source: source.into(),
            })?);
        }
        Ok(Attachment { links })
    }

    /// Waits up to `timeout` for events that wake us (process events, a filling ring), then drains
    /// the rings.
    ///
    /// # Errors
    /// [`Error::Map`] if the rings cannot be read.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<KernelEvent>, Error> {
        let failed = |source| Error::Map { map: "pause_ring", source };
        match self.rings.poll(timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
        // `poll` reads the rings that woke it. Most records are submitted without a wakeup
        // (`BPF_RB_NO_WAKEUP`), so that they cost the program no switch: they are read here.
        // https://docs.kernel.org/bpf/ringbuf.html
        self.rings.consume().map_err(failed)?;
        Ok(std::mem::take(&mut *self.batch.borrow_mut()))
    }

    /// Becomes readable when a process event is pending or the pause ring fills.
    pub fn wake_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the rings own their epoll descriptor and live as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.rings.epoll_fd()) }
    }

    /// The programs' counts so far.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counters(&self) -> Result<ProgramCounts, Error> {
        let mut counts = ProgramCounts::default();
        for (index, value) in (0..).zip(&mut counts.values) {
            *value = per_cpu_sum(&self.skeleton.maps.counters, "counters", index)?;
        }
        Ok(counts)
    }

    /// Collections that were not recorded, by process: [`ProgramCounts::lost_pauses`] and
    /// [`ProgramCounts::unprobed`], as far as there was room for their processes. Several processes
    /// may have had a pid, one after another.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn unrecorded(&self) -> Result<HashMap<u32, u64>, Error> {
        let map = &self.skeleton.maps.unrecorded;
        let mut by_process = HashMap::new();
        for key in map.keys() {
            let number = map
                .lookup(&key, MapFlags::ANY)
                .map_err(|source| Error::Map { map: "unrecorded", source })?;
            // Programs only add entries.
            let pid = key.try_into().map(u32::from_ne_bytes);
            let number = number.unwrap_or_default().try_into().map(u64::from_ne_bytes);
            if let (Ok(pid), Ok(number)) = (pid, number) {
                by_process.insert(pid, number);
            }
        }
        Ok(by_process)
    }
}

fn load(
    config: SessionConfig,
    support: &KernelSupport,
    stops_children: bool,
) -> Result<GctraceSkel<'static>, Error> {
    // The skeleton borrows its object for its whole life, until gctrace ends: a few hundred bytes once per process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = GctraceSkelBuilder::default().open(storage).map_err(Error::Load)?;
    open.maps.pause_ring.set_max_entries(config.ring_bytes).map_err(Error::Load)?;
    counters::prepare(&mut open, config.counters)?;
    if let Some(rodata) = open.maps.rodata_data.as_mut() {
        rodata.follow_children = config.follow_children;
        rodata.ring_bytes = u64::from(config.ring_bytes);
        rodata.gctrace_pid = std::process::id();
        rodata.samples = config.samples;
        rodata.stack_depth = config.stack_depth.min(crate::MAX_STACK_DEPTH);
        if !crate::release::may_resume_all_users() {
            rodata.stop_only_user = nix::unistd::Uid::current().as_raw();
        }
        if has_file_capabilities() {
            rodata.follow_only_user = nix::unistd::Uid::current().as_raw();
            rodata.follow_only_group = nix::unistd::Gid::current().as_raw();
        }
    }
    let programs = &mut open.progs;
    // Half of the verifier's time is for these two: one is enough.
    let is_session = support.attach() == AttachMethod::Session;
    programs.at_both_ends.set_autoload(is_session);
    programs.at_entry.set_autoload(!is_session);
    programs.on_fork.set_autoload(!stops_children);
    programs.on_fork_stopping.set_autoload(stops_children);
    if support.attach() == AttachMethod::Single {
        // The value 0, as in ordinary kprobe programs.
        for program in [&mut programs.at_entry, &mut programs.at_return] {
            program.set_attach_type(ProgramAttachType::CgroupInetIngress);
        }
    }
    open.load().map_err(Error::Load)
}

/// Whether this process has privileges that its user lacks (`AT_SECURE`, getauxval(3)).
fn has_file_capabilities() -> bool {
    // SAFETY: reads a number from the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn attach_tracepoints(
    skeleton: &GctraceSkel<'_>,
    stops_children: bool,
) -> Result<Vec<Link>, Error> {
    let programs = &skeleton.progs;
    let on_fork = if stops_children { &programs.on_fork_stopping } else { &programs.on_fork };
    [
        (on_fork, "sched_process_fork"),
        (&programs.on_exec, "sched_process_exec"),
        (&programs.on_exit, "sched_process_exit"),
        (&programs.on_switch, "sched_switch"),
    ]
    .into_iter()
    .map(|(program, tracepoint)| {
        let attached = match program.prog_type() {
            ProgramType::Tracing => program.attach_trace(),
            _ => program.attach_raw_tracepoint(tracepoint),
        };
        attached.map_err(|source| Error::Tracepoint { tracepoint, source })
    })
    .collect()
}

fn rings(
    skeleton: &GctraceSkel<'_>,
    batch: &Rc<RefCell<Vec<KernelEvent>>>,
) -> libbpf_rs::Result<RingBuffer<'static>> {
    let into = |batch: &Rc<RefCell<Vec<KernelEvent>>>| {
        let batch = Rc::clone(batch);
        move |bytes: &[u8]| {
            batch.borrow_mut().extend(decode(bytes));
            0
        }
    };
    let mut builder = RingBufferBuilder::new();
    builder.add(&skeleton.maps.process_ring, into(batch))?;
    builder.add(&skeleton.maps.pause_ring, into(batch))?;
    builder.build()
}

fn update(map: &impl MapCore, name: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
    map.update(key, value, MapFlags::ANY).map_err(|source| Error::Map { map: name, source })
}

#[cfg(test)]
mod tests;
