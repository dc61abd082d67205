//! Memory that is left to this process: by its cgroups, and by the machine.

use super::files::read_into;
use std::path::{Path, PathBuf};

/// Where cgroups are mounted; those of memory alone (version 1) below `memory`.
const MOUNT: &str = "/sys/fs/cgroup";

/// Memory that is left to the process, in bytes: the least of what its cgroups and the machine have;
/// `None`: unknown.
pub(crate) fn headroom_bytes() -> Option<u64> {
    let groups = text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let groups = folders(Path::new(MOUNT), &groups).into_iter().filter_map(|one| left(&one));
    groups.chain(available()).min()
}

/// In use of the C library's memory, in bytes.
pub(crate) fn malloc_bytes() -> u64 {
    // SAFETY: may be called at any time.
    let sums = unsafe { libc::mallinfo2() };
    (sums.uordblks as u64).saturating_add(sums.hblkhd as u64)
}

/// `MemAvailable` of the machine.
fn available() -> Option<u64> {
    let text = text(Path::new("/proc/meminfo"))?;
    let value = text.split("MemAvailable:").nth(1)?.split_whitespace().next()?;
    value.parse::<u64>().ok()?.checked_mul(1024)
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

/// What a cgroup has left; `None`: it has no limit. What is cached of files can be had back.
fn left(group: &Path) -> Option<u64> {
    let number = |name: &str| text(&group.join(name))?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = text(&group.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let cached = cached.and_then(|value| value.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

/// The start of a file of the kernel.
fn text(path: &Path) -> Option<String> {
    let mut bytes = [0; 4096];
    let length = read_into(path, &mut bytes);
    let read = bytes.get(..length).filter(|read| !read.is_empty())?;
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
        assert!(malloc_bytes() > 0);
    }
}
