//! Which users may change a file: with more rights than its user, gctrace loads only what root
//! chose.

use crate::privileges::has_more_rights_than_its_user;
use crate::privileges::in_foreign_user_namespace;
use nix::unistd::Gid;
use nix::unistd::Group;
use nix::unistd::Uid;
use nix::unistd::User;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

/// Write permission of the group, and of everyone (inode(7)).
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// A part of a path that a user other than root may write, and so replace what the path leads to.
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

/// Where gctrace has rights beyond those of its user from; `None` if it has none. `for_another`: it
/// assumes another user's identity. Root of a user namespace has its owner's rights, and the host's
/// files belong to other users there.
pub(crate) fn rights_beyond_user(for_another: bool) -> Option<&'static str> {
    let is_root = Uid::effective().is_root();
    if is_root && (for_another || !in_foreign_user_namespace()) {
        return Some("as root");
    }
    has_more_rights_than_its_user().then_some("with file capabilities")
}

/// The first part of an absolute path, from its end, that a user other than root may write; the
/// path must contain no links. A folder in which each user may remove only their own files (`/tmp`)
/// counts as well: any user can have created what is there. Group permissions also bound access
/// lists (acl(5)).
///
/// # Errors
/// A part cannot be examined.
pub(crate) fn writable_by_others(path: &Path) -> io::Result<Option<WritablePath>> {
    for part in path.ancestors() {
        let found = std::fs::symlink_metadata(part)?;
        if let Some(who) = writer(found.uid(), found.gid(), found.mode()) {
            let part = part.to_owned();
            return Ok(Some(WritablePath { part, who }));
        }
    }
    Ok(None)
}

fn writer(uid: u32, gid: u32, mode: u32) -> Option<PathWriter> {
    if uid != 0 {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = user.map_or_else(|| format!("user {uid}"), |user| user.name);
        return Some(PathWriter::Owner(name));
    }
    if mode & OTHERS_WRITE != 0 {
        return Some(PathWriter::Everyone);
    }
    (mode & GROUP_WRITES != 0).then(|| {
        let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
        PathWriter::Group(group.map_or_else(|| gid.to_string(), |group| group.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn who_may_write() {
        assert_eq!(writer(0, 0, 0o100_755), None);
        assert_eq!(writer(0, 0, 0o040_755), None);
        assert_eq!(writer(0, 7, 0o100_644), None);
        assert_eq!(writer(0, 0, 0o041_777), Some(PathWriter::Everyone));
        assert_eq!(
            writer(0, 0, 0o100_775),
            Some(PathWriter::Group("root".into()))
        );
        let unknown_uid = u32::MAX - 5;
        assert_eq!(
            writer(unknown_uid, 0, 0o100_755),
            Some(PathWriter::Owner(format!("user {unknown_uid}")))
        );
    }

    #[test]
    fn each_folder_on_the_way_counts() {
        assert_eq!(writable_by_others(Path::new("/usr/bin/env")).unwrap(), None);
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("open");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let file = folder.join("x");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let found = writable_by_others(&file).unwrap().expect("a part");
        if Uid::effective().is_root() {
            assert_eq!(found.part, folder);
            assert!(found.to_string().starts_with("everyone may write"));
        } else {
            assert_eq!(found.part, file);
        }
        assert!(writable_by_others(&folder.join("none")).is_err());
    }
}
