//! Which users may change a file: with more rights than its user, gctrace loads into a command only
//! what root or the command's user chose.

use crate::platform::has_more_rights_than_its_user;
use crate::privileges::in_foreign_user_namespace;
use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User};
use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Write permission of the group, and of everyone (inode(7)).
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// A part of a path that others may write, and so replace what the path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WritablePath {
    /// The file, or a folder on the way to it.
    pub(crate) part: PathBuf,
    who: PathWriter,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathWriter {
    Owner(String),
    Group(String),
    Everyone,
}

impl fmt::Display for WritablePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.part.display();
        match &self.who {
            PathWriter::Owner(name) => write!(formatter, "{part} belongs to {name}"),
            PathWriter::Group(name) => write!(formatter, "group {name} may write {part}"),
            PathWriter::Everyone => write!(formatter, "everyone may write {part}"),
        }
    }
}

/// Where gctrace has rights beyond its user's from; `None` if it has none. `for_another`: it
/// assumes another user's identity. Root of a user namespace has its owner's rights, and the host's
/// files belong to other users there.
pub(crate) fn rights_beyond_user(for_another: bool) -> Option<&'static str> {
    let is_root = Uid::effective().is_root();
    if is_root && (for_another || !in_foreign_user_namespace()) {
        return Some("as root");
    }
    has_more_rights_than_its_user().then_some("with file capabilities")
}

/// The first part of an absolute path, from its end, that someone other than root and `user` may
/// write; the path must contain no links. That user may: code of theirs could be loaded into their
/// programs anyway. As in sshd's StrictModes, a folder in which each user may remove only their own
/// files (`/tmp`) counts as well: once the file is gone, anyone may make another one of its name.
/// Group permissions also bound access lists (acl(5)).
///
/// # Errors
/// A part cannot be examined.
pub(crate) fn writable_by_others(path: &Path, user: u32) -> io::Result<Option<WritablePath>> {
    first_writable(path, user, |_| false)
}

/// [`writable_by_others`] for a file that is read now and never again: folders with the sticky bit do
/// not count, since the kernel lets no one but the owner of an entry, the folder's owner and root
/// remove or rename it (inode(7), `S_ISVTX`), and root or `user` are all of these.
///
/// # Errors
/// A part cannot be examined.
pub(crate) fn replaceable_by_others(path: &Path, user: u32) -> io::Result<Option<WritablePath>> {
    first_writable(path, user, |found| found.is_dir() && found.mode() & libc::S_ISVTX != 0)
}

/// `holds`: whether what is in a folder that others may write can be neither removed nor renamed by
/// them. The path's end itself must be writable by no one else.
fn first_writable(
    path: &Path,
    user: u32,
    holds: impl Fn(&Metadata) -> bool,
) -> io::Result<Option<WritablePath>> {
    for (above, part) in path.ancestors().enumerate() {
        let found = std::fs::symlink_metadata(part)?;
        let by_user_alone = || is_private_group(found.gid(), user) && !has_access_list(part);
        if let Some(who) = writer(&found, user, by_user_alone) {
            if above > 0 && !matches!(who, PathWriter::Owner(_)) && holds(&found) {
                continue;
            }
            let part = part.to_owned();
            return Ok(Some(WritablePath { part, who }));
        }
    }
    Ok(None)
}

/// [`writable_by_others`], for what root runs; `None` without root's rights.
///
/// # Errors
/// A part cannot be examined.
pub(crate) fn writable_beside_root(path: &Path, user: u32) -> io::Result<Option<WritablePath>> {
    if !Uid::effective().is_root() || in_foreign_user_namespace() {
        return Ok(None);
    }
    writable_by_others(path, user)
}

/// `private`: whether the file's group consists of `user`.
fn writer(found: &Metadata, user: u32, private: impl FnOnce() -> bool) -> Option<PathWriter> {
    let (uid, gid, mode) = (found.uid(), found.gid(), found.mode());
    if uid != 0 && uid != user {
        let owner = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = owner.map_or_else(|| format!("user {uid}"), |owner| owner.name);
        return Some(PathWriter::Owner(name));
    }
    if mode & OTHERS_WRITE != 0 {
        return Some(PathWriter::Everyone);
    }
    (mode & GROUP_WRITES != 0 && !private()).then(|| {
        let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
        PathWriter::Group(group.map_or_else(|| gid.to_string(), |group| group.name))
    })
}

/// Whether the group is the user's own (useradd(8), USERGROUPS_ENAB): their primary one, named like
/// them, without other members. Root's is none: services and containers use it.
fn is_private_group(gid: u32, user: u32) -> bool {
    let user = User::from_uid(Uid::from_raw(user)).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    user.zip(group).is_some_and(|(user, group)| {
        !user.uid.is_root()
            && user.gid == group.gid
            && user.name == group.name
            && group.mem.iter().all(|member| *member == user.name)
    })
}

/// Whether the file has an access list, which may let other users write where the group may.
fn has_access_list(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return true;
    };
    let name = c"system.posix_acl_access";
    // SAFETY: two C strings; without a buffer only the length is returned.
    let length = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    let none = [libc::ENODATA, libc::EOPNOTSUPP];
    length >= 0 || !none.contains(&Errno::last_raw())
}

#[cfg(test)]
mod tests;
