//! `/proc/PID/maps`: the files of a process that may contain a collector.

use crate::identify::is_libpython;
use crate::proc_status::{ProcessError, read};
use std::path::{Path, PathBuf};

/// One mapping of a file: a line of `/proc/PID/maps` with an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMapping {
    /// Address of its first byte in the process.
    pub start: u64,
    /// Address after its last byte in the process.
    pub end: u64,
    /// Whether its bytes may be executed (`x` among the permissions).
    pub executable: bool,
    /// File offset of the first byte.
    pub offset: u64,
    /// Device of the file as (major, minor); overlay file systems show another one than stat(2).
    pub device: (u32, u32),
    /// Inode number of the file on its device.
    pub inode: u64,
    /// Path as seen inside the process, without the marker of a deleted file.
    pub path: PathBuf,
    /// Whether the file was deleted or replaced after it was mapped.
    pub deleted: bool,
}

impl FileMapping {
    fn is_libpython(&self) -> bool {
        let name = self.path.file_name().map(|name| name.to_str());
        matches!(name, Some(Some(name)) if is_libpython(name))
    }
}

/// A file by device and inode, as stat(2) returns them.
pub type FileIdentity = (u64, u64);

/// The identity of the file that a path leads to.
///
/// # Errors
/// If there is none, or it may not be examined.
pub fn identity(path: &Path) -> std::io::Result<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// A mapped file that may contain a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Its lowest mapping; see [`crate::Resolution::lowest_address`].
    pub lowest: FileMapping,
    /// Path of the file for this process to open.
    pub openable: PathBuf,
}

/// All file mappings in `text`, in the format of `/proc/PID/maps`. Lines that cannot be parsed (truncated, from another
/// kernel) are skipped.
pub fn parse(text: &[u8]) -> Vec<FileMapping> {
    text.split(|byte| *byte == b'\n').filter_map(mapping).collect()
}

/// The file mappings of a process.
///
/// # Errors
/// If the process is gone, or its memory map may not be read.
pub fn mappings(pid: u32) -> Result<Vec<FileMapping>, ProcessError> {
    read(pid, "maps").map(|text| parse(&text))
}

/// The files of a process that may contain a collector: its executable, and files named like a
/// libpython. Empty until the loader has mapped something.
///
/// # Errors
/// If the process is gone, or its memory map may not be read.
pub fn candidates(pid: u32) -> Result<Vec<MappedFile>, ProcessError> {
    // With CAP_PERFMON the kernel may show a process's map but not its executable: a static interpreter would be
    // overlooked.
    let executable = match crate::proc_status::executable(pid) {
        Err(error @ ProcessError::Forbidden { .. }) => return Err(error),
        executable => executable.ok(),
    };
    let mut found: Vec<MappedFile> = Vec::new();
    for mapping in mappings(pid)? {
        let wanted = mapping.is_libpython() || executable.as_ref() == Some(&mapping.path);
        let is_same =
            |other: &FileMapping| (other.device, other.inode) == (mapping.device, mapping.inode);
        if wanted && !found.iter().any(|other| is_same(&other.lowest)) {
            found.push(MappedFile { openable: openable(pid, &mapping), lowest: mapping });
        }
    }
    Ok(found)
}

/// Whether a process has mapped a file named like a libpython: a quick check, for many processes.
///
/// # Errors
/// If the process is gone, or its memory map may not be read.
pub fn has_libpython(pid: u32) -> Result<bool, ProcessError> {
    read(pid, "maps").map(|text| names_libpython(&text))
}

/// Lines are parsed only if they may name one.
fn names_libpython(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"/libpython3.").is_some()
        && parse(text).iter().any(FileMapping::is_libpython)
}

/// A path for this process to open the file. It leads through the other process's root, and so also works across mount
/// namespaces; for a deleted or replaced file it leads through the mapping itself (needs privileges).
pub(crate) fn openable(pid: u32, mapping: &FileMapping) -> PathBuf {
    let mut through_root = PathBuf::from(format!("/proc/{pid}/root"));
    through_root.extend(mapping.path.components().skip(1));
    // In a chroot the path is the one outside it.
    for path in [through_root, mapping.path.clone()] {
        if !mapping.deleted && has_inode(&path, mapping.inode) {
            return path;
        }
    }
    PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end))
}

fn has_inode(path: &std::path::Path, inode: u64) -> bool {
    use std::os::unix::fs::MetadataExt;
    // Devices are not compared: an overlay file system shows a different one in `maps`.
    std::fs::metadata(path).is_ok_and(|metadata| metadata.ino() == inode)
}

/// `start-end perms offset major:minor inode      path`, where the path extends to the end of the
/// line, may contain spaces, and has newlines written as `\012`.
fn mapping(line: &[u8]) -> Option<FileMapping> {
    let mut rest = line;
    let mut field = || {
        let trimmed = rest.trim_ascii_start();
        let end = trimmed.iter().position(|byte| *byte == b' ').unwrap_or(trimmed.len());
        let (field, after) = trimmed.split_at_checked(end)?;
        rest = after;
        std::str::from_utf8(field).ok()
    };
    let (range, permissions, offset) = (field()?, field()?, field()?);
    let (device, inode) = (field()?, field()?);
    let (path, deleted) = path_of(rest.trim_ascii_start())?;
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    Some(FileMapping {
        start: hex(start)?,
        end: hex(end)?,
        executable: permissions.contains('x'),
        offset: hex(offset)?,
        device: (hex(major)?.try_into().ok()?, hex(minor)?.try_into().ok()?),
        inode: inode.parse().ok()?,
        path,
        deleted,
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn path_of(bytes: &[u8]) -> Option<(PathBuf, bool)> {
    use std::os::unix::ffi::OsStringExt;
    if !bytes.starts_with(b"/") {
        return None;
    }
    let (name, deleted) = match bytes.strip_suffix(b" (deleted)") {
        Some(name) => (name, true),
        None => (bytes, false),
    };
    let mut text = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let newline = rest.starts_with(b"\\012");
        text.push(if newline { b'\n' } else { byte });
        rest = if newline { rest.get(4..)? } else { after };
    }
    Some((std::ffi::OsString::from_vec(text).into(), deleted))
}

#[cfg(test)]
mod tests {
    use super::{names_libpython, parse};
    use std::path::Path;

    #[test]
    fn lines_of_every_kind_are_read() {
        let text = b"\
559e8b800000-559e8b8f0000 r-xp 00020000 fe:01 1234                       /usr/bin/python3.11
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000001000-7f0000002000 r--p 00003000 00:1f 99                         /a b/libpython3.9.so.1.0 (deleted)
7f0000002000-7f0000003000 r--p 00000000 00:1f 77                         /odd\\012name
7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                          [stack]
7ffd0000";
        let found = parse(text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].path, Path::new("/usr/bin/python3.11"));
        assert_eq!((found[0].offset, found[0].device, found[0].inode), (0x20000, (0xfe, 1), 1234));
        assert!(found[0].executable && !found[0].deleted);
        assert_eq!(found[1].path, Path::new("/a b/libpython3.9.so.1.0"));
        assert!(found[1].deleted);
        assert_eq!(found[2].path, Path::new("/odd\nname"));
    }

    #[test]
    fn a_libpython_is_seen_among_other_files() {
        let line = |path: &str| format!("7f0000001000-7f0000002000 r-xp 0 fe:01 9 {path}\n");
        let libc = line("/lib/x86_64-linux-gnu/libc.so.6");
        let says = |path: &str| names_libpython((libc.clone() + &line(path)).as_bytes());
        assert!(says("/opt/lib/libpython3.13t.so.1.0"));
        assert!(says("/opt/lib/libpython3.8.so.1.0 (deleted)"));
        assert!(!says("/opt/lib/libpython3.so"));
        assert!(!says("/opt/libpython3.9.so.d/other.so"));
        assert!(!names_libpython(libc.as_bytes()));
    }
}
