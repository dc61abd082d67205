//! Features of this kernel, and the rules derived from them; whether rings fit into memory.

use crate::error::Error;
use libbpf_rs::{MapCore, MapFlags, MapType, libbpf_sys};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// The features of this kernel. Each was determined by trying, not by reading a version number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSupport {
    /// Release of the kernel, as in `uname -r`.
    pub release: String,
    /// Machine type, as in `uname -m`, for example `x86_64`.
    pub machine: String,
    /// Whether `/sys/kernel/btf/vmlinux` exists: kernel structs can be accessed by name.
    pub btf: bool,
    /// Whether the kernel has the BPF ring buffer (5.8); false also if unknown.
    pub ring_buffer: bool,
    /// A program can read the cookie of the probe that called it (5.15).
    pub cookie: bool,
    /// Many probes of a file in one link (6.6).
    pub uprobe_multi: bool,
    /// Such a link can be limited to one process (6.10; before, the kernel compares threads).
    pub process_filter: bool,
    /// A link serves both ends of a function, and its program at the entry decides whether the
    /// return is probed (6.13).
    pub uprobe_session: bool,
    /// A program can stop a child before it runs (`bpf_send_signal_task`, 6.13).
    pub stops_children: bool,
    /// A program can loop over a list of any length (`bpf_loop`, 5.17): needed for
    /// [`crate::GarbagePrograms`] only.
    pub loops: bool,
    /// A program can send a signal to the current process (5.3).
    pub send_signal: bool,
    /// Whether the caller may open perf events (CPU counters, arenas). Debian's kernels require
    /// CAP_SYS_ADMIN if `kernel.perf_event_paranoid` is 3, their default.
    pub perf_events: bool,
    /// Whether the caller may open the perf events that single links consist of. 6.1 requires
    /// CAP_SYS_ADMIN, whatever `kernel.perf_event_paranoid` is.
    pub uprobe_events: bool,
    /// Whether the caller may load BPF programs at all; if not, `ring_buffer`, `cookie`,
    /// `uprobe_multi`, `process_filter`, `uprobe_session`, `loops` and `send_signal` are unknown
    /// and false.
    pub permitted: bool,
}

/// The oldest Linux with all required features; distributions backport some to older ones.
pub const OLDEST_LINUX: &str = "5.15";

/// How probes are attached, as the kernel allows ([`KernelSupport::attach`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMethod {
    /// One link per file for functions with a probed return, one for the others. A process that is not recorded pays
    /// for the entries only.
    Session,
    /// One link per file and end: attaching and detaching is fast.
    Multi,
    /// One link per probe: detaching waits for a grace period of the kernel per probe.
    Single,
}

impl KernelSupport {
    /// Determines the features. Needs no privileges, but [`KernelSupport::permitted`], and all that
    /// is unknown without it, is false then.
    pub fn probe() -> Self {
        let name = nix::sys::utsname::uname();
        let text = |result: Result<&std::ffi::OsStr, _>| -> String {
            result
                .map(|value: &std::ffi::OsStr| value.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let names = name.as_ref().map_err(|errno| *errno);
        let permitted = load_tiny_program(0).is_some();
        let refused = |kind, pid, error| permitted && refused_link(kind, pid) == error;
        let multi = libbpf_sys::BPF_TRACE_UPROBE_MULTI;
        let uprobe_multi = refused(multi, 0, libc::EBADF);
        Self {
            release: text(names.map(nix::sys::utsname::UtsName::release)),
            machine: text(names.map(nix::sys::utsname::UtsName::machine)),
            btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            ring_buffer: permitted && MapType::RingBuf.is_supported().unwrap_or(false),
            cookie: permitted && helper_exists(libbpf_sys::BPF_FUNC_get_attach_cookie),
            uprobe_multi,
            process_filter: uprobe_multi && refused(multi, NO_PROCESS, libc::EINVAL),
            uprobe_session: refused(libbpf_sys::BPF_TRACE_UPROBE_SESSION, 0, libc::EBADF),
            stops_children: permitted && has_kernel_function(c"bpf_send_signal_task"),
            loops: permitted && has_loops(),
            send_signal: permitted && helper_exists(libbpf_sys::BPF_FUNC_send_signal),
            perf_events: perf_events_permitted(),
            uprobe_events: uprobe_events_permitted(),
            permitted,
        }
    }

    /// The features missing for recording, in words; empty if none. Privileges are not considered.
    pub fn missing(&self) -> Vec<&'static str> {
        let needs = [
            (self.btf, "type information in /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)"),
            (self.ring_buffer, "the BPF ring buffer"),
            (self.cookie, "BPF cookies for uprobes"),
            (self.send_signal, "bpf_send_signal"),
        ];
        needs.iter().filter(|(there, _)| !there).map(|(_, what)| *what).collect()
    }

    /// The error for a recording on this kernel; `None` if it lacks nothing, or if that is unknown
    /// because no program may be loaded.
    pub fn refusal(&self) -> Option<Error> {
        let missing = self.missing();
        let release = self.release.clone();
        if !self.permitted {
            None
        } else if !missing.is_empty() {
            let missing = missing.join(", ");
            Some(Error::Unsupported { release, missing })
        } else if self.attach() == AttachMethod::Single && !self.uprobe_events {
            Some(Error::PerfEvents { release })
        } else {
            None
        }
    }

    /// The method with the fewest links, and traps, that the kernel has.
    pub fn attach(&self) -> AttachMethod {
        match (self.uprobe_multi, self.uprobe_session) {
            (true, true) => AttachMethod::Session,
            (true, false) => AttachMethod::Multi,
            (false, _) => AttachMethod::Single,
        }
    }

    /// Whether probes can be placed in the recorded process alone. The kernel's filter does not
    /// include its children: if they are recorded, the first one is stopped until the probes are in
    /// every process.
    pub fn filters(&self, children_are_recorded: bool) -> bool {
        let holds_children = self.stops_children && self.attach() == AttachMethod::Session;
        self.process_filter && self.uprobe_multi && (!children_are_recorded || holds_children)
    }
}

/// Opens an event that counts nothing, for this process only.
fn perf_events_permitted() -> bool {
    let mut attributes = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_SOFTWARE,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: u64::from(libbpf_sys::PERF_COUNT_SW_DUMMY),
        ..Default::default()
    };
    attributes.set_exclude_kernel(1);
    open_perf_event(&mut attributes).is_ok()
}

/// Requests a uprobe in something that is not a file: the kernel checks the caller's rights first
/// (`perf_uprobe_event_init`, kernel/events/core.c).
fn uprobe_events_permitted() -> bool {
    let number = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type");
    let Ok(number) = number else { return false };
    let Ok(number) = number.trim().parse() else { return false };
    let mut attributes = libbpf_sys::perf_event_attr {
        type_: number,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        ..Default::default()
    };
    attributes.__bindgen_anon_3.uprobe_path = c"/".as_ptr() as u64;
    !matches!(
        open_perf_event(&mut attributes).map_err(|error| error.raw_os_error()),
        Err(Some(libc::EACCES | libc::EPERM))
    )
}

fn open_perf_event(attributes: &mut libbpf_sys::perf_event_attr) -> std::io::Result<OwnedFd> {
    let (this_process, any_cpu, no_group) = (0, -1, -1);
    // SAFETY: the attributes live until the call returns; it returns a new descriptor or -1.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes as *mut libbpf_sys::perf_event_attr,
            this_process,
            any_cpu,
            no_group,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC,
        )
    };
    match i32::try_from(result) {
        // SAFETY: a non-negative result is a descriptor with no other owner.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether a program can loop over lists of any length (`bpf_loop`, 5.17).
pub(crate) fn has_loops() -> bool {
    helper_exists(libbpf_sys::BPF_FUNC_loop)
}

fn helper_exists(helper: libbpf_sys::bpf_func_id) -> bool {
    // SAFETY: no options, and the program type and helper are plain numbers.
    unsafe {
        libbpf_sys::libbpf_probe_bpf_helper(
            libbpf_sys::BPF_PROG_TYPE_KPROBE,
            helper,
            std::ptr::null(),
        ) == 1
    }
}

/// Whether the kernel has a function that programs may call ("kfunc").
fn has_kernel_function(name: &CStr) -> bool {
    // SAFETY: without an argument; the result is freed below.
    let types = unsafe { libbpf_sys::btf__load_vmlinux_btf() };
    if types.is_null() {
        return false;
    }
    // SAFETY: loaded above, and a C string.
    let found = unsafe {
        libbpf_sys::btf__find_by_name_kind(types, name.as_ptr(), libbpf_sys::BTF_KIND_FUNC)
    };
    // SAFETY: loaded above, and not used any more.
    unsafe { libbpf_sys::btf__free(types) };
    found > 0
}

/// Loads `return 0` as a uprobe program; `None` if it may not be loaded.
fn load_tiny_program(attach_type: u32) -> Option<OwnedFd> {
    const LICENSE: &CStr = c"GPL";
    // r0 = 0; exit (include/uapi/linux/bpf.h)
    let instructions = [
        libbpf_sys::bpf_insn { code: 0xb7, ..Default::default() },
        libbpf_sys::bpf_insn { code: 0x95, ..Default::default() },
    ];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as u64,
        expected_attach_type: attach_type,
        ..Default::default()
    };
    // SAFETY: all pointers live through the call and the count matches the array.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_KPROBE,
            std::ptr::null(),
            LICENSE.as_ptr(),
            instructions.as_ptr(),
            instructions.len() as u64,
            &raw mut options,
        )
    };
    // SAFETY: a non-negative result is a descriptor with no other owner.
    if fd >= 0 { Some(unsafe { OwnedFd::from_raw_fd(fd) }) } else { None }
}

/// The pid -1: no process has it.
const NO_PROCESS: u32 = u32::MAX;

/// The error (errno) of a multi link on a directory, in one process (0: in all). A kernel with such links returns EBADF
/// (not a regular file), a kernel without them EINVAL. A kernel with a filter that compares processes instead of
/// threads refuses a negative pid with EINVAL before it examines the file (46ba0e49b642, "bpf: fix multi-uprobe PID
/// filtering logic"). libbpf checks both in the same way.
fn refused_link(attach_type: libbpf_sys::bpf_attach_type, pid: u32) -> i32 {
    let Some(program) = load_tiny_program(attach_type) else { return 0 };
    let offset: u64 = 0;
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
        ..Default::default()
    };
    options.__bindgen_anon_1.uprobe_multi.path = c"/".as_ptr();
    options.__bindgen_anon_1.uprobe_multi.offsets = &raw const offset;
    options.__bindgen_anon_1.uprobe_multi.cnt = 1;
    options.__bindgen_anon_1.uprobe_multi.pid = pid;
    // SAFETY: all pointers live through the call.
    let result = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), -1, attach_type, &raw const options)
    };
    if result >= 0 {
        // SAFETY: a non-negative result is a descriptor with no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(result) });
        return 0;
    }
    -result
}

/// Room for the ring of processes, libbpf's own tables and later allocations, in bytes: measured,
/// and doubled.
const BESIDES: usize = 8 << 20;

/// Whether pause rings of that many bytes could be mapped now. If not (`ulimit -v`), libbpf-rs 0.27
/// panics in debug builds, and otherwise reports "Unknown error -12".
pub(crate) fn room_for_rings(bytes: u32) -> std::io::Result<()> {
    // Data pages are mapped twice (`ringbuf_map_mmap_user`, kernel/bpf/ringbuf.c).
    let needed = bytes as usize * 2 + BESIDES;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address chosen by the kernel. No other code knows it, and it is unmapped below.
    unsafe {
        let room = libc::mmap(std::ptr::null_mut(), needed, libc::PROT_NONE, flags, -1, 0);
        if room == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        libc::munmap(room, needed);
    }
    Ok(())
}

/// The sum of one 64-bit number over all CPUs.
///
/// # Errors
/// [`Error::Map`].
pub(crate) fn per_cpu_sum(
    map: &impl MapCore,
    name: &'static str,
    index: u32,
) -> Result<u64, Error> {
    let per_cpu = map
        .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| Error::Map { map: name, source })?
        .unwrap_or_default();
    Ok(per_cpu
        .iter()
        .filter_map(|value| Some(u64::from_ne_bytes(value.as_slice().try_into().ok()?)))
        .sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> KernelSupport {
        KernelSupport {
            release: "6.18".into(),
            machine: "x86_64".into(),
            btf: true,
            ring_buffer: true,
            cookie: true,
            uprobe_multi: true,
            process_filter: true,
            uprobe_session: true,
            stops_children: true,
            loops: true,
            send_signal: true,
            perf_events: true,
            uprobe_events: true,
            permitted: true,
        }
    }

    #[test]
    fn only_single_links_need_uprobe_events() {
        let strict = KernelSupport { uprobe_events: false, ..kernel() };
        assert!(strict.refusal().is_none());
        let single = KernelSupport { uprobe_multi: false, ..strict };
        let refusal = single.refusal().map(|error| error.to_string());
        assert!(refusal.is_some_and(|text| text.contains("CAP_SYS_ADMIN")));
    }

    #[test]
    fn rules_follow_facts() {
        assert_eq!(kernel().attach(), AttachMethod::Session);
        assert!(kernel().refusal().is_none());
        let without_sessions = KernelSupport { uprobe_session: false, ..kernel() };
        assert_eq!(without_sessions.attach(), AttachMethod::Multi);
        let old = KernelSupport { uprobe_multi: false, cookie: false, ..kernel() };
        assert_eq!(old.attach(), AttachMethod::Single);
        assert_eq!(
            old.refusal().map(|error| error.to_string()).as_deref(),
            Some(
                "kernel 6.18 lacks BPF cookies for uprobes: probes need Linux 5.15 or newer, with type information (BTF)"
            )
        );
    }

    /// Children must be stopped to be probed in time, and the filter of 6.6 to 6.9 misses threads.
    #[test]
    fn a_process_is_probed_alone_where_none_of_it_is_missed() {
        let filters = |process_filter, stops_children, children| {
            let support = KernelSupport { process_filter, stops_children, ..kernel() };
            support.filters(children)
        };
        assert!(filters(true, false, false));
        assert!(filters(true, true, true));
        assert!(!filters(true, false, true));
        assert!(!filters(false, true, false));
        let without_links = KernelSupport { uprobe_multi: false, ..kernel() };
        assert!(!without_links.filters(false));
    }

    #[test]
    fn there_is_room() {
        assert!(room_for_rings(16 << 20).is_ok());
    }
}
