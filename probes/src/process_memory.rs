//! How much memory a process uses, and how much it may use.
//!
//! Owns where Linux reports it: `/proc/PID/statm`, `/proc/meminfo`, and the limits of the process's cgroups, version 2
//! and 1 (cgroups(7)). A figure that cannot be read is unknown.

use crate::proc_status;
use std::path::Path;

/// Resident memory of a process, in bytes: the second number of `/proc/PID/statm`, in pages
/// (proc_pid_statm(5)). `None` if it cannot be read.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let page_bytes = u64::try_from(page.ok()??).ok()?;
    // A process that exited and was not reaped has none: this shows nothing about the time before.
    let bytes = pages.checked_mul(page_bytes)?;
    if bytes > 0 { Some(bytes) } else { None }
}

/// Memory of a process that it shares with no other, in bytes: `Private_Clean` and `Private_Dirty` of
/// `/proc/PID/smaps_rollup` (Linux 4.14). `None` if it cannot be read.
pub fn private_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let private = text.lines().filter(|line| line.starts_with("Private_"));
    let kib = private.map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    kib.sum::<Option<u64>>()?.checked_mul(1024)
}

/// Memory of a process that is resident or swapped out, in bytes: `VmRSS`, `VmSwap` and
/// `HugetlbPages` of `/proc/PID/status`. `None` if it cannot be read.
pub fn used_bytes(pid: u32) -> Option<u64> {
    let status = proc_status::read(pid, "status").ok()?;
    let status = String::from_utf8_lossy(&status);
    let others = ["VmSwap:", "HugetlbPages:"];
    let others = others.iter().filter_map(|name| kib_line(&status, name));
    others.fold(kib_line(&status, "VmRSS:"), |sum, part| sum.map(|sum| sum.saturating_add(part)))
}

/// Memory that is left for this process, in bytes: `MemAvailable` of `/proc/meminfo`, or what its
/// cgroups leave it if that is less. `None` if it cannot be read.
pub fn available_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok()?;
    let available = kib_line(&machine, "MemAvailable:")?;
    let pid = std::process::id();
    let of_cgroup = match limit_bytes(pid) {
        Some(limit) => gctrace_units::beyond(limit, resident_bytes(pid).unwrap_or(0)),
        None => u64::MAX,
    };
    Some(available.min(of_cgroup))
}

/// Memory that a process may use, in bytes: the smallest limit of its cgroups and those above them,
/// or the memory of the machine if that is less. `None` if its cgroup is not visible from here.
pub fn limit_bytes(pid: u32) -> Option<u64> {
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let machine = std::fs::read_to_string("/proc/meminfo").ok()?;
    let machine_bytes = memory_total_bytes(&machine)?;
    let limits = cgroup_limits(&cgroups, Path::new("/sys/fs/cgroup"))?;
    Some(limits.into_iter().fold(machine_bytes, u64::min))
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn memory_total_bytes(meminfo: &str) -> Option<u64> {
    kib_line(meminfo, "MemTotal:")
}

/// The bytes in a line such as `VmRSS:  8192 kB`.
fn kib_line(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The limits of the memory cgroup in `/proc/PID/cgroup`, and of those above it. `None` if it is
/// outside of the cgroup namespace that is mounted here.
fn cgroup_limits(cgroups: &str, mounted: &Path) -> Option<Vec<u64>> {
    let mut limits = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (folder, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|split| split == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        if path.split('/').any(|part| part == "..") {
            return None;
        }
        let group = folder.join(path.trim_start_matches('/'));
        let visible = group.ancestors().take_while(|above| above.starts_with(&folder));
        limits.extend(visible.filter_map(|above| {
            let text = std::fs::read_to_string(above.join(file)).ok()?;
            // "max": none.
            text.trim().parse::<u64>().ok()
        }));
    }
    Some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_less_than_it_may() {
        let resident = resident_bytes(std::process::id()).unwrap();
        assert!(resident > 100_000, "{resident}");
        match limit_bytes(std::process::id()) {
            Some(limit) => assert!(resident < limit, "{resident} of {limit}"),
            None => eprintln!("skipped: the cgroup of this process is not visible"),
        }
        let used = used_bytes(std::process::id()).unwrap();
        let available = available_bytes().unwrap();
        assert!(used > 100_000 && available > 100_000, "{used} {available}");
        assert_eq!(used_bytes(u32::MAX), None);
        assert_eq!(resident_bytes(u32::MAX), None);
        assert_eq!(limit_bytes(u32::MAX), None);
    }

    #[test]
    fn the_smallest_limit_of_the_cgroups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("kubepods/pod1/container");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("memory.max"), "max\n").unwrap();
        let pod = dir.path().join("kubepods/pod1/memory.max");
        std::fs::write(pod, "17179869184\n").unwrap();
        let old = dir.path().join("memory/a");
        std::fs::create_dir_all(&old).unwrap();
        std::fs::write(old.join("memory.limit_in_bytes"), "4096\n").unwrap();
        let limits = |cgroups: &str| cgroup_limits(cgroups, dir.path());
        assert_eq!(limits("0::/kubepods/pod1/container\n"), Some(vec![17_179_869_184]));
        assert_eq!(limits("5:cpu,memory:/a\n4:pids:/b\n"), Some(vec![4096]));
        assert_eq!(limits("0::/../other\n"), None, "in another namespace");
        assert_eq!(limits("0::/\n"), Some(Vec::new()));
        assert_eq!(limits("nonsense"), None);
    }

    #[test]
    fn memory_of_the_machine() {
        let text = "MemFree: 1 kB\nMemTotal:       16310716 kB\nBuffers: 3 kB\n";
        assert_eq!(memory_total_bytes(text), Some(16_310_716 * 1024));
        assert_eq!(memory_total_bytes("MemTotal: many kB"), None);
    }
}
