//! Counting arenas: the two system call tracepoints, and their counts.
//!
//! While they are attached, every system call on the machine takes about 30 ns longer.

use crate::error::Error;
use crate::link::{ProbeLink, open_event};
use crate::session::{Attachment, BpfSession};
use crate::wire::{Arenas, read};
use libbpf_rs::{MapCore as _, MapFlags, libbpf_sys};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;

/// The usual mount points of tracefs, current and old.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl BpfSession {
    /// Counts the arenas of recorded processes from now on, and reports each libpython that one
    /// maps ([`crate::ProcessEvent::Library`]).
    ///
    /// # Errors
    /// [`Error::SystemCalls`], [`Error::Tracepoint`]: recording continues without.
    pub fn count_arenas(&mut self) -> Result<(), Error> {
        let mut links = Vec::new();
        for (program, tracepoint) in [
            (&self.skeleton.progs.on_mmap, "sys_enter_mmap"),
            (&self.skeleton.progs.on_munmap, "sys_enter_munmap"),
        ] {
            let event = open_tracepoint(tracepoint).map_err(Error::SystemCalls)?;
            let link = ProbeLink::to_event(program, event, 0)
                .map_err(|source| Error::Tracepoint { tracepoint, source: source.into() })?;
            links.push(link);
        }
        self.arena_links = links;
        if let Some(bss) = self.skeleton.maps.bss_data.as_mut() {
            bss.sees_mappings = true;
        }
        Ok(())
    }

    /// Whether each libpython that a recorded process maps is reported.
    pub fn sees_mappings(&self) -> bool {
        !self.arena_links.is_empty()
    }

    /// Stops counting and returns the links, to be closed together with others ([`crate::detach`]): each takes a grace
    /// period of the kernel.
    pub fn stop_counting_arenas(&mut self) -> Attachment {
        Attachment::new(std::mem::take(&mut self.arena_links))
    }

    /// From now on also reports the CUDA, NCCL and torch libraries that recorded processes map.
    /// Uses the tracepoints of [`BpfSession::count_arenas`]: `false` without them.
    pub fn watch_libraries(&mut self) -> bool {
        if let Some(bss) = self.skeleton.maps.bss_data.as_mut() {
            bss.watch_libraries = true;
        }
        !self.arena_links.is_empty()
    }

    /// Arenas that a process has mapped and unmapped since it is recorded; `None` if they are not
    /// counted.
    pub fn arenas(&self, pid: u32) -> Option<Arenas> {
        if self.arena_links.is_empty() {
            return None;
        }
        let found =
            self.skeleton.maps.arenas.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        Some(found.and_then(|bytes| read::<Arenas>(&bytes)).unwrap_or_default())
    }

    /// Removes the counts of an exited process, so that a process with the same id starts at 0.
    pub fn forget_arenas(&self, pid: u32) {
        // A process that mapped none has no entry.
        let _ = self.skeleton.maps.arenas.delete(&pid.to_ne_bytes());
    }
}

fn open_tracepoint(name: &str) -> io::Result<OwnedFd> {
    let number = tracepoint_number(name)?;
    let mut attributes = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_TRACEPOINT,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: number,
        ..Default::default()
    };
    open_event(&mut attributes)
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: just returned by the kernel, with no other owner.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn tracepoint_number(name: &str) -> io::Result<u64> {
    let path = format!("events/syscalls/{name}/id");
    let found =
        PLACES.iter().find_map(|place| std::fs::read_to_string(Path::new(place).join(&path)).ok());
    let text = match found {
        Some(text) => text,
        None => read_from_own_mount(&path)?,
    };
    text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Containers and small systems often have no tracefs mounted. This mounts a private one for this process; it
/// disappears with its descriptor.
fn read_from_own_mount(path: &str) -> io::Result<String> {
    const TRACEFS: &CStr = c"tracefs";
    // include/uapi/linux/mount.h
    const FSOPEN_CLOEXEC: u32 = 1;
    const FSCONFIG_CMD_CREATE: u32 = 6;
    const FSMOUNT_CLOEXEC: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: the name is a C string; the result is a new descriptor or -1.
    let filesystem =
        owned(unsafe { libc::syscall(libc::SYS_fsopen, TRACEFS.as_ptr(), FSOPEN_CLOEXEC) })?;
    let number = filesystem.as_raw_fd();
    // SAFETY: this command takes neither key nor value.
    let created = unsafe {
        libc::syscall(libc::SYS_fsconfig, number, FSCONFIG_CMD_CREATE, nothing, nothing, 0)
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain numbers; the result is a new descriptor or -1.
    let mount = owned(unsafe { libc::syscall(libc::SYS_fsmount, number, FSMOUNT_CLOEXEC, 0) })?;
    let file = nix::fcntl::openat(
        &mount,
        path,
        nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}
