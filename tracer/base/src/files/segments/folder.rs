//! The files of a recorder: segments, the folders it keeps, and the lock; others find the recorder by the lock.

use super::{LOCK, number, segment_name, segments_in};
use crate::files::{FileError, FileFailure, as_invoker, lock, system};
use crate::invoker::Invoker;
use crate::platform;
use gctrace_analysis::clean;
use gctrace_probes::proc_status;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Asks a recorder to keep its segments.
const KEEP: Signal = Signal::SIGUSR2;
/// The kernel's name of a gctrace.
pub const PROGRAM: &str = "gctrace";
/// Name of a folder that is kept, before its number.
const KEPT: &str = "kept-";
/// Why it is kept.
const REASON: &str = "reason.txt";
/// Permissions of a directory before the umask.
const FOLDER_MODE: u32 = 0o777;

/// The directory of a recorder: no other recorder uses it.
#[derive(Debug)]
pub struct SegmentFolder {
    path: PathBuf,
    invoker: Invoker,
    /// Locked until it is closed, also by a kill.
    _lock: File,
}

impl SegmentFolder {
    /// Makes or takes over a directory as `invoker`. Segments of an earlier recording are moved into a
    /// folder that is kept; its path is returned, if there is one.
    ///
    /// # Errors
    /// It cannot be created, another recorder has it, or it has other files than a recorder's.
    pub fn open(
        path: &Path,
        invoker: &Invoker,
        option: &'static str,
    ) -> Result<(Self, Option<PathBuf>), FileError> {
        let opened = as_invoker(invoker, || {
            let refused = |reason: &str| Err(FileFailure::Refused(reason.to_owned()));
            match std::fs::read_dir(path) {
                Ok(mut entries) => {
                    if !path.join(LOCK).exists() && entries.next().is_some() {
                        return refused(
                            "is a directory with other files; with --keep name a new directory",
                        );
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => make_folder(path)?,
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    return refused("is a file; with --keep name a directory");
                }
                Err(error) => return Err(error.into()),
            }
            let owner = std::fs::metadata(path)?.uid();
            if ![0, invoker.uid].contains(&owner) {
                return refused("is a directory of another user; with --keep name one of your own");
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(system::MODE);
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
            let lock = options.custom_flags(flags).open(path.join(LOCK))?;
            let found = lock.metadata()?;
            if !found.is_file() || found.nlink() != 1 {
                return refused("has a recorder.lock that is not gctrace's; name a new directory");
            }
            if !lock::take(&lock)? {
                return refused("is being written by another gctrace");
            }
            let earlier: Vec<PathBuf> =
                segments_in(path).into_iter().map(|(_, segment)| segment).collect();
            let moved = match earlier.is_empty() {
                true => None,
                false => {
                    let why = "the recording before, which ended or was killed";
                    let kept = next_kept(path);
                    fill_folder(&kept, why)?;
                    for segment in earlier {
                        let name = segment.file_name().unwrap_or_default();
                        std::fs::rename(&segment, kept.join(name))?;
                    }
                    Some(kept)
                }
            };
            Ok((lock, moved))
        });
        let (lock, moved) = opened.map_err(|failure| failure.of(path, invoker, option))?;
        Ok((Self { path: path.to_owned(), invoker: invoker.clone(), _lock: lock }, moved))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a segment.
    pub fn segment(&self, number: u64) -> PathBuf {
        self.path.join(segment_name(number))
    }

    /// A new file for a segment.
    ///
    /// # Errors
    /// The kernel's; there is one of this number.
    pub fn create(&self, number: u64) -> io::Result<File> {
        let path = self.segment(number);
        self.act(|| {
            let mut options = OpenOptions::new();
            Ok(options.write(true).create_new(true).mode(system::MODE).open(&path)?)
        })
    }

    /// Deletes a segment.
    ///
    /// # Errors
    /// The kernel's; not if it is gone already.
    pub fn remove(&self, number: u64) -> io::Result<()> {
        let path = self.segment(number);
        self.act(|| match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        })
    }

    /// Number of folders that are kept.
    pub fn kept(&self) -> usize {
        kept_in(&self.path).len()
    }

    /// Keeps these segments in a folder of their own, by links, or copies where there are none. Those
    /// that are gone are left out.
    ///
    /// # Errors
    /// The kernel's; the folder may have some of them then.
    pub fn keep(&self, numbers: &[u64], reason: &str) -> io::Result<PathBuf> {
        self.act(|| {
            let kept = next_kept(&self.path);
            // It appears complete: `gctrace dump --keep` waits for it.
            let made = kept.with_extension("new");
            if made.exists() {
                std::fs::remove_dir_all(&made)?;
            }
            fill_folder(&made, reason)?;
            for number in numbers {
                let (from, to) = (self.segment(*number), made.join(segment_name(*number)));
                match std::fs::hard_link(&from, &to) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(_) => drop(std::fs::copy(&from, &to)?),
                    Ok(()) => {}
                }
            }
            std::fs::rename(&made, &kept)?;
            Ok(kept)
        })
    }

    /// Removes a folder that [`SegmentFolder::keep`] has made, if nothing else was put into it.
    ///
    /// # Errors
    /// The kernel's; there are other files in it. Not if it is gone already.
    pub fn remove_kept(&self, kept: &Path) -> io::Result<()> {
        self.act(|| {
            let entries = match std::fs::read_dir(kept) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                entries => entries?,
            };
            let files: Vec<PathBuf> =
                entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
            let is_own = |file: &PathBuf| file.ends_with(REASON) || number(file).is_some();
            if !files.iter().all(is_own) {
                return Err(FileFailure::Refused("it has other files".to_owned()));
            }
            for file in files {
                std::fs::remove_file(file)?;
            }
            Ok(std::fs::remove_dir(kept)?)
        })
    }

    fn act<R: Send>(
        &self,
        action: impl FnOnce() -> Result<R, FileFailure> + Send,
    ) -> io::Result<R> {
        as_invoker(&self.invoker, action).map_err(|failure| match failure {
            FileFailure::Io(error) => error,
            FileFailure::Refused(reason) => io::Error::other(reason),
        })
    }
}

/// A process that is proven to be the recorder of a directory: it has the lock, it is a gctrace, and it runs as root or
/// as the owner of the lock.
#[derive(Debug)]
pub struct FoundRecorder {
    /// Its id, as this process knows it.
    pub pid: u32,
    /// The owner of its files.
    pub owner: u32,
    /// The directory.
    pub directory: PathBuf,
    process: OwnedFd,
}

impl FoundRecorder {
    /// Asks it to keep its segments.
    ///
    /// # Errors
    /// The kernel's: it has ended, or may not be signaled.
    pub fn ask_to_keep(&self) -> Result<(), Errno> {
        platform::send_signal(&self.process, KEEP)
    }

    /// Opens one of its segments.
    ///
    /// # Errors
    /// It is gone, or not the recorder's.
    pub fn open(&self, number: u64) -> io::Result<File> {
        open_own(&self.directory.join(segment_name(number)), self.owner)
    }
}

/// The recorder of a directory; `None`: no process records into it.
///
/// # Errors
/// The directory is not a recorder's, or cannot be read; the owner of its lock is no recorder, or is in another pid
/// namespace.
pub fn recorder_of(directory: &Path) -> io::Result<Option<FoundRecorder>> {
    let path = directory.join(LOCK);
    let owner = std::fs::symlink_metadata(&path)?.uid();
    let lock = open_own(&path, owner)?;
    if lock.metadata()?.nlink() != 1 {
        return Err(io::Error::other(format!("{LOCK} has other names")));
    }
    // Root may have made the directory for its user.
    let folder = std::fs::metadata(directory)?.uid();
    if ![0, owner].contains(&folder) {
        return Err(io::Error::other(format!(
            "the directory is of user {folder}, but {LOCK} of user {owner}"
        )));
    }
    let Some(pid) = locked_by(&lock)? else { return Ok(None) };
    let process = platform::pidfd(pid)?;
    if let Err(reason) = is_recorder(pid, owner) {
        return Err(io::Error::other(format!(
            "process {pid} holds {LOCK} but is no recorder: {reason}"
        )));
    }
    // It had the lock all the time, so that the descriptor and the facts are of one process.
    if locked_by(&lock)? != Some(pid) {
        return Ok(None);
    }
    Ok(Some(FoundRecorder { pid, owner, directory: directory.to_owned(), process }))
}

/// Opens a regular file of this user, and nothing else: no link is followed, and nothing waits.
fn open_own(path: &Path, owner: u32) -> io::Result<File> {
    let is_own = |found: &Metadata| found.is_file() && found.uid() == owner;
    let refused = || {
        let name = path.file_name().unwrap_or_default().display();
        io::Error::other(format!("{name} is not a file of user {owner}"))
    };
    if !is_own(&std::fs::symlink_metadata(path)?) {
        return Err(refused());
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if is_own(&file.metadata()?) { Ok(file) } else { Err(refused()) }
}

/// The process that has the lock.
fn locked_by(lock: &File) -> io::Result<Option<u32>> {
    match lock::holder(lock)? {
        Some(None) => {
            Err(io::Error::other("its recorder is on another machine or in another pid namespace"))
        }
        holder => Ok(holder.flatten()),
    }
}

/// Why a process is not the recorder of a directory of this user. A signal that it does not expect would end it.
fn is_recorder(pid: u32, owner: u32) -> Result<(), String> {
    let status = proc_status::status(pid).map_err(|error| error.to_string())?;
    if let Some(other) = status.users.iter().find(|user| ![0, owner].contains(user)) {
        return Err(format!("it runs as user {other}"));
    }
    let file = |of: &str| system::file_id(Path::new(&format!("/proc/{of}/exe")));
    let is_gctrace = status.name == PROGRAM
        || file(&pid.to_string()).is_some_and(|file_of| file("self") == Some(file_of));
    if !is_gctrace {
        return Err(format!("it is {}", clean::line(&status.name)));
    }
    if status.users.is_empty() || !status.expects(KEEP as i32) {
        return Err(format!("it does not expect {KEEP}"));
    }
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// Path of the next folder to keep segments in.
fn next_kept(directory: &Path) -> PathBuf {
    let last = if let Some((number, _)) = kept_in(directory).last() { *number } else { 0 };
    directory.join(format!("{KEPT}{}", last.saturating_add(1)))
}

/// Makes a folder with the reason in it.
fn fill_folder(folder: &Path, reason: &str) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(FOLDER_MODE).create(folder)?;
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(system::MODE).open(folder.join(REASON))?;
    file.write_all(format!("{reason}\n").as_bytes())
}

/// The folders that are kept, by number.
pub fn kept_in(directory: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let number = |path: &Path| path.file_name()?.to_str()?.strip_prefix(KEPT)?.parse().ok();
    let mut kept: Vec<(u64, PathBuf)> =
        paths.filter_map(|path| Some((number(&path)?, path))).collect();
    kept.sort();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_recorder_has_a_directory_and_nothing_of_others_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (path, invoker) = (dir.path().join("a/ring"), Invoker::detect());
        let open = || SegmentFolder::open(&path, &invoker, "-o");
        let (folder, moved) = open().unwrap();
        assert_eq!(moved, None);
        for number in [1, 2] {
            folder.create(number).unwrap().write_all(b"x").unwrap();
        }
        folder.create(2).expect_err("there is one");
        let kept = folder.keep(&[1, 2, 3], "because").unwrap();
        folder.remove(1).unwrap();
        folder.remove(1).unwrap();
        assert_eq!(segments_in(&kept).len(), 2, "links outlive the segments");
        assert_eq!(std::fs::read_to_string(kept.join(REASON)).unwrap(), "because\n");
        std::fs::write(kept.join("notes"), "mine").unwrap();
        folder.remove_kept(&kept).expect_err("it has a file of the user");
        assert_eq!(segments_in(&kept).len(), 2);
        let second = folder.keep(&[2], "because").unwrap();
        for _ in 0..2 {
            folder.remove_kept(&second).unwrap();
            assert!(!second.exists());
        }
        drop(folder);
        let (folder, moved) = open().unwrap();
        assert_eq!(moved, Some(path.join("kept-2")), "the recording before is kept");
        assert!(segments_in(&path).is_empty());
        assert_eq!(folder.kept(), 2);
        std::fs::write(dir.path().join("a/file"), "mine").unwrap();
        for other in ["a", "a/file"] {
            let refused = SegmentFolder::open(&dir.path().join(other), &invoker, "-o");
            let error = refused.expect_err(other).to_string();
            assert!(error.contains("with --keep name a"), "{error}");
        }
    }
}
