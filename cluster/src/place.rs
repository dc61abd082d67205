//! Where traces and tables are: a file or directory of this machine, or an object of S3, GCS or Azure.
//!
//! Owns how places are written, listed and copied. Credentials come from the environment, under the
//! names that `object_store` defines (`AWS_`, `GOOGLE_`, `AZURE_`).

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::{Path as Key, PathPart};
use object_store::{ObjectStore, ObjectStoreExt as _, ObjectStoreScheme};
use std::fmt::{Display, Formatter};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;

/// Variables that a store may be configured by. `object_store` also knows their names without the
/// prefix, which other programs give other meanings (`TOKEN`, `REGION`).
const PREFIXES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// A file, a directory, or an object; it need not exist. Displayed as it is written: an absolute path
/// or a URL.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    store: Arc<dyn ObjectStore>,
    key: Key,
    /// Its directory is the store's root: `file:///`, `s3://BUCKET/`.
    root: Url,
}

impl Place {
    /// Reads a path or a URL. Nothing is accessed yet.
    ///
    /// # Errors
    /// The URL is of another kind of store, or the environment configures its store wrongly.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let url = if text.contains("://") {
            Url::parse(text).with_context(|| format!("{text}: not a URL"))?
        } else {
            let path = std::path::absolute(text).with_context(|| format!("{text}: not a path"))?;
            Url::from_file_path(&path).ok().with_context(|| format!("{text}: not a path"))?
        };
        let (scheme, key) = ObjectStoreScheme::parse(&url)
            .ok()
            .filter(|(scheme, _)| {
                !matches!(scheme, ObjectStoreScheme::Http | ObjectStoreScheme::Memory)
            })
            .with_context(|| {
                format!("{text}: not a path, and not a URL of s3://, gs://, az:// or abfss://")
            })?;
        let store: Arc<dyn ObjectStore> = if scheme == ObjectStoreScheme::Local {
            Arc::new(LocalFileSystem::new())
        } else {
            let variables = std::env::vars_os().filter_map(|(name, value)| {
                let name = name.into_string().ok()?;
                let known = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
                Some((name, value.into_string().ok()?)).filter(|_| known)
            });
            let (store, _) = object_store::parse_url_opts(&url, variables)
                .with_context(|| format!("{text}: its store is not configured"))?;
            store.into()
        };
        let mut root = url;
        let rest = root.path().trim_start_matches('/');
        let above = Key::from_url_path(rest).ok() == Some(key.clone());
        anyhow::ensure!(above, "{text}: write it as s3://, gs:// or az://");
        root.set_path("/");
        Ok(Self { store, key, root })
    }

    /// The place of another key of the same store.
    fn at(&self, key: Key) -> Self {
        let (store, root) = (Arc::clone(&self.store), self.root.clone());
        Self { store, key, root }
    }

    /// A file or directory in this one.
    ///
    /// # Errors
    /// No file can have that name.
    pub(crate) fn child(&self, name: &str) -> Result<Self> {
        Ok(self.at(self.key.clone().join(PathPart::parse(name)?)))
    }

    /// The directory that it is in; the root is in itself.
    pub(crate) fn parent(&self) -> Self {
        self.at(self.key.parent().unwrap_or_default())
    }

    /// Name of the file or directory; empty at the root.
    pub(crate) fn name(&self) -> &str {
        self.key.filename().unwrap_or_default()
    }

    /// Store of [`Self::root`], for reading in place.
    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    /// URL of the store.
    pub(crate) fn root(&self) -> &Url {
        &self.root
    }

    /// Its URL.
    pub(crate) fn url(&self) -> Url {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().extend(self.key.parts());
        }
        url
    }

    /// Its path, if it is on this machine.
    pub(crate) fn local(&self) -> Option<PathBuf> {
        self.url().to_file_path().ok().filter(|_| self.root.scheme() == "file")
    }

    /// The file itself, or the files of the directory and those below it, sorted; without hidden ones.
    ///
    /// # Errors
    /// The store does not answer or refuses, or there is nothing at this place.
    pub(crate) async fn files(&self) -> Result<Vec<Self>> {
        let failed = || format!("{self}: cannot be read");
        if !self.key.is_root() {
            match self.store.head(&self.key).await {
                Ok(_) => return Ok(vec![self.clone()]),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error).with_context(failed),
            }
        }
        let entries = self.store.list(Some(&self.key));
        let entries: Vec<_> = entries.try_collect().await.with_context(failed)?;
        let hidden = |key: &Key| {
            let mut parts = key.prefix_match(&self.key).into_iter().flatten();
            parts.any(|part| part.as_ref().starts_with('.'))
        };
        let keys = entries.into_iter().map(|entry| entry.location);
        let mut keys: Vec<Key> = keys.filter(|key| !hidden(key)).collect();
        anyhow::ensure!(!keys.is_empty(), "{self}: there are no files");
        keys.sort_unstable();
        Ok(keys.into_iter().map(|key| self.at(key)).collect())
    }

    /// A path with its contents: its own if it is on this machine. An object is copied below
    /// `directory`, and the path is relative to that: the object's URL, so that reports have its name.
    ///
    /// # Errors
    /// The object cannot be read, or the copy not be written.
    pub(crate) async fn local_copy(&self, directory: &Path) -> Result<PathBuf> {
        if let Some(path) = self.local() {
            return Ok(path);
        }
        let failed = || format!("{self}: cannot be read");
        let object = self.store.get(&self.key).await.with_context(failed)?;
        let mut parts = object.into_stream();
        let relative = PathBuf::from(self.to_string());
        let path = directory.join(&relative);
        let failed_copy = || format!("{}: cannot be written", path.display());
        let above = path.parent().unwrap_or(directory);
        std::fs::create_dir_all(above).with_context(failed_copy)?;
        let mut file = std::fs::File::create_new(&path).with_context(failed_copy)?;
        while let Some(part) = parts.try_next().await.with_context(failed)? {
            file.write_all(&part).with_context(failed_copy)?;
        }
        Ok(relative)
    }

    /// The bytes of the file; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) async fn read(&self) -> Result<Option<Bytes>> {
        let bytes = match self.store.get(&self.key).await {
            Ok(object) => object.bytes().await,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => Err(error),
        };
        let bytes = bytes.with_context(|| format!("{self}: cannot be read"))?;
        Ok(Some(bytes))
    }

    /// Writes the file: readers see all of it, or what was there before.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) async fn write(&self, bytes: Bytes) -> Result<()> {
        let written = self.store.put(&self.key, bytes.into()).await;
        written.with_context(|| format!("{self}: cannot be written"))?;
        Ok(())
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.local() {
            Some(path) => write!(f, "{}", path.display()),
            None => write!(f, "{}", self.url()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_of_a_directory_without_hidden_ones() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b 100%.json", "a/x#y?.json", ".hidden", "a/.tmp/z.json"] {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let place = Place::parse(directory.path().to_str().unwrap()).unwrap();
        let files = place.files().await.unwrap();
        let paths: Vec<PathBuf> = files.iter().map(|file| file.local().unwrap()).collect();
        let expected = ["a/x#y?.json", "b 100%.json"].map(|name| directory.path().join(name));
        assert_eq!(paths, expected);
        for (file, path) in files.iter().zip(&expected) {
            assert_eq!(file.to_string(), path.to_str().unwrap());
            assert_eq!(file.local_copy(directory.path()).await.unwrap(), *path);
            assert!(path.exists());
            let again = Place::parse(&file.to_string()).unwrap();
            assert_eq!(again.files().await.unwrap().len(), 1);
        }
        let missing = place.child("none").unwrap().files().await.unwrap_err();
        assert!(format!("{missing:#}").contains("none"), "{missing:#}");
    }

    #[test]
    fn other_urls_are_refused() {
        for text in ["http://host/a", "memory:///a", "ftp://host/a", "s3://"] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
        let place = Place::parse("s3://bucket/a/b.json").unwrap();
        assert_eq!(place.to_string(), "s3://bucket/a/b.json");
        assert_eq!(place.url().as_str(), "s3://bucket/a/b.json");
        assert_eq!(place.parent().child("c%").unwrap().to_string(), "s3://bucket/a/c%25");
        assert_eq!((place.name(), place.local()), ("b.json", None));
    }
}
