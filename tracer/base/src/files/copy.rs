//! Files of known contents: private copies of files in this binary, and installed files.

use nix::unistd::Uid;
use std::fs::OpenOptions;
use std::io;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Makes the file at `path` a copy of `contents` with these permissions, whatever the umask; returns whether it changed
/// anything. An existing copy stays: programs have it mapped. Anything else, links included, is replaced by a rename.
/// Only this process's user can write in the folder of `path`.
///
/// # Errors
/// The copy cannot be written. The previous file remains.
pub fn keep_copy(path: &Path, contents: &[u8], mode: u32) -> io::Result<bool> {
    if is_copy(path, contents, mode) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut made = tempfile::Builder::new().prefix(".gctrace-").tempfile_in(folder)?;
    made.write_all(contents)?;
    let permissions = std::fs::Permissions::from_mode(mode);
    made.as_file().set_permissions(permissions)?;
    made.as_file().sync_all()?;
    // Without replacing: on a network file system, the pages of a file that another machine has
    // replaced are gone for the programs that mapped it.
    match made.persist_noclobber(path) {
        Ok(_) => Ok(true),
        // Another process was first.
        Err(_) if is_copy(path, contents, mode) => Ok(false),
        Err(error) => match error.file.persist(path) {
            Ok(_) => Ok(true),
            Err(error) => Err(error.error),
        },
    }
}

/// Whether `path` is a regular file with these contents and permissions that belongs to this
/// process's user.
fn is_copy(path: &Path, contents: &[u8], mode: u32) -> bool {
    let opened =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let Ok(file) = opened else { return false };
    let as_expected = file.metadata().is_ok_and(|found| {
        found.is_file()
            && found.uid() == Uid::effective().as_raw()
            && found.mode() & 0o7777 == mode
            && found.len() == contents.len() as u64
    });
    let mut present = Vec::with_capacity(contents.len());
    let limit = contents.len() as u64 + 1;
    as_expected && file.take(limit).read_to_end(&mut present).is_ok() && present == contents
}
