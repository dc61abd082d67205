//! The cache of interpreters. It decides where breakpoints are placed: root must not trust a cache that a user can
//! write.

use crate::invoker::Invoker;
use crate::platform::has_more_rights_than_its_user;
use crate::trust;
use crate::variables::{VariableEffect, variable};
use gctrace_probes::ResolveOptions;
use nix::unistd::Uid;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The cache of root's recordings.
const ROOT_CACHE: &str = "/var/cache/gctrace";

/// The folder where resolutions of interpreters are kept between recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir {
    directory: PathBuf,
    /// With file capabilities (setcap) a user has rights over others' programs that a forged cache
    /// would give to its forger: it is then trusted for the user's own files only.
    only_files_of: Option<u32>,
}

impl CacheDir {
    /// Opens or creates the cache that matches gctrace's rights: root's own as root, otherwise the
    /// user's. `None` if none can be trusted; recording works without, only slower.
    pub fn open(invoker: &Invoker) -> Option<Self> {
        if Uid::effective().is_root() {
            return Self::at(Path::new(ROOT_CACHE), 0, None);
        }
        let named = variable("XDG_CACHE_HOME", VariableEffect::Place).map(PathBuf::from);
        let base =
            named.filter(|path| path.is_absolute()).unwrap_or_else(|| invoker.home.join(".cache"));
        Self::at(
            &base.join("gctrace"),
            invoker.uid,
            if has_more_rights_than_its_user() { Some(invoker.uid) } else { None },
        )
    }

    fn at(directory: &Path, owner: u32, only_files_of: Option<u32>) -> Option<Self> {
        own_folder(directory, owner).ok()?;
        Some(Self { directory: directory.to_owned(), only_files_of })
    }

    /// How to resolve an interpreter with a file of this owner, `None` if that is unknown. `root` is its process's:
    /// debug files of a container are below its own.
    pub fn resolve_options(
        cache: Option<&Self>,
        owner: Option<u32>,
        root: &Path,
    ) -> ResolveOptions {
        let cache = match (cache, owner) {
            (Some(cache), Some(owner)) => cache.for_file_of(owner),
            _ => None,
        };
        let debug = "usr/lib/debug";
        ResolveOptions {
            cache: cache.map(Path::to_owned),
            debug_roots: vec![root.join(debug), Path::new("/").join(debug)],
            ..ResolveOptions::default()
        }
    }

    /// The directory to use for a file of this owner, if any.
    fn for_file_of(&self, owner: u32) -> Option<&Path> {
        let usable = self.only_files_of.is_none_or(|user| user == owner);
        if usable { Some(self.directory.as_path()) } else { None }
    }
}

/// Makes sure that a folder exists, belongs to `owner`, can be written or replaced by no other user and is
/// no link. Creates missing folders, for their owner only.
///
/// # Errors
/// It cannot be created, or is not such a folder.
pub(super) fn own_folder(path: &Path, owner: u32) -> io::Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let found = std::fs::symlink_metadata(path).map_err(|error| created.err().unwrap_or(error))?;
    if !found.is_dir() || found.uid() != owner || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("it is not a folder that only its user can write"));
    }
    match trust::examine(path, owner)?.writable {
        Some(writable) => Err(io::Error::other(writable.to_string())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_cache_writable_by_others_is_not_used() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("deep/gctrace");
        let effective = Uid::effective().as_raw();
        let made = CacheDir::at(&directory, effective, None).expect("a cache");
        assert_eq!(made.for_file_of(effective + 1), Some(directory.as_path()));
        assert_eq!(std::fs::metadata(&directory).expect("made").mode() & 0o777, 0o700);

        assert_eq!(CacheDir::at(&directory, effective + 1, None), None);
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o770)).expect("chmod");
        assert_eq!(CacheDir::at(&directory, effective, None), None);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).expect("a link");
        assert_eq!(CacheDir::at(&link, effective, None), None);
    }

    #[test]
    fn with_file_capabilities_it_is_only_for_own_files() {
        let cache = CacheDir { directory: "/c".into(), only_files_of: Some(1000) };
        assert_eq!(cache.for_file_of(1000), Some(Path::new("/c")));
        assert_eq!(cache.for_file_of(0), None);
    }
}
