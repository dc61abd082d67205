//! Users that could have changed the file at a path: the one answer for every file and folder that gctrace trusts.
//!
//! Trusted are configured options, the library that is loaded into the command, the files that `gctrace setup` installs
//! and removes, and gctrace's own folders. Other users' files are read, never trusted: `files/existing.rs`.

use crate::platform::{has_more_rights_than_its_user, in_foreign_user_namespace};
use crate::text::shell_line;
use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Write permission of the group, and of everyone (inode(7)).
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// A part of a path that others may write: they can replace the target of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritablePath {
    /// The file, or a folder on the way to it.
    pub part: PathBuf,
    who: PathWriter,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathWriter {
    Owner(String),
    Group(String),
    Everyone,
}

impl WritablePath {
    /// The command that ends it, after a colon; empty if the part is another user's.
    fn fix(&self) -> String {
        match self.who {
            PathWriter::Owner(_) => String::new(),
            PathWriter::Group(_) | PathWriter::Everyone => {
                format!(
                    ": {}",
                    shell_line(&[OsStr::new("chmod"), OsStr::new("go-w"), self.part.as_os_str()])
                )
            }
        }
    }
}

impl fmt::Display for WritablePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = gctrace_analysis::clean::path(&self.part);
        match &self.who {
            PathWriter::Owner(name) => write!(formatter, "{part} belongs to {name}"),
            PathWriter::Group(name) => write!(formatter, "group {name} may write {part}"),
            PathWriter::Everyone => write!(formatter, "everyone may write {part}"),
        }
    }
}

/// The source of gctrace's rights beyond its user's; `None` if it has none. `for_another`: it assumes another user's
/// identity. Root of a user namespace has its owner's rights, and the host's files belong to other users there.
pub fn rights_beyond_user(for_another: bool) -> Option<&'static str> {
    let is_root = Uid::effective().is_root();
    if is_root && (for_another || !in_foreign_user_namespace()) {
        return Some("as root");
    }
    if has_more_rights_than_its_user() { Some("with file capabilities") } else { None }
}

/// The most links of one path, as in the kernel (path_resolution(7)).
const MOST_LINKS: u32 = 40;
/// How the kernel shows an owner who has no id in this user namespace (user_namespaces(7), `overflowuid`).
const UNMAPPED: u32 = 65_534;

/// The target of a path, and the changes that others could make to it.
#[derive(Debug)]
pub struct ExaminedPath {
    /// The path without links.
    pub real: PathBuf,
    /// The last part that someone other than root and the user may write or replace now.
    pub writable: Option<WritablePath>,
    /// The last folder where each user may remove only their own files (`/tmp`). Others cannot remove or rename files
    /// of root or the user there (inode(7), `S_ISVTX`), but once such a file is gone, anyone may make another one.
    pub sticky: Option<WritablePath>,
}

/// Examines each part of a path, links included, from the root on. A part is trusted if it belongs to root or `user`
/// (they could put anything into their own programs anyway) and no one else may write it, as in sshd's StrictModes.
/// Group permissions also bound access lists (acl(5)).
///
/// # Errors
/// A part is missing or cannot be examined.
pub fn examine(path: &Path, user: u32) -> io::Result<ExaminedPath> {
    let mut examined = ExaminedPath { real: PathBuf::new(), writable: None, sticky: None };
    let mut rest = reversed(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            examined.real.pop();
            continue;
        }
        let part = examined.real.join(part);
        let found = std::fs::symlink_metadata(&part)?;
        if found.is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::ELOOP.into());
            }
            rest.extend(reversed(&std::fs::read_link(&part)?));
        }
        let is_on_the_way = found.is_dir() && !rest.is_empty();
        if let Some(who) = writer(&found, &part, user, is_on_the_way) {
            let holds = found.is_dir() && found.mode() & libc::S_ISVTX != 0;
            let part = WritablePath { part: part.clone(), who };
            match part.who {
                PathWriter::Group(_) | PathWriter::Everyone if holds => {
                    examined.sticky = Some(part)
                }
                _ => examined.writable = Some(part),
            }
        }
        if !found.is_symlink() {
            examined.real = part;
        }
    }
    Ok(examined)
}

/// The parts of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Why a file is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// Someone else could have written it.
    #[error("others may write it: {part}{}", .part.fix())]
    Writable {
        /// The file, or a part of the way to it.
        part: WritablePath,
    },
    /// It is a folder, a FIFO, a device or a socket.
    #[error("it is not a regular file")]
    NoFile,
    /// It is missing, or cannot be examined or opened.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens a regular file that only root and `user` could have written. Nothing else is opened, so that nothing waits and no
/// device is touched.
///
/// # Errors
/// Why not.
#[expect(clippy::disallowed_methods, reason = "opened for reading")]
pub fn open(path: &Path, user: u32) -> Result<File, TrustError> {
    let examined = examine(path, user)?;
    if let Some(writable) = examined.writable {
        return Err(TrustError::Writable { part: writable });
    }
    if !std::fs::symlink_metadata(&examined.real)?.is_file() {
        return Err(TrustError::NoFile);
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(&examined.real)?;
    // The user may have exchanged it since.
    let found = file.metadata()?;
    match writer(&found, &examined.real, user, false) {
        Some(who) => Err(TrustError::Writable { part: WritablePath { part: examined.real, who } }),
        None if !found.is_file() => Err(TrustError::NoFile),
        None => Ok(file),
    }
}

/// The part of a path that others may write or replace now, for programs that root runs; `None` without root's rights.
///
/// # Errors
/// A part cannot be examined.
pub fn writable_beside_root(path: &Path, user: u32) -> io::Result<Option<WritablePath>> {
    if !Uid::effective().is_root() || in_foreign_user_namespace() {
        return Ok(None);
    }
    Ok(examine(path, user)?.writable)
}

/// Who else may write `part`. `is_on_the_way`: it is a folder above the path's end. In a container without root's rights
/// the machine's folders belong to an owner without an id.
fn writer(found: &Metadata, part: &Path, user: u32, is_on_the_way: bool) -> Option<PathWriter> {
    let (uid, gid, mode) = (found.uid(), found.gid(), found.mode());
    let is_machines = is_on_the_way && uid == UNMAPPED && in_foreign_user_namespace();
    if uid != 0 && uid != user && !is_machines {
        let owner = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = if let Some(owner) = owner { owner.name } else { format!("user {uid}") };
        return Some(PathWriter::Owner(name));
    }
    // The permissions of a link are never asked (symlink(7)).
    if found.is_symlink() {
        return None;
    }
    if mode & OTHERS_WRITE != 0 {
        return Some(PathWriter::Everyone);
    }
    let is_private = || is_private_group(gid, user) && !has_access_list(part);
    if mode & GROUP_WRITES == 0 || is_private() {
        return None;
    }
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    let name = if let Some(group) = group { group.name } else { gid.to_string() };
    Some(PathWriter::Group(name))
}

/// Whether the group is the user's own (useradd(8), USERGROUPS_ENAB): their primary one, named like
/// them, without other members. Root's is none: services and containers use it.
fn is_private_group(gid: u32, user: u32) -> bool {
    let user = User::from_uid(Uid::from_raw(user)).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    let (Some(user), Some(group)) = (user, group) else { return false };
    !user.uid.is_root()
        && user.gid == group.gid
        && user.name == group.name
        && group.mem.iter().all(|member| *member == user.name)
}

/// Whether the file has an access list: it may let other users write where the group may.
fn has_access_list(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return true };
    let name = c"system.posix_acl_access";
    // SAFETY: two C strings; without a buffer only the length is returned.
    let length = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    let none = [libc::ENODATA, libc::EOPNOTSUPP];
    length >= 0 || !none.contains(&Errno::last_raw())
}

#[cfg(test)]
mod tests;
