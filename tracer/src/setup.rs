//! `gctrace setup`: installs this gctrace with its libraries, manual pages and completions for all
//! users, and removes them.
//!
//! As root, it writes only where others can neither write nor replace anything: all users, and root, run the installed
//! files. Links are not followed. A list of the installed files is kept for `--uninstall`.

mod list;

use crate::args::SetupConfig;
use crate::files::copy::keep_copy;
use crate::files::read_head;
use crate::launch::{injected_library, simulator};
use crate::setup::list::InstalledList;
use crate::text::shell_line;
use crate::trust::{WritablePath, writable_beside_root};
use crate::units::counted;
use crate::{manual, print};
use anyhow::{Context as _, bail};
use clap_complete::Shell;
use nix::unistd::AccessFlags;
use std::ffi::OsStr;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Permissions of programs and libraries, of texts, and of folders.
const PROGRAM: u32 = 0o755;
const TEXT: u32 = 0o644;
const FOLDER: u32 = 0o755;

/// This user may not write the prefix.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {reason}", prefix.display())]
pub(crate) struct NotPermitted {
    prefix: PathBuf,
    reason: nix::errno::Errno,
    /// The command that fixes it.
    command: String,
}

impl NotPermitted {
    /// The remedy for the user, with the command to type.
    pub(crate) fn remedy(&self) -> String {
        format!(
            "Root may, and you may where you can write:\n    {}\n    gctrace setup --prefix ~/.local",
            self.command
        )
    }
}

/// A file to install.
struct NewFile {
    /// Below the prefix.
    path: PathBuf,
    contents: Vec<u8>,
    mode: u32,
}

impl NewFile {
    fn text(path: impl Into<PathBuf>, contents: Vec<u8>) -> Self {
        let (path, mode) = (path.into(), TEXT);
        Self { path, contents, mode }
    }

    fn program(path: impl Into<PathBuf>, contents: Vec<u8>) -> Self {
        let (path, mode) = (path.into(), PROGRAM);
        Self { path, contents, mode }
    }
}

/// Installs or removes; returns the exit code.
///
/// # Errors
/// [`NotPermitted`], a file that is not gctrace's is in the way, or a file cannot be written.
pub(crate) fn run(config: &SetupConfig) -> anyhow::Result<u8> {
    let prefix = resolved(&config.prefix)?;
    permitted(&prefix, config)?;
    if config.uninstall {
        uninstall(&prefix)?
    } else {
        let program = std::fs::read("/proc/self/exe").context("cannot read gctrace's file")?;
        install(&prefix, new_files(program)?)?;
    }
    Ok(0)
}

/// The prefix without links. The part that does not exist yet must be plain.
fn resolved(prefix: &Path) -> anyhow::Result<PathBuf> {
    let prefix = std::path::absolute(prefix)?;
    let existing = existing_part(&prefix);
    let rest = prefix.strip_prefix(existing)?;
    if rest.components().any(|part| part == Component::ParentDir) {
        bail!("--prefix {}: does not exist", prefix.display());
    }
    let real = std::fs::canonicalize(existing)
        .with_context(|| format!("--prefix {}", prefix.display()))?;
    Ok(real.components().chain(rest.components()).collect())
}

/// The longest part of a path that exists.
fn existing_part(path: &Path) -> &Path {
    let mut parts = path.ancestors();
    parts.find(|part| part.exists()).unwrap_or(Path::new("/"))
}

fn permitted(prefix: &Path, config: &SetupConfig) -> anyhow::Result<()> {
    let writable = nix::unistd::access(existing_part(prefix), AccessFlags::W_OK);
    let Err(reason) = writable else {
        return Ok(());
    };
    let executable = std::env::current_exe().unwrap_or_else(|_| "gctrace".into());
    let mut words = vec![OsStr::new("sudo"), executable.as_os_str(), OsStr::new("setup")];
    if config.prefix != Path::new("/usr/local") {
        words.extend([OsStr::new("--prefix"), prefix.as_os_str()]);
    }
    if config.uninstall {
        words.push(OsStr::new("--uninstall"));
    }
    Err(NotPermitted { prefix: prefix.to_owned(), reason, command: shell_line(&words) }.into())
}

/// Everything to install; the program last, as it needs the others.
fn new_files(program: Vec<u8>) -> anyhow::Result<Vec<NewFile>> {
    let mut files = vec![
        NewFile::program("lib/gctrace/libgctrace_inject.so", injected_library()?),
        NewFile::program("lib/gctrace/libgctrace_simgpu.so", simulator()?),
    ];
    for (name, page) in manual::pages()? {
        files.push(NewFile::text(Path::new("share/man/man1").join(name), page));
    }
    for (shell, path) in [
        (Shell::Bash, "share/bash-completion/completions/gctrace"),
        (Shell::Zsh, "share/zsh/site-functions/_gctrace"),
        (Shell::Fish, "share/fish/vendor_completions.d/gctrace.fish"),
    ] {
        let mut script = Vec::new();
        manual::completions(shell, &mut script)?;
        files.push(NewFile::text(path, script));
    }
    files.push(NewFile::program("bin/gctrace", program));
    Ok(files)
}

/// Writes the files, and removes files of an earlier version that are no longer needed. Changes
/// nothing if a file that is not gctrace's is in the way.
fn install(prefix: &Path, mut files: Vec<NewFile>) -> anyhow::Result<()> {
    for file in &files {
        replaceable(prefix, &file.path)?;
    }
    let left_out = leave_out(prefix, &mut files)?;
    let before = InstalledList::read(prefix)?;
    let mut list = InstalledList {
        folders: before.folders,
        files: files.iter().map(|file| file.path.clone()).collect(),
    };
    for file in &files {
        for folder in create_folders(prefix, &file.path)? {
            list.add_folder(folder);
        }
    }
    let is_old = |path: &&PathBuf| !list.files.contains(path);
    let old: Vec<PathBuf> = before.files.iter().filter(is_old).cloned().collect();
    // Before the files, so that an interrupted installation can be removed.
    list.files.extend(old.iter().cloned());
    list.write(prefix).context("cannot write the list of files")?;
    let mut written = 0;
    for file in &files {
        // In a folder such as /tmp someone may have been faster.
        if let Some(writable) = folder_of_others(prefix, &file.path)? {
            bail!(refused(prefix, &writable));
        }
        let path = prefix.join(&file.path);
        let changed = keep_copy(&path, &file.contents, file.mode)
            .with_context(|| format!("cannot write {}", path.display()))?;
        written += usize::from(changed);
        if changed && file.mode == PROGRAM {
            print::message(format!("installed {}", path.display()));
        }
    }
    for file in &old {
        remove(prefix, file)?;
    }
    list.files.truncate(files.len());
    list.write(prefix).context("cannot write the list of files")?;
    if let Some(writable) = left_out {
        print::message(format!("manual pages or completions are left out: {writable}"));
    }
    print::message(format!(
        "gctrace {} is installed in {}: {}, {written} of them new or changed",
        env!("CARGO_PKG_VERSION"),
        prefix.display(),
        counted(files.len() as u64, "file"),
    ));
    Ok(())
}

/// As root, leaves out texts in folders that others may write; returns one reason.
///
/// # Errors
/// They may write the folder of a program.
fn leave_out(prefix: &Path, files: &mut Vec<NewFile>) -> anyhow::Result<Option<WritablePath>> {
    let mut reason = None;
    let mut kept = Vec::new();
    for file in files.drain(..) {
        match folder_of_others(prefix, &file.path)? {
            None => kept.push(file),
            Some(writable) if file.mode == PROGRAM => bail!(refused(prefix, &writable)),
            Some(writable) => reason = Some(writable),
        }
    }
    *files = kept;
    Ok(reason)
}

fn refused(prefix: &Path, writable: &WritablePath) -> String {
    format!(
        "as root, gctrace is not installed in {}: {writable}; name another folder: --prefix /opt/gctrace",
        prefix.display()
    )
}

/// As root: who else may write the folder of a file.
fn folder_of_others(prefix: &Path, path: &Path) -> anyhow::Result<Option<WritablePath>> {
    let path = prefix.join(path);
    let folder = existing_part(path.parent().unwrap_or(prefix));
    let found = writable_beside_root(folder, 0);
    found.with_context(|| format!("cannot examine {}", folder.display()))
}

/// Fails if the file at `path` is not gctrace's, or behind a link.
fn replaceable(prefix: &Path, path: &Path) -> anyhow::Result<()> {
    let target = prefix.join(path);
    let in_the_way = |part: &Path, what: &str| {
        let part = part.display();
        anyhow::anyhow!("{part} {what}; look at it, and remove it")
    };
    let below = |part: &&Path| part.starts_with(prefix) && *part != prefix;
    let mut parts = target.ancestors().take_while(below);
    if let Some(link) = parts.find(|part| part.is_symlink()) {
        return Err(in_the_way(link, "is a link"));
    }
    match std::fs::symlink_metadata(&target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| target.display().to_string()),
        Ok(found) if !found.is_file() => Err(in_the_way(&target, "is not a file")),
        Ok(_) if is_ours(&target) => Ok(()),
        Ok(_) => Err(in_the_way(&target, "is not from gctrace")),
    }
}

/// Bytes at the start of a file that show if it is gctrace's.
const HEAD: u64 = 4096;

/// Whether a file with the name of one of gctrace's is one: a program, or a text that names it.
fn is_ours(path: &Path) -> bool {
    let head = read_head(path, HEAD).unwrap_or_default();
    let named = head.windows(7).any(|text| text == b"gctrace");
    let is_program = matches!(path.extension(), Some(name) if name == "so")
        || matches!(path.parent(), Some(folder) if folder.ends_with("bin"));
    head.starts_with(b"\x7fELF") || (named && !is_program)
}

/// Creates the missing folders of a file; returns them, below the prefix.
fn create_folders(prefix: &Path, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !prefix.exists() {
        DirBuilder::new()
            .recursive(true)
            .create(prefix)
            .and_then(|()| std::fs::set_permissions(prefix, Permissions::from_mode(FOLDER)))
            .with_context(|| format!("cannot create {}", prefix.display()))?;
    }
    let mut created = Vec::new();
    let mut folder = PathBuf::new();
    for part in path.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        let whole = prefix.join(&folder);
        match std::fs::create_dir(&whole) {
            Ok(()) => {
                let permissions = Permissions::from_mode(FOLDER);
                std::fs::set_permissions(&whole, permissions)
                    .with_context(|| format!("cannot open {} to all", whole.display()))?;
                created.push(folder.clone());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot create {}", whole.display()));
            }
        }
    }
    Ok(created)
}

/// Removes the files and folders of the list.
fn uninstall(prefix: &Path) -> anyhow::Result<()> {
    let list = InstalledList::read(prefix)?;
    if list.files.is_empty() {
        let prefix = prefix.display();
        print::message(format!("gctrace setup has installed nothing in {prefix}"));
        return Ok(());
    }
    let mut removed = 0;
    for file in &list.files {
        removed += usize::from(remove(prefix, file)?);
    }
    InstalledList::remove(prefix)?;
    for folder in list.folders.iter().rev() {
        // A folder in use for other files stays.
        let _ = std::fs::remove_dir(prefix.join(folder));
    }
    let prefix = prefix.display();
    print::message(format!(
        "gctrace is removed from {prefix}: {}",
        counted(removed as u64, "file")
    ));
    Ok(())
}

/// Removes an installed file; true if it was there. Files that are not gctrace's any more stay.
fn remove(prefix: &Path, path: &Path) -> anyhow::Result<bool> {
    let target = prefix.join(path);
    if std::fs::symlink_metadata(&target).is_err() {
        return Ok(false);
    }
    let kept = match replaceable(prefix, path) {
        Ok(()) => folder_of_others(prefix, path)?.map(|writable| writable.to_string()),
        Err(in_the_way) => Some(format!("{in_the_way:#}")),
    };
    if let Some(reason) = kept {
        print::message(format!("{} is kept: {reason}", target.display()));
        return Ok(false);
    }
    std::fs::remove_file(&target).with_context(|| format!("cannot remove {}", target.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests;
