//! Cache of resolutions: one small JSON file per examined file.
//!
//! The key changes when the file does: build id, size, modification time (and device and inode for
//! files without a build id). A cache that is damaged, read-only or written by another version
//! costs time and nothing else.

use crate::resolution::{Resolution, ResolveOptions, SearchStrategy};
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Changes whenever an older entry could be wrong.
const FORMAT: &str = concat!(
    "gctrace.resolution/1 ",
    env!("CARGO_PKG_VERSION"),
    " ",
    env!("GCTRACE_RESOLVER_SOURCE")
);

/// Maximum size of an entry in bytes; 3 KiB is typical.
const LARGEST_ENTRY: u64 = 1 << 20;

/// The cache entry of one file; a no-op without a cache folder.
pub(crate) struct ResolutionCache {
    entry: Option<PathBuf>,
    key: String,
}

#[derive(Serialize, Deserialize)]
struct CachedResolution<T> {
    format: String,
    key: String,
    resolution: T,
}

impl ResolutionCache {
    /// Entry for a file with this metadata and build id. Lookups that start at a later strategy
    /// than usual bypass the cache.
    pub(crate) fn new(
        options: &ResolveOptions,
        metadata: &Metadata,
        build_id: Option<String>,
    ) -> Self {
        let identity = build_id.unwrap_or_else(|| format!("{}-{}", metadata.dev(), metadata.ino()));
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        let key = format!("{identity}-{}-{}.{}", metadata.size(), changed.0, changed.1);
        let tries_all = options.first_rung == SearchStrategy::SymbolTable;
        let folder = if tries_all { options.cache.as_ref() } else { None };
        // Build ids have no maximum length; file names do.
        let name = key.get(..200).unwrap_or(&key);
        Self { entry: folder.map(|folder| folder.join(format!("{name}.json"))), key }
    }

    /// The cached resolution; the file may have had another path last time. Only entries that no
    /// other user could have written are used: they decide where probes are placed.
    pub(crate) fn load(&self, file: &Path) -> Option<Resolution> {
        let path = self.entry.as_ref()?;
        let metadata = std::fs::symlink_metadata(path).ok()?;
        let ours =
            metadata.is_file() && metadata.size() <= LARGEST_ENTRY && metadata.mode() & 0o022 == 0;
        if !ours {
            return None;
        }
        let bytes = std::fs::read(path).ok()?;
        let entry: CachedResolution<Resolution> = serde_json::from_slice(&bytes).ok()?;
        if entry.format != FORMAT || entry.key != self.key {
            return None;
        }
        Some(Resolution { file: file.to_owned(), ..entry.resolution })
    }

    /// Writes the entry atomically; on failure the next lookup retries.
    pub(crate) fn store(&self, resolution: &Resolution) {
        if let Some(path) = &self.entry {
            let _next_time = self.write(path, resolution);
        }
    }

    fn write(&self, path: &Path, resolution: &Resolution) -> std::io::Result<()> {
        let folder = path.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let entry =
            CachedResolution { format: FORMAT.to_owned(), key: self.key.clone(), resolution };
        // Readable by the owner only; renamed into place when complete.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, &entry)?;
        file.flush()?;
        file.persist(path)?;
        Ok(())
    }
}
