//! The list of installed files, for their removal: one path below the prefix on each line; the path
//! of a folder that setup created ends in a slash.

use crate::files::copy::keep_copy;
use crate::files::read_small;
use crate::trust::writable_beside_root;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// Below the prefix.
const LIST: &str = "lib/gctrace/setup.txt";

/// More than any list has, in bytes.
const LONGEST: u64 = 64 << 10;

/// Files and folders that setup installed below a prefix.
#[derive(Debug, Default, PartialEq)]
pub(super) struct InstalledList {
    pub(super) files: Vec<PathBuf>,
    /// Created for them, outer ones first.
    pub(super) folders: Vec<PathBuf>,
}

impl InstalledList {
    /// The list below a prefix; empty if there is none.
    ///
    /// # Errors
    /// As root, others could have written it; or a line is not a path below the prefix.
    pub(super) fn read(prefix: &Path) -> anyhow::Result<Self> {
        let path = prefix.join(LIST);
        let written = if path.exists() { writable_beside_root(&path, 0)? } else { None };
        if let Some(writable) = written {
            anyhow::bail!(
                "as root, gctrace does not believe the list of files to remove: {writable}"
            );
        }
        let bytes = read_small(&path, LONGEST).unwrap_or_default();
        let mut list = Self::default();
        for line in String::from_utf8_lossy(&bytes).lines() {
            let is_below =
                Path::new(line).components().all(|part| matches!(part, Component::Normal(_)));
            anyhow::ensure!(
                is_below && line.contains('/'),
                "{}: {line} is not a file below {}",
                path.display(),
                prefix.display()
            );
            match line.strip_suffix('/') {
                Some(folder) => list.folders.push(folder.into()),
                None => list.files.push(line.into()),
            }
        }
        Ok(list)
    }

    pub(super) fn add_folder(&mut self, folder: PathBuf) {
        if !self.folders.contains(&folder) {
            self.folders.push(folder);
        }
    }

    pub(super) fn write(&self, prefix: &Path) -> io::Result<()> {
        let mut text = Vec::new();
        for folder in &self.folders {
            text.extend_from_slice(folder.as_os_str().as_bytes());
            text.extend_from_slice(b"/\n");
        }
        for file in &self.files {
            text.extend_from_slice(file.as_os_str().as_bytes());
            text.push(b'\n');
        }
        keep_copy(&prefix.join(LIST), &text, super::TEXT).map(drop)
    }

    /// Removes the list itself.
    pub(super) fn remove(prefix: &Path) -> io::Result<()> {
        std::fs::remove_file(prefix.join(LIST))
    }
}
