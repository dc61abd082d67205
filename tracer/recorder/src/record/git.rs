//! The Git commit of the command's working directory.
//!
//! Read from the repository's own files (gitrepository-layout(5)); git is never run. Called with the
//! file permissions of the user who typed the command, so that nothing is read that this user could
//! not read. Only hashes leave this module.

use crate::files::read_small;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Maximum size of `HEAD`, a reference or a `.git` file, in bytes; they hold one line.
const LINE_BYTES: u64 = 4096;
/// Maximum size of `packed-refs`, in bytes: about 150,000 references.
const PACKED_BYTES: u64 = 16 << 20;
/// Maximum size of an index that is compared with the files, in bytes: about 100,000 files.
const INDEX_BYTES: u64 = 16 << 20;
/// Maximum number of files that are compared with the index: some 50 ms.
const FILES_COMPARED: u32 = 20_000;
/// Maximum number of references to references (git's own limit).
const DEPTH: usize = 5;

/// The state of a working directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GitState {
    /// Hash of the commit that is checked out; `None` if unknown.
    pub(super) commit: Option<String>,
    /// Whether tracked files differ from the index; `None` if unknown.
    pub(super) modified: Option<bool>,
}

/// The repository that `directory` is in; nothing if it is in none.
pub(super) fn state(directory: &Path) -> GitState {
    let Some((tree, git)) =
        directory.ancestors().find_map(|tree| Some((tree, git_directory(&tree.join(".git"))?)))
    else {
        return GitState::default();
    };
    let commit = commit(&git);
    GitState {
        modified: commit.as_deref().and_then(|hash| modified(&git, tree, hash.len() / 2)),
        commit,
    }
}

/// `.git` itself, or the directory that it names (worktrees and submodules).
fn git_directory(dot_git: &Path) -> Option<PathBuf> {
    if dot_git.is_dir() {
        return if dot_git.join("HEAD").exists() { Some(dot_git.to_owned()) } else { None };
    }
    let line = line(dot_git)?;
    let named = line.strip_prefix("gitdir: ")?;
    Some(dot_git.parent()?.join(named))
}

/// Where references are that all worktrees share.
fn common_directory(git: &Path) -> PathBuf {
    match line(&git.join("commondir")) {
        Some(common) => git.join(common),
        None => git.to_owned(),
    }
}

fn commit(git: &Path) -> Option<String> {
    let common = common_directory(git);
    let mut name = "HEAD".to_owned();
    for _ in 0..DEPTH {
        let found = [git, &common].into_iter().find_map(|at| line(&at.join(&name)));
        let Some(found) = found else { return packed(&common, &name) };
        match found.strip_prefix("ref: ") {
            None => return if is_hash(&found) { Some(found) } else { None },
            Some(target) if is_reference(target) => name = target.to_owned(),
            Some(_) => return None,
        }
    }
    None
}

fn packed(common: &Path, name: &str) -> Option<String> {
    let text = String::from_utf8(read_small(&common.join("packed-refs"), PACKED_BYTES)?).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (hash, _) = lines.find(|(hash, reference)| *reference == name && is_hash(hash))?;
    Some(hash.to_owned())
}

/// Whether a name is a reference's, below the repository.
fn is_reference(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    name.starts_with("refs/") && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a text is a hash by SHA-1 or SHA-256.
fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The only line of a small file.
fn line(path: &Path) -> Option<String> {
    let text = String::from_utf8(read_small(path, LINE_BYTES)?).ok()?;
    Some(text.trim_end().to_owned())
}

/// Whether a tracked file has another size than the index states, or is missing. `None` if that is unknown: an index of
/// another version or too large, or a file of the same size that was written since: only git can compare the contents.
fn modified(git: &Path, tree: &Path, hash_bytes: usize) -> Option<bool> {
    let index = read_small(&git.join("index"), INDEX_BYTES)?;
    let mut entries = IndexEntries::new(&index, hash_bytes)?;
    if entries.left > FILES_COMPARED {
        return None;
    }
    let mut unknown = false;
    while entries.left > 0 {
        let entry = entries.next_entry()?;
        let path = Path::new(OsStr::from_bytes(entry.path));
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        if entry.is_elsewhere {
            continue;
        }
        match tree.join(path).symlink_metadata() {
            Err(_) => return Some(true),
            Ok(found) if found.len() & 0xffff_ffff != u64::from(entry.size) => return Some(true),
            Ok(found) => unknown |= found.mtime() & 0xffff_ffff != i64::from(entry.mtime_s),
        }
    }
    if unknown { None } else { Some(false) }
}

/// The entries of an index, version 2 or 3 (gitformat-index(5)).
struct IndexEntries<'a> {
    rest: &'a [u8],
    left: u32,
    hash_bytes: usize,
}

struct IndexEntry<'a> {
    mtime_s: u32,
    /// Low 32 bits of the file's size.
    size: u32,
    /// Not a file of this working directory: a submodule, or left out by a sparse checkout.
    is_elsewhere: bool,
    path: &'a [u8],
}

impl<'a> IndexEntries<'a> {
    /// Signature, version, number of entries.
    const HEAD: usize = 12;
    /// Times, device, inode, mode, owner and size: ten numbers of 32 bits.
    const STAT: usize = 40;
    const EXTENDED: u16 = 0x4000;
    const SKIP_WORKTREE: u16 = 0x4000;
    const SUBMODULE: u32 = 0o160_000;

    fn new(index: &'a [u8], hash_bytes: usize) -> Option<Self> {
        let known = matches!(number(index, 4)?, 2 | 3);
        let is_index = index.starts_with(b"DIRC") && known;
        if is_index {
            Some(Self { rest: index.get(Self::HEAD..)?, left: number(index, 8)?, hash_bytes })
        } else {
            None
        }
    }

    fn next_entry(&mut self) -> Option<IndexEntry<'a>> {
        let entry = self.rest;
        let flags_at = Self::STAT + self.hash_bytes;
        let flags = short(entry, flags_at)?;
        let extended = flags & Self::EXTENDED != 0;
        let more = if extended { short(entry, flags_at + 2)? } else { 0 };
        let path_at = flags_at + if extended { 4 } else { 2 };
        let name = entry.get(path_at..)?;
        let length = name.iter().position(|byte| *byte == 0)?;
        // Entries are padded by 1 to 8 zeros to a multiple of 8 bytes.
        self.rest = entry.get((path_at + length + 8) / 8 * 8..)?;
        self.left -= 1;
        Some(IndexEntry {
            mtime_s: number(entry, 8)?,
            size: number(entry, 36)?,
            is_elsewhere: number(entry, 24)? == Self::SUBMODULE || more & Self::SKIP_WORKTREE != 0,
            path: name.get(..length)?,
        })
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests;
