//! Allocation windows: probes that are attached for milliseconds.
//!
//! Owns the object of `bpf/alloc.bpf.c`, on the thread that creates it. When to open a window and
//! what its counts mean is decided elsewhere.

use crate::attach::{LinkPlan, ProbeEnd};
use crate::error::Error;
use crate::link::ProbeLink;
use crate::session::SharedMaps;
use crate::support::AttachMethod;
use crate::wire::read;
use gctrace_abi::AllocationSize;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags};
use skeleton::types::{alloc_window, allocations};
use skeleton::{AllocSkel, AllocSkelBuilder};
use std::mem::MaybeUninit;
use std::path::Path;
use zerocopy::IntoBytes as _;

crate::skeleton!(mod "alloc");

/// `SIZE_CLASSES` of `bpf/event.h`.
const CLASSES: usize = 44;
/// `SMALL_CLASSES` of `bpf/event.h`: 16 bytes each.
const SMALL_CLASSES: u32 = 32;

/// `COOKIE_CONSTANT` and `COOKIE_UNKNOWN` of `bpf/alloc.bpf.c`.
fn cookie(size: AllocationSize) -> u64 {
    match size {
        AllocationSize::Register(number) => u64::from(number & 31),
        AllocationSize::Constant(size) => 32 | u64::from(size) << 8,
        AllocationSize::Unknown => 33,
    }
}

/// A probed instruction: offset in its file, and location of the size.
pub type AllocationProbe = (u64, AllocationSize);

/// The target process of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowTarget {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Address of `_PyRuntime` in the memory of the process, after relocation.
    pub runtime: u64,
    /// Every Nth allocation takes a stack; 0: none does.
    pub stack_every: u32,
}

/// Counts since the programs were loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationCounts {
    /// Allocations of processes during their window.
    pub hits: u64,
    /// Hits of other processes: they also paid for the probes.
    pub foreign_hits: u64,
    /// Sum of the known sizes in bytes.
    pub bytes: u64,
    /// Largest size of each class in bytes, `None` for unknown sizes, and the number of
    /// allocations.
    pub classes: Vec<(Option<u64>, u64)>,
}

/// The largest size of a class; `None` for the last, of unknown sizes.
fn largest(class: usize) -> Option<u64> {
    let class = u32::try_from(class).ok()?;
    if class >= CLASSES as u32 - 1 {
        return None;
    }
    Some(match class.checked_sub(SMALL_CLASSES) {
        None => 16 * (u64::from(class) + 1),
        Some(above) => 1024 << above,
    })
}

/// The loaded programs of `bpf/alloc.bpf.c`; nothing is probed until [`AllocationPrograms::open`].
pub struct AllocationPrograms {
    skeleton: AllocSkel<'static>,
    /// Breakpoints are placed in the process of the window alone. Before 6.10 all processes are probed:
    /// the filter would compare threads, and only the main thread would count.
    filters_processes: bool,
}

/// An open window. Dropping it closes it: the probes are detached at once, the call returns after a
/// grace period of the kernel (about 35 ms).
#[must_use = "dropping it closes the window"]
pub struct AllocationWindow {
    _link: ProbeLink,
}

impl AllocationPrograms {
    /// Loads the programs; stacks and samples arrive with the session's events.
    ///
    /// # Errors
    /// [`Error::Load`]; [`Error::NoMultiLinks`] before Linux 6.6.
    pub fn load(shared: &SharedMaps, stack_depth: u32) -> Result<Self, Error> {
        if shared.attach == AttachMethod::Single {
            return Err(Error::NoMultiLinks);
        }
        // Borrowed by the skeleton for its whole life: until gctrace ends.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = AllocSkelBuilder::default().open(storage).map_err(Error::Load)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.stack_depth = stack_depth.min(crate::MAX_STACK_DEPTH);
        }
        shared.lend(open.open_object_mut()).map_err(Error::Load)?;
        let skeleton = open.load().map_err(Error::Load)?;
        Ok(Self { skeleton, filters_processes: shared.filters_processes })
    }

    /// Opens a window: from now on each allocation of the process is counted, and slow.
    ///
    /// # Errors
    /// [`Error::Attach`], [`Error::Map`].
    pub fn open(
        &mut self,
        target: WindowTarget,
        layout: u32,
        file: &Path,
        probes: &[AllocationProbe],
    ) -> Result<AllocationWindow, Error> {
        let window = alloc_window {
            runtime: target.runtime,
            pid: target.pid,
            layout,
            stack_every: target.stack_every,
            reserved: 0,
        };
        self.skeleton
            .maps
            .alloc_window
            .update(&0u32.to_ne_bytes(), window.as_bytes(), MapFlags::ANY)
            .map_err(|source| Error::Map { map: "alloc_window", source })?;
        let mut plan = LinkPlan::default();
        for (offset, size) in probes {
            plan.push(*offset, cookie(*size), None);
        }
        let program = &self.skeleton.progs.at_allocation;
        let only = if self.filters_processes { Some(target.pid) } else { None };
        ProbeLink::multi(program, only, file, &plan, ProbeEnd::Entry)
            .map(|link| AllocationWindow { _link: link })
            .map_err(|source| Error::Attach { file: file.to_owned(), source: source.into() })
    }

    /// Number of hits so far.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counts(&self) -> Result<AllocationCounts, Error> {
        let per_cpu = self
            .skeleton
            .maps
            .allocations
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| Error::Map { map: "allocations", source })?
            .unwrap_or_default();
        let mut sum = AllocationCounts {
            classes: (0..CLASSES).map(|class| (largest(class), 0)).collect(),
            ..AllocationCounts::default()
        };
        for counted in per_cpu.iter().filter_map(|bytes| read::<allocations>(bytes)) {
            sum.hits += counted.hits;
            sum.foreign_hits += counted.foreign_hits;
            sum.bytes += counted.bytes;
            for ((_, total), one) in sum.classes.iter_mut().zip(counted.classes) {
                *total += one;
            }
        }
        Ok(sum)
    }
}
