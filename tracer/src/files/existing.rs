//! Checks of existing files before writing. Called with the permissions of the user that will write.

use super::FileFailure;
use nix::fcntl::FcntlArg;
use nix::fcntl::OFlag;
use nix::fcntl::fcntl;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::fs::Metadata;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::path::PathBuf;

/// Permissions of new files, before the umask.
pub(super) const MODE: u32 = 0o644;

/// Kind of file at a path, by what would be lost if it were written to.
pub(super) enum ExistingFile {
    /// No file, or an empty one: there is nothing to lose.
    Nothing,
    /// A file with content.
    Content,
    /// A pipe or a character device.
    Stream,
}

/// Checks `path`, following links.
///
/// # Errors
/// A block device, which must never be written to, or a failed system call.
pub(super) fn look(path: &Path) -> Result<ExistingFile, FileFailure> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ExistingFile::Nothing),
        Err(error) => return Err(error.into()),
    };
    let kind = found.file_type();
    if kind.is_block_device() {
        return Err(FileFailure::Refused("is a disk; name a file".to_owned()));
    }
    Ok(match (found.is_file(), found.len()) {
        (true, 0) => ExistingFile::Nothing,
        (true, _) => ExistingFile::Content,
        (false, _) => ExistingFile::Stream,
    })
}

/// Opens a file for writing or, with `append`, for appending; creates it if needed. Does not wait for
/// the reader of a FIFO.
pub(super) fn open(path: &Path, append: bool) -> Result<File, FileFailure> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .append(append)
        .create(true)
        .mode(MODE)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
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

/// Whether `path` refers to one of these files.
pub(super) fn is_among(path: &Path, files: &[PathBuf]) -> bool {
    let place = OutputPath::of(path);
    files.iter().any(|file| OutputPath::of(file).is(&place))
}

/// The first word of `command` that names the file at `path`, which must then not be written.
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
        same.then_some(word.as_os_str())
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
            .is_ok_and(|own| (own.st_dev, own.st_ino) == (found.dev(), found.ino()))
    }))
}

/// A resolved path, for comparisons.
struct OutputPath {
    found: Option<Metadata>,
    /// Canonical path; if the file does not exist, the canonical parent and the name.
    path: PathBuf,
}

impl OutputPath {
    fn of(path: &Path) -> Self {
        let whole = std::fs::canonicalize(path).ok();
        let parent = || {
            let parent = path.parent().filter(|parent| *parent != Path::new(""));
            let parent = std::fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()?;
            Some(parent.join(path.file_name()?))
        };
        Self {
            found: std::fs::metadata(path).ok(),
            path: whole.or_else(parent).unwrap_or_else(|| path.to_owned()),
        }
    }

    fn is(&self, other: &Self) -> bool {
        let id = |place: &Self| Some((place.found.as_ref()?.dev(), place.found.as_ref()?.ino()));
        match (id(self), id(other)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => self.path == other.path,
            _ => false,
        }
    }
}
