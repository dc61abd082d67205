//! Files with Linux's system calls.

use super::FileFailure;
use super::existing::OutputPath;
use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, OFlag, fcntl};
use nix::unistd::linkat;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileType, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

/// Permissions of new files, before the umask.
pub(super) const MODE: u32 = 0o644;
/// Neither a FIFO nor a terminal holds up an open with these flags.
const NEVER_WAIT: i32 = libc::O_NOCTTY | libc::O_NONBLOCK;

/// Device and inode.
pub(super) type FileId = (u64, u64);

/// The identity of an existing file, following links.
pub(super) fn file_id(path: &Path) -> Option<FileId> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Whether it is a block device.
pub(super) fn is_disk(kind: FileType) -> bool {
    kind.is_block_device()
}

/// A temporary file that becomes one of the user's.
pub(super) fn new_file() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gctrace-").permissions(Permissions::from_mode(MODE));
    builder
}

/// A file without a name in this folder, for reading and appending to (or writing, without `append`):
/// the kernel frees it with its last descriptor, whoever is killed, unless it is named ([`name`]). `None` on
/// file systems without such files (NFS), and without `/proc`.
pub(super) fn unnamed(folder: &Path, append: bool, mode: u32) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).append(append).mode(mode).custom_flags(libc::O_TMPFILE);
    let file = options.open(folder).ok()?;
    if Path::new(&descriptor(&file)).exists() { Some(file) } else { None }
}

/// Gives a name to a file that has none.
pub(super) fn name(file: &File, path: &Path) -> io::Result<()> {
    let descriptor = descriptor(file);
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    linkat(AT_FDCWD, descriptor.as_str(), AT_FDCWD, path, follow).map_err(Into::into)
}

/// The same file, opened again for reading.
pub(super) fn again(file: &File) -> io::Result<File> {
    File::open(descriptor(file))
}

/// A path of an open file, with or without a name.
fn descriptor(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Opens a file for reading; a FIFO in its place does not block.
pub(super) fn open_for_reading(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(NEVER_WAIT).open(path)
}

/// Opens a file for writing or, with `append`, for appending; creates it if needed. Does not wait for
/// the reader of a FIFO.
pub(super) fn open(path: &Path, append: bool) -> Result<File, FileFailure> {
    let mut options = OpenOptions::new();
    options.write(true).append(append).create(true).mode(MODE).custom_flags(NEVER_WAIT);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            return Err(FileFailure::Refused(
                "is a FIFO that nothing reads: start its reader first".to_owned(),
            ));
        }
        Err(error) => return Err(error.into()),
    };
    // Only the open is nonblocking; the command would inherit the flag.
    let flags = fcntl(&file, FcntlArg::F_GETFL).map_err(io::Error::from)?;
    let flags = OFlag::from_bits_retain(flags).difference(OFlag::O_NONBLOCK);
    fcntl(&file, FcntlArg::F_SETFL(flags)).map_err(io::Error::from)?;
    Ok(file)
}

/// The first word of `command` that names the file at `path`; the file must then not be written.
pub(super) fn named_by_command<'a>(path: &Path, command: &'a [OsString]) -> Option<&'a OsStr> {
    let place = OutputPath::of(path);
    command.iter().enumerate().find_map(|(index, word)| {
        // A program without a slash is looked up in PATH.
        if index == 0 && !word.as_bytes().contains(&b'/') {
            return None;
        }
        let value = word.as_bytes().iter().position(|byte| *byte == b'=');
        let value = value.and_then(|at| word.as_bytes().get(at + 1..));
        let names = |bytes: &[u8]| {
            !bytes.is_empty() && OutputPath::of(Path::new(OsStr::from_bytes(bytes))).is(&place)
        };
        let same = names(word.as_bytes()) || value.is_some_and(names);
        if same { Some(word.as_os_str()) } else { None }
    })
}

/// Whether gctrace's standard input, output or error is this file.
pub(super) fn is_own_stream(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(false);
    }
    Ok([0, 1, 2].into_iter().any(|number| {
        // SAFETY: not closed here; fstat fails if it is not open.
        let stream = unsafe { BorrowedFd::borrow_raw(number) };
        nix::sys::stat::fstat(stream)
            .is_ok_and(|fstat| (fstat.st_dev, fstat.st_ino) == (found.dev(), found.ino()))
    }))
}
