//! Memory that is left to this process: by its cgroups, by the machine, and of its GPU.

use super::files::read_into;
use crate::cupti;
use gctrace_tuner::DeviceMemory;
use gctrace_units::beyond;
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where cgroups are mounted; memory cgroups of version 1 are below `memory`.
const MOUNT: &str = "/sys/fs/cgroup";

/// Memory that is left to the process, in bytes: the minimum over its cgroups and the machine; `None`: unknown.
pub(crate) fn headroom_bytes() -> Option<u64> {
    let groups = text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let groups = folders(Path::new(MOUNT), &groups).into_iter().filter_map(|one| left(&one));
    groups.chain(available()).min()
}

/// `struct mallinfo2` (mallinfo(3)), from glibc 2.33 on; earlier ones count to 4 GiB.
#[repr(C)]
#[derive(Clone, Copy)]
struct Mallinfo2 {
    /// Bytes from the kernel that are no mapping of their own.
    arena: usize,
    chunks: [usize; 3],
    /// Bytes of blocks with a mapping of their own, all in use.
    hblkhd: usize,
    highest: [usize; 2],
    /// Bytes in use, without `hblkhd`.
    uordblks: usize,
    free: [usize; 2],
}

type Mallinfo = unsafe extern "C" fn() -> Mallinfo2;

/// The function that counts the memory in use of glibc's malloc; `None` without it.
fn mallinfo() -> Option<Mallinfo> {
    static FUNCTION: OnceLock<Option<Mallinfo>> = OnceLock::new();
    *FUNCTION.get_or_init(|| {
        // SAFETY: looks a name up; null, or the function of this name and type.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr());
            std::mem::transmute::<*mut c_void, Option<Mallinfo>>(found)
        }
    })
}

/// The C library's memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MallocUse {
    /// In use.
    pub(crate) used: usize,
    /// From the kernel.
    pub(crate) obtained: usize,
}

/// malloc's memory now; `None`: glibc is older, or the program has another malloc. Not to be called by code that malloc
/// may have called.
pub(crate) fn malloc_use() -> Option<MallocUse> {
    // SAFETY: takes the locks of malloc; this thread does not hold them.
    let Mallinfo2 { arena, hblkhd, uordblks, .. } = unsafe { mallinfo()?() };
    let obtained = arena.checked_add(hblkhd)?;
    // Without anything from the kernel, the program has another malloc.
    if obtained == 0 {
        return None;
    }
    Some(MallocUse { used: uordblks.checked_add(hblkhd)?, obtained })
}

/// `MemAvailable` of the machine.
fn available() -> Option<u64> {
    let text = text(Path::new("/proc/meminfo"))?;
    let value = text.split("MemAvailable:").nth(1)?.split_whitespace().next()?;
    value.parse::<u64>().ok()?.checked_mul(1024)
}

/// `cuMemGetInfo_v2(free, total)`, in bytes.
type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
/// `cuThreadExchangeStreamCaptureMode(mode)`, from CUDA 10.1 on.
type ExchangeCaptureMode = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Functions of the driver's library that read a GPU's memory.
#[derive(Clone, Copy)]
struct CudaDriver {
    info: MemGetInfo,
    exchange: ExchangeCaptureMode,
}

impl CudaDriver {
    /// `None`: the program has not loaded it.
    fn find() -> Option<Self> {
        let driver = cupti::driver()?;
        let info = driver.function(c"cuMemGetInfo_v2")?;
        let exchange = driver.function(c"cuThreadExchangeStreamCaptureMode")?;
        // SAFETY: the functions of these names have these types.
        unsafe {
            Some(Self {
                info: std::mem::transmute::<*mut c_void, MemGetInfo>(info),
                exchange: std::mem::transmute::<*mut c_void, ExchangeCaptureMode>(exchange),
            })
        }
    }
}

/// Memory of the GPU with the current context of this thread; `None`: no context. `searches`: look for a driver that
/// the program has loaded by now.
pub(crate) fn device_memory(searches: bool) -> Option<DeviceMemory> {
    /// `CU_STREAM_CAPTURE_MODE_RELAXED`: no call ends a capture of this thread (cuda.h).
    const RELAXED: c_int = 2;
    static DRIVER: OnceLock<CudaDriver> = OnceLock::new();
    if searches
        && DRIVER.get().is_none()
        && let Some(found) = CudaDriver::find()
    {
        DRIVER.get_or_init(|| found);
    }
    let driver = DRIVER.get()?;
    let (mut mode, mut free, mut total) = (RELAXED, 0, 0);
    // SAFETY: functions of the driver's library, with places for their results; without a context they fail.
    let result = unsafe {
        if (driver.exchange)(&raw mut mode) != 0 {
            return None;
        }
        let result = (driver.info)(&raw mut free, &raw mut total);
        (driver.exchange)(&raw mut mode);
        result
    };
    let (left, total) = (free as u64, total as u64);
    if result == 0 { Some(DeviceMemory { used: beyond(total, left), left }) } else { None }
}

/// The folders of a process's cgroups (`/proc/self/cgroup`), from its own up to the root.
fn folders(mount: &Path, groups: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => mount.to_owned(),
            one if one.split(',').any(|one| one == "memory") => mount.join("memory"),
            _ => continue,
        };
        let own = root.join(path.trim_start_matches('/'));
        found.extend(own.ancestors().take_while(|one| one.starts_with(&root)).map(Path::to_owned));
    }
    found
}

/// Bytes that a cgroup has left; `None`: it has no limit. Cached file pages count as left: they can be reclaimed.
fn left(group: &Path) -> Option<u64> {
    let number = |name: &str| text(&group.join(name))?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = text(&group.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let cached = if let Some(Ok(cached)) = cached.map(str::parse) { cached } else { 0 };
    Some(beyond(limit, beyond(used, cached)))
}

/// The start of a file of the kernel.
fn text(path: &Path) -> Option<String> {
    let mut bytes = [0; 4096];
    let length = read_into(path, &mut bytes);
    let read = bytes.get(..length)?;
    if read.is_empty() {
        return None;
    }
    Some(String::from_utf8_lossy(read).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts() {
        let mount = tempfile::tempdir().expect("a folder");
        let (root, inner) = (mount.path(), mount.path().join("a/b"));
        std::fs::create_dir_all(&inner).expect("made");
        let write = |folder: &Path, name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("written");
        };
        let outer = mount.path().join("a");
        for (folder, limit) in [(&inner, "max\n"), (&outer, "1000\n")] {
            write(folder, "memory.max", limit);
            write(folder, "memory.current", "900\n");
            write(folder, "memory.stat", "anon 500\ninactive_file 300\n");
        }
        let groups = folders(root, "12:cpu:/x\n0::/a/b\n");
        assert_eq!(groups, [inner.clone(), outer, root.to_owned()]);
        let found: Vec<_> = groups.iter().map(|one| left(one)).collect();
        assert_eq!(found, [None, Some(400), None]);
        let older = folders(root, "5:cpuset,memory:/docker/x\n");
        assert_eq!(older.len(), 3);
        assert!(older.iter().all(|one| one.starts_with(root.join("memory"))));
    }

    #[test]
    fn this_process_has_memory_left() {
        assert!(headroom_bytes().expect("the machine") > 1 << 20);
        assert!(malloc_use().is_some_and(|malloc| malloc.used > 0));
    }
}
