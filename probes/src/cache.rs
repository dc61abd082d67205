//! Resolutions already made, one small JSON file each.
//!
//! The key is what changes when the file does: build id, size, time of the last change (and device
//! and inode where there is no build id). Whatever is wrong with the cache - damaged, from another
//! version, not writable - costs time and nothing else.

use crate::resolution::Resolution;
use crate::resolution::ResolveOptions;
use crate::resolution::SearchStrategy;
use serde::Deserialize;
use serde::Serialize;
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

/// Changes with everything that could make an older answer wrong.
const FORMAT: &str = concat!(
    "gctrace.resolution/1 ",
    env!("CARGO_PKG_VERSION"),
    " ",
    env!("GCTRACE_RESOLVER_SOURCE")
);

/// No entry is larger, in bytes; a usual one has 3 KiB.
const LARGEST_ENTRY: u64 = 1 << 20;

/// The entry of one file; does nothing without a folder.
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
    /// For a file with this metadata and build id. Questions that start at a later rung than usual
    /// are not answered from the cache.
    pub(crate) fn new(
        options: &ResolveOptions,
        metadata: &Metadata,
        build_id: Option<String>,
    ) -> Self {
        let identity = build_id.unwrap_or_else(|| format!("{}-{}", metadata.dev(), metadata.ino()));
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        let key = format!("{identity}-{}-{}.{}", metadata.size(), changed.0, changed.1);
        let folder = options
            .cache
            .as_ref()
            .filter(|_| options.first_rung == SearchStrategy::SymbolTable);
        // A build id may be of any length; a file name may not.
        let name = key.get(..200).unwrap_or(&key);
        Self {
            entry: folder.map(|folder| folder.join(format!("{name}.json"))),
            key,
        }
    }

    /// What is known about the file, which may have another path than last time. Only entries that
    /// nobody else could have written count: probes go where they say.
    pub(crate) fn load(&self, file: &Path) -> Option<Resolution> {
        let path = self.entry.as_ref()?;
        let metadata = std::fs::symlink_metadata(path).ok()?;
        let ours =
            metadata.is_file() && metadata.size() <= LARGEST_ENTRY && metadata.mode() & 0o022 == 0;
        ours.then_some(())?;
        let bytes = std::fs::read(path).ok()?;
        let entry: CachedResolution<Resolution> = serde_json::from_slice(&bytes).ok()?;
        (entry.format == FORMAT && entry.key == self.key).then_some(())?;
        Some(Resolution {
            file: file.to_owned(),
            ..entry.resolution
        })
    }

    /// Writes the entry, whole or not at all; a failure leaves the next one to try.
    pub(crate) fn store(&self, resolution: &Resolution) {
        if let Some(path) = &self.entry {
            let _next_time = self.write(path, resolution);
        }
    }

    fn write(&self, path: &Path, resolution: &Resolution) -> std::io::Result<()> {
        let folder = path.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let entry = CachedResolution {
            format: FORMAT.to_owned(),
            key: self.key.clone(),
            resolution,
        };
        // Readable by its owner only, and renamed into place when complete.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, &entry)?;
        file.flush()?;
        file.persist(path)?;
        Ok(())
    }
}
