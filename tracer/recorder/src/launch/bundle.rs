//! Libraries inside this binary (`build.rs`), for an installation of one file.
//!
//! The loader needs a file: a private copy is kept in a folder named after the contents. It is
//! never removed, as programs that outlive gctrace name it in `LD_PRELOAD`. Each use compares it
//! with the embedded contents.

use crate::files::copy::keep_copy;
use crate::invoker::Invoker;
use crate::launch::cache::own_folder;
use crate::trust;
use crate::variables::{VariableEffect, temporary_directory, variable};
use anyhow::Context as _;
use flate2::read::ZlibDecoder;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Uid;
use std::fs::Permissions;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

// INJECT and SIMGPU; `None` in a build without GCTRACE_BUNDLE.
include!(concat!(env!("OUT_DIR"), "/bundle.rs"));

/// Where root keeps its copy. It must be readable for the user that a command runs as, and last as
/// long as the programs.
const ROOT_PLACES: [&str; 2] = ["/var/lib/gctrace", "/run/gctrace"];

/// A library inside this binary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BundledLibrary {
    /// Its file name.
    pub name: &'static str,
    /// Differs for different contents; part of the copy's path.
    pub(super) hash: &'static str,
    /// Length of the contents in bytes.
    pub(super) length: usize,
    /// The contents as zlib data.
    pub(super) compressed: &'static [u8],
}

impl BundledLibrary {
    /// The contents of the library's file.
    ///
    /// # Errors
    /// This binary is damaged.
    pub(crate) fn contents(&self) -> io::Result<Vec<u8>> {
        let mut contents = Vec::with_capacity(self.length);
        ZlibDecoder::new(self.compressed).read_to_end(&mut contents)?;
        Ok(contents)
    }

    /// The path of a [`private_copy`] below `place`.
    ///
    /// # Errors
    /// The place cannot have such a copy.
    pub(super) fn copy_in(&self, place: &Path) -> io::Result<PathBuf> {
        private_copy(place, self.hash, self.name, &self.contents()?)
    }
}

/// The path `place/hash/name` of a file that only this process's user can write and that has these
/// contents; made if there is none. `hash` differs for different contents.
///
/// # Errors
/// The place cannot have such a file.
pub(super) fn private_copy(
    place: &Path,
    hash: &str,
    name: &str,
    contents: &[u8],
) -> io::Result<PathBuf> {
    let existing = place.ancestors().find(|part| part.exists());
    let system = statvfs(existing.unwrap_or(Path::new("/")))?;
    if system.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(io::Error::other("its file system is mounted noexec"));
    }
    let folder = place.join(hash);
    let user = Uid::effective();
    for part in [place, &folder] {
        own_folder(part, user.as_raw())?;
        if user.is_root() {
            // The command runs as another user, who loads the copy.
            std::fs::set_permissions(part, Permissions::from_mode(0o755))?;
        }
    }
    let path = folder.join(name);
    keep_copy(&path, contents, 0o644)?;
    Ok(path)
}

/// The contents of the simulated GPU's library: of the file next to gctrace, or of the file inside this binary.
///
/// # Errors
/// There is none, or gctrace has more rights than its user and does not load the existing one.
pub fn simulator() -> anyhow::Result<Vec<u8>> {
    let beside = beside();
    match SIMGPU {
        Some(bundled) if beside.is_err() => bundled.contents().context("this gctrace is damaged"),
        _ => beside,
    }
}

fn beside() -> anyhow::Result<Vec<u8>> {
    let path = gctrace_simgpu::find_library()?;
    let cannot_read = || format!("cannot read {}", path.display());
    let Some(rights) = trust::rights_beyond_user(true) else {
        return std::fs::read(&path).with_context(cannot_read);
    };
    // gctrace itself loads its NVML: the owner of gctrace's file decides its contents.
    let owner = std::fs::metadata("/proc/self/exe")?.uid();
    let opened = trust::open(&path, owner);
    let mut file =
        opened.with_context(|| format!("{rights}, gctrace does not load {}", path.display()))?;
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).with_context(cannot_read)?;
    Ok(contents)
}

/// The folders for copies, best first. Folders for temporary files are last, since the system may empty them during a
/// long run; they are left out where no file in them is trusted.
pub(super) fn places() -> Vec<PathBuf> {
    let user = Uid::effective();
    let temporary = [PathBuf::from("/var/tmp"), temporary_directory()];
    let temporary = temporary.map(|folder| folder.join(format!("gctrace-{user}")));
    let mut places: Vec<PathBuf> = if user.is_root() {
        ROOT_PLACES.map(PathBuf::from).into()
    } else {
        user_caches().map(|cache| cache.join("gctrace")).collect()
    };
    if trust::rights_beyond_user(false).is_none() {
        places.extend(temporary);
    }
    places.dedup();
    places
}

/// The user's folders for data that can be made again (XDG Base Directory Specification), absolute.
fn user_caches() -> impl Iterator<Item = PathBuf> {
    let named = |name| variable(name, VariableEffect::Place).map(PathBuf::from);
    let homes = [named("HOME"), Some(Invoker::detect().home)];
    let caches = homes.map(|home| home.map(|home| home.join(".cache")));
    let caches = std::iter::once(named("XDG_CACHE_HOME")).chain(caches);
    caches.flatten().filter(|path| path.is_absolute())
}

#[cfg(test)]
pub(super) mod tests;
