//! The files of a recorder: segments, the folders it keeps, and the lock by which it is found.

use super::{LOCK, number, segment_name, segments_in};
use crate::files::{FileError, FileFailure, as_invoker, lock, system};
use crate::invoker::Invoker;
use std::fs::{File, OpenOptions};
use std::io;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Name of a folder that is kept, before its number.
const KEPT: &str = "kept-";
/// Why it is kept.
const REASON: &str = "reason.txt";
/// Permissions of a directory before the umask.
const FOLDER_MODE: u32 = 0o777;

/// The directory of a recorder, which has it for itself.
#[derive(Debug)]
pub(crate) struct SegmentFolder {
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
    pub(crate) fn open(
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
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(system::MODE);
            let lock = options.custom_flags(libc::O_NOFOLLOW).open(path.join(LOCK))?;
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
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a segment.
    pub(crate) fn segment(&self, number: u64) -> PathBuf {
        self.path.join(segment_name(number))
    }

    /// A new file for a segment.
    ///
    /// # Errors
    /// The kernel's; there is one of this number.
    pub(crate) fn create(&self, number: u64) -> io::Result<File> {
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
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        let path = self.segment(number);
        self.act(|| match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        })
    }

    /// Number of folders that are kept.
    pub(crate) fn kept(&self) -> usize {
        kept_in(&self.path).len()
    }

    /// Keeps these segments in a folder of their own, by links, or copies where there are none. Those
    /// that are gone are left out.
    ///
    /// # Errors
    /// The kernel's; the folder may have some of them then.
    pub(crate) fn keep(&self, numbers: &[u64], reason: &str) -> io::Result<PathBuf> {
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
    pub(crate) fn remove_kept(&self, kept: &Path) -> io::Result<()> {
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

fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// Path of the next folder to keep segments in.
fn next_kept(directory: &Path) -> PathBuf {
    let last = kept_in(directory).last().map_or(0, |(number, _)| *number);
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
pub(crate) fn kept_in(directory: &Path) -> Vec<(u64, PathBuf)> {
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
