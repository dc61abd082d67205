//! Links: what attaches a program to probes. Closing its descriptors detaches it.
//!
//! Probes are placed and removed by a process that a SIGKILL of gctrace does not reach ([`in_child`]). The kernel
//! writes breakpoints to the memory of each process that maps the file, and gives up on that while a SIGKILL is pending
//! (`fatal_signal_pending` in `__get_user_pages`, mm/gup.c; 5.15 to 6.18). Killed there, gctrace would leave
//! breakpoints in running programs ("failed to unregister, leaking uprobe"). Each would cost about a microsecond per
//! hit until the program ends.

use crate::attach::{LinkPlan, ProbeEnd};
use crate::support::AttachMethod;
use libbpf_rs::{Iter, ProgramMut, libbpf_sys};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::ffi::CString;
use std::io;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use zerocopy::FromBytes;

/// Every process, for perf_event_open(2).
const EVERY_PROCESS: i32 = -1;

/// Stack of [`in_child`]: system calls and libbpf's wrappers of them, in a debug build too.
const CHILD_STACK_BYTES: usize = 64 << 10;
/// Name of the child, as of gctrace's guardians: `killall -9 gctrace` must not find it.
const CHILD_NAME: &std::ffi::CStr = c"gc-guardian";

/// A program attached to one file's probes, or to an event. Dropping it detaches the program.
#[derive(Debug)]
pub(crate) struct ProbeLink {
    /// The link, and before multi links the event it belongs to.
    descriptors: Vec<OwnedFd>,
}

impl ProbeLink {
    /// Attaches a program to a perf event. The link then owns the event.
    pub(crate) fn to_event(
        program: &ProgramMut<'_>,
        event: OwnedFd,
        cookie: u64,
    ) -> io::Result<Self> {
        let mut options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            ..Default::default()
        };
        options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
        // The event is closed with the link if this fails.
        let mut link = Self { descriptors: vec![event] };
        let event = link.descriptors[0].as_raw_fd();
        let created = create_link(program, event, libbpf_sys::BPF_PERF_EVENT, &options)?;
        link.descriptors.insert(0, created);
        // SAFETY: enables the event; it takes no argument.
        Errno::result(unsafe { libc::ioctl(event, ENABLE, 0) })?;
        Ok(link)
    }

    /// Attaches a program to all probes of a plan with one link (Linux 6.6), in one process or in
    /// every one.
    pub(crate) fn multi(
        program: &ProgramMut<'_>,
        only: Option<u32>,
        file: &Path,
        plan: &LinkPlan,
        end: ProbeEnd,
    ) -> io::Result<Self> {
        let path = CString::new(file.as_os_str().as_bytes())?;
        let semaphores = plan.semaphores_if_any();
        let mut options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            ..Default::default()
        };
        // SAFETY: the member of the union that this type of link has; all were zero.
        let probes = unsafe { &mut options.__bindgen_anon_1.uprobe_multi };
        probes.path = path.as_ptr();
        probes.cnt = u32::try_from(plan.offsets.len()).map_err(io::Error::other)?;
        probes.offsets = plan.offsets.as_ptr().cast();
        probes.cookies = plan.cookies.as_ptr();
        probes.ref_ctr_offsets =
            if semaphores.is_empty() { std::ptr::null() } else { semaphores.as_ptr().cast() };
        // 0: no filter
        probes.pid = only.unwrap_or(0);
        let (kind, flags) = match end {
            ProbeEnd::Entry => (libbpf_sys::BPF_TRACE_UPROBE_MULTI, 0),
            ProbeEnd::Return => {
                (libbpf_sys::BPF_TRACE_UPROBE_MULTI, libbpf_sys::BPF_F_UPROBE_MULTI_RETURN)
            }
            ProbeEnd::Both => (libbpf_sys::BPF_TRACE_UPROBE_SESSION, 0),
        };
        probes.flags = flags;
        let link = create_link(program, -1, kind, &options)?;
        Ok(Self { descriptors: vec![link] })
    }

    /// Attaches a program to each probe of a plan with a link of its own, in every process.
    fn each(
        program: &ProgramMut<'_>,
        file: &Path,
        plan: &LinkPlan,
        end: ProbeEnd,
    ) -> io::Result<Vec<Self>> {
        let path = CString::new(file.as_os_str().as_bytes())?;
        let places = plan.offsets.iter().zip(&plan.cookies).zip(&plan.semaphores);
        places
            .map(|((offset, cookie), semaphore)| {
                let event = open_probe(&path, *offset as u64, *semaphore as u64, end)?;
                Self::to_event(program, event, *cookie)
            })
            .collect()
    }
}

impl Drop for ProbeLink {
    fn drop(&mut self) {
        let descriptors = std::mem::take(&mut self.descriptors);
        let numbers: Vec<i32> = descriptors.into_iter().map(OwnedFd::into_raw_fd).collect();
        in_child(|| {
            for number in &numbers {
                // SAFETY: ours alone, as taken from an owner above.
                unsafe { libc::close(*number) };
            }
        });
    }
}

/// Attaches a program to the probes of a plan, with as many links as the kernel needs. `only`: in this process alone,
/// if the kernel can do so ([`crate::KernelSupport::filters`]). `None`: in every process that maps the file, now and
/// later; all others pay for a trap at each hit.
pub(crate) fn attach(
    method: AttachMethod,
    only: Option<u32>,
    program: &ProgramMut<'_>,
    file: &Path,
    plan: &LinkPlan,
    end: ProbeEnd,
) -> io::Result<Vec<ProbeLink>> {
    match method {
        AttachMethod::Session | AttachMethod::Multi => {
            let multi = |only| ProbeLink::multi(program, only, file, plan, end);
            let linked = match multi(only) {
                // The process has just exited; its file was found and is probed as any other.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => multi(None),
                linked => linked,
            };
            linked.map(|link| vec![link])
        }
        AttachMethod::Single => ProbeLink::each(program, file, plan, end),
    }
}

fn create_link(
    program: &ProgramMut<'_>,
    target: i32,
    kind: libbpf_sys::bpf_attach_type,
    options: &libbpf_sys::bpf_link_create_opts,
) -> io::Result<OwnedFd> {
    let program = program.as_fd().as_raw_fd();
    let mut result = -libc::EIO;
    in_child(|| {
        // SAFETY: the caller keeps what the options point to.
        result = unsafe { libbpf_sys::bpf_link_create(program, target, kind, options) };
    });
    match result {
        // SAFETY: just returned by the kernel, with no other owner.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(result) }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Opens the perf event of a probe in every process.
fn open_probe(path: &CString, offset: u64, semaphore: u64, end: ProbeEnd) -> io::Result<OwnedFd> {
    const KIND: &str = "/sys/bus/event_source/devices/uprobe/type";
    let kind = std::fs::read_to_string(KIND)?;
    let mut attributes = libbpf_sys::perf_event_attr {
        type_: kind.trim().parse().map_err(io::Error::other)?,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        // PERF_PROBE_CONFIG_IS_RETPROBE and PERF_UPROBE_REF_CTR_OFFSET_SHIFT in
        // kernel/events/core.c, as in format/ beside the file above
        config: u64::from(end == ProbeEnd::Return) | semaphore << 32,
        ..Default::default()
    };
    attributes.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attributes.__bindgen_anon_4.probe_offset = offset;
    open_event(&mut attributes)
}

/// Opens a perf event of every process on the first CPU. One CPU is enough for an event that runs a program: it runs on
/// every CPU (kernel/trace/bpf_trace.c).
pub(crate) fn open_event(attributes: &mut libbpf_sys::perf_event_attr) -> io::Result<OwnedFd> {
    let (first_cpu, no_group) = (0, -1);
    let mut result = Err(Errno::EIO);
    in_child(|| {
        // SAFETY: the attributes live until the call returns; it returns a new descriptor or -1.
        result = Errno::result(unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw mut *attributes,
                EVERY_PROCESS,
                first_cpu,
                no_group,
                libbpf_sys::PERF_FLAG_FD_CLOEXEC,
            )
        });
    });
    let descriptor = i32::try_from(result?).map_err(io::Error::other)?;
    // SAFETY: just returned by the kernel, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Runs a closure in a child that shares this process's memory and descriptors, while this thread
/// waits for it. If this process is killed meanwhile, the child completes the closure, and
/// what the closed descriptors release is released by the child's exit. Runs the closure in this
/// thread if no child can be created.
///
/// The closure may only make system calls: locks, the allocator's among them, may be held by a
/// thread that no longer exists. It has this thread's thread-local variables (`errno`).
fn in_child(mut call: impl FnMut()) {
    extern "C" fn run(call: *mut libc::c_void) -> i32 {
        // SAFETY: plain system calls; they keep signals to the process group and to processes
        // named gctrace away.
        unsafe {
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, CHILD_NAME.as_ptr());
        }
        // SAFETY: the pointer given to clone below; the thread that owns it waits.
        unsafe { (*call.cast::<&mut dyn FnMut()>())() };
        0
    }
    let mut call: &mut dyn FnMut() = &mut call;
    let mut stack = Box::<[u128]>::new_uninit_slice(CHILD_STACK_BYTES / size_of::<u128>());
    let mut before = SigSet::empty();
    // The child would run gctrace's handlers.
    let blocked = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before));
    // SAFETY: the stack and the closure live until the child has exited: with CLONE_VFORK this
    // returns after that.
    let child = Errno::result(unsafe {
        libc::clone(
            run,
            stack.as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_VFORK,
            (&raw mut call).cast(),
        )
    });
    if blocked.is_ok() {
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }
    match child {
        // Reaps it; children without an exit signal need __WALL.
        // SAFETY: plain numbers, and no status is stored.
        Ok(pid) => drop(unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) }),
        Err(_) => call(),
    }
}

/// `_IO('$', 0)`, include/uapi/linux/perf_event.h: PERF_EVENT_IOC_ENABLE.
const ENABLE: libc::Ioctl = 0x2400;

/// The records that a program writes of the tasks of the machine, when they are listed once.
pub(crate) fn written<T: FromBytes>(program: &ProgramMut<'_>) -> libbpf_rs::Result<Vec<T>> {
    let link = program.attach()?;
    let mut bytes = Vec::new();
    Iter::new(&link)?.read_to_end(&mut bytes)?;
    Ok(bytes.chunks_exact(size_of::<T>()).filter_map(crate::wire::read).collect())
}
