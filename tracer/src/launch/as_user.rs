//! Files made on behalf of the user who typed the command: the trace, the command's output, and the cache.
//!
//! Root must not write through a user's symbolic link with root's rights, nor believe a cache that
//! a user can write: what it says decides where breakpoints are placed.

use crate::launch::invoker::Credentials;
use crate::launch::invoker::Invoker;
use crate::privileges::has_more_rights_than_its_user;
use crate::variables::Decides;
use crate::variables::variable;
use nix::unistd::Uid;
use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

/// The cache of root's recordings.
const ROOT_CACHE: &str = "/var/cache/gctrace";

/// A file that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create {} as {user}", path.display())]
pub(crate) struct FileError {
    path: PathBuf,
    user: String,
    /// With which another one is chosen.
    option: &'static str,
    source: io::Error,
}

impl FileError {
    fn new(path: &Path, invoker: &Invoker, option: &'static str, source: io::Error) -> Self {
        Self {
            path: path.to_owned(),
            user: invoker.name.clone(),
            option,
            source,
        }
    }

    /// It was named with this option.
    pub(crate) fn named_by(self, option: &'static str) -> Self {
        Self { option, ..self }
    }

    /// With which another one is chosen.
    pub(crate) fn option(&self) -> &'static str {
        self.option
    }
}

/// Creates or empties the trace with the rights of the invoker, who then owns a new one.
pub(crate) fn create_trace(path: &Path, invoker: &Invoker) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .custom_flags(libc::O_NOCTTY);
    let made = act_as(invoker, || options.open(path)).and_then(|opened| opened);
    made.map_err(|source| FileError::new(path, invoker, "-o", source))
}

/// Opens a file for the command's output, after what is in it, with the rights of the invoker.
pub(crate) fn create_output(path: &Path, invoker: &Invoker) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(0o644)
        .custom_flags(libc::O_NOCTTY);
    let made = act_as(invoker, || options.open(path)).and_then(|opened| opened);
    made.map_err(|source| FileError::new(path, invoker, "--output", source))
}

/// Makes a new file for the command's output in a directory for temporary files: the invoker's alone (mode 0600).
pub(crate) fn create_temporary_output(
    directory: &Path,
    invoker: &Invoker,
) -> Result<(File, PathBuf), FileError> {
    let make = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("gctrace-").suffix(".out").append(true);
        Ok(builder.tempfile_in(directory)?.keep()?)
    };
    let made = act_as(invoker, make).and_then(|made| made);
    made.map_err(|source| FileError::new(directory, invoker, "--output", source))
}

/// Opens the command's output for reading, with the rights of the invoker, if it is a regular file and still the
/// one that `written` writes to: root does not read whatever a user has put in its place.
pub(crate) fn read_output(path: &Path, written: &File, invoker: &Invoker) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
    let file = act_as(invoker, || options.open(path)).and_then(|opened| opened)?;
    let (ours, found) = (written.metadata()?, file.metadata()?);
    let is_same = (ours.dev(), ours.ino()) == (found.dev(), found.ino());
    if found.is_file() && is_same {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file: it is not shown here"))
    }
}

/// Removes a file made by [`create_temporary_output`].
pub(crate) fn remove_output(path: &Path, invoker: &Invoker) -> io::Result<()> {
    act_as(invoker, || std::fs::remove_file(path)).and_then(|removed| removed)
}

/// Runs `action` with the invoker's access to files: on a thread of its own, because these ids
/// belong to a thread. Where gctrace already is that user, it simply runs.
///
/// # Errors
/// The kernel's, if the ids may not be taken on; `action` has not run then.
pub(super) fn act_as<R: Send>(
    invoker: &Invoker,
    action: impl FnOnce() -> R + Send,
) -> io::Result<R> {
    if Uid::effective().as_raw() == invoker.uid {
        return Ok(action());
    }
    let credentials = Credentials::of(invoker);
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || credentials.take_on_for_files().map(|()| action()));
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that acts for the user failed")))
    })
}

/// Where resolutions of interpreters are kept between recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cache {
    directory: PathBuf,
    /// With file capabilities (setcap) a user has rights over others' programs that a forged cache
    /// would lend to its forger: it is then believed for the user's own files alone.
    only_files_of: Option<u32>,
}

impl Cache {
    /// Opens or makes the cache that fits gctrace's rights: root's own as root, otherwise the
    /// user's. `None` where there is none to trust; everything works without, only slower.
    pub(crate) fn open(invoker: &Invoker) -> Option<Self> {
        if Uid::effective().is_root() {
            return Self::at(Path::new(ROOT_CACHE), 0, None);
        }
        let named = variable("XDG_CACHE_HOME", Decides::Place).map(PathBuf::from);
        let base = named
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| invoker.home.join(".cache"));
        Self::at(
            &base.join("gctrace"),
            invoker.uid,
            has_more_rights_than_its_user().then_some(invoker.uid),
        )
    }

    fn at(directory: &Path, owner: u32, only_files_of: Option<u32>) -> Option<Self> {
        let _ = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        let found = std::fs::symlink_metadata(directory).ok()?;
        let trusted = found.is_dir() && found.uid() == owner && found.mode() & 0o022 == 0;
        trusted.then(|| Self {
            directory: directory.to_owned(),
            only_files_of,
        })
    }

    /// The directory to use for a file of this owner, if any.
    pub(crate) fn for_file_of(&self, owner: u32) -> Option<&Path> {
        let usable = self.only_files_of.is_none_or(|user| user == owner);
        usable.then_some(self.directory.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_cache_that_others_can_write_is_not_used() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("deep/gctrace");
        let own = Uid::effective().as_raw();
        let made = Cache::at(&directory, own, None).expect("a cache");
        assert_eq!(made.for_file_of(own + 1), Some(directory.as_path()));
        assert_eq!(
            std::fs::metadata(&directory).expect("made").mode() & 0o777,
            0o700
        );

        assert_eq!(Cache::at(&directory, own + 1, None), None);
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o770)).expect("chmod");
        assert_eq!(Cache::at(&directory, own, None), None);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).expect("a link");
        assert_eq!(Cache::at(&link, own, None), None);
    }

    #[test]
    fn with_file_capabilities_it_is_for_own_files() {
        let cache = Cache {
            directory: "/c".into(),
            only_files_of: Some(1000),
        };
        assert_eq!(cache.for_file_of(1000), Some(Path::new("/c")));
        assert_eq!(cache.for_file_of(0), None);
    }

    #[test]
    fn a_trace_that_cannot_be_made_says_where_and_who() {
        let invoker = Invoker::detect();
        let error = create_trace(Path::new("/nonexistent/trace.json"), &invoker)
            .expect_err("no such directory");
        assert_eq!(
            error.to_string(),
            format!("cannot create /nonexistent/trace.json as {}", invoker.name)
        );
    }
}
