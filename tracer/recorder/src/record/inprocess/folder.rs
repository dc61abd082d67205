//! The private folder of gctrace and the programs that it starts.
//!
//! Owns its place, that no other user can enter it, and its removal: at the end, or, after a
//! gctrace was killed, at the next start. It contains the socket of a recording, the reports of
//! `gctrace apply`, and files that the command must find at a path without spaces.

use crate::invoker::Invoker;
use crate::trust;
use crate::variables::{VariableEffect, variable};
use anyhow::Context as _;
use gctrace_ring::{ABSENCE_FILE, AbsenceFiles, CONFINED_FILE};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag};
use nix::sys::stat::Mode;
use nix::sys::statvfs::Statvfs;
use nix::unistd::{Gid, Uid, UnlinkatFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const PREFIX: &str = "gctrace-";
const SOCKET: &str = "socket";

/// The owner of a younger folder may not have locked it yet.
const SETTLED: Duration = Duration::from_secs(10);

/// Maximum number of folders of other gctraces that are examined to remove leftovers.
const MAX_FOLDERS: usize = 1000;

/// Maximum number of entries of the folder that are listed: three files for each process that may
/// report, and some of the programs' own.
const MAX_ENTRIES: usize = 10_000;

/// Maximum depth of nested folders to remove: each keeps a descriptor open meanwhile.
const DEEPEST: u32 = 64;

/// The user that owns the folder; this user's programs connect to the socket in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl FolderOwner {
    /// The user that a command runs as.
    pub fn of_command(invoker: &Invoker, as_root: bool) -> Self {
        let is_other = invoker.escalated_by().is_some() && !as_root;
        let (uid, gid) = if is_other {
            (invoker.uid, invoker.gid)
        } else {
            (Uid::effective().as_raw(), Gid::effective().as_raw())
        };
        Self { uid, gid }
    }

    /// Whether a process that connected is accepted: the user's own, or root's.
    pub fn accepts(self, pid: u32, uid: u32) -> bool {
        pid != 0 && [self.uid, 0].contains(&uid)
    }
}

/// The private folder; removed when dropped.
#[derive(Debug)]
pub struct InjectFolder {
    path: PathBuf,
    parent: File,
    name: String,
    /// Kept open and locked: shows others that this gctrace is alive.
    locked: Flock<File>,
}

impl InjectFolder {
    /// Creates a folder that only `owner` and root can enter, in the first suitable place, after
    /// removing leftovers of killed gctraces of the same user there.
    pub fn make(places: &[PathBuf], owner: FolderOwner) -> anyhow::Result<Self> {
        let mut refusals = Vec::new();
        for place in places {
            match open_place(place) {
                Ok(parent) => {
                    remove_leftovers(place, &parent, owner);
                    match Self::make_in(place, parent) {
                        Ok(folder) => return Ok(folder),
                        Err(error) => refusals.push(format!("{}: {error:#}", place.display())),
                    }
                }
                Err(error) => refusals.push(format!("{}: {error:#}", place.display())),
            }
        }
        anyhow::bail!(
            "no place for a private folder ({}); TMPDIR=DIR names another",
            refusals.join("; ")
        )
    }

    fn make_in(place: &Path, parent: File) -> anyhow::Result<Self> {
        // Random keys of the standard library's hash tables, from the kernel.
        let random = std::hash::RandomState::new().hash_one(std::process::id());
        let name = format!("{PREFIX}{random:016x}");
        nix::sys::stat::mkdirat(&parent, name.as_str(), Mode::S_IRWXU).context("mkdir")?;
        let opened = open_folder(&parent, OsStr::new(&name));
        let made = opened.context("cannot open the folder just created").and_then(|folder| {
            let locked = Flock::lock(folder, FlockArg::LockExclusiveNonblock);
            locked.map_err(|(_, errno)| anyhow::Error::from(errno).context("flock"))
        });
        let locked = match made {
            Ok(locked) => locked,
            Err(error) => {
                let _ = nix::unistd::unlinkat(&parent, name.as_str(), UnlinkatFlags::RemoveDir);
                return Err(error);
            }
        };
        let folder = Self { path: place.join(&name), parent, name, locked };
        folder.check()?;
        if folder.socket().as_os_str().len() > LONGEST_PATH {
            anyhow::bail!("the path is too long for a socket");
        }
        Ok(folder)
    }

    /// Checks that it is ours, whatever happened to the name since it was created.
    fn check(&self) -> anyhow::Result<()> {
        let found = self.locked.metadata().context("fstat")?;
        let is_ours =
            found.is_dir() && found.uid() == Uid::effective().as_raw() && found.mode() & 0o077 == 0;
        anyhow::ensure!(is_ours, "another process replaced the folder");
        Ok(())
    }

    /// Its path, for the programs' environment.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path to bind the socket to.
    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// Creates the files where programs of `owner` count themselves.
    pub fn absence_files(&self, owner: FolderOwner) -> anyhow::Result<AbsenceFiles> {
        let counts = self.make_file(ABSENCE_FILE, owner)?;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        nix::unistd::mkfifoat(&*self.locked, CONFINED_FILE, mode).context("mkfifo")?;
        let confined = self.open(CONFINED_FILE, OFlag::O_NONBLOCK, owner)?;
        AbsenceFiles::begin(counts, confined).context(ABSENCE_FILE)
    }

    /// Creates a file in it, for programs of `owner` to write to.
    pub fn make_file(&self, name: &str, owner: FolderOwner) -> anyhow::Result<File> {
        self.open(name, OFlag::O_CREAT | OFlag::O_EXCL, owner)
    }

    /// Opens a file and makes `owner` its owner.
    fn open(&self, name: &str, flags: OFlag, owner: FolderOwner) -> anyhow::Result<File> {
        let flags = flags | OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = nix::fcntl::openat(&*self.locked, name, flags, mode).context("openat")?;
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        if owner.uid != Uid::effective().as_raw() {
            nix::unistd::fchown(&file, Some(uid), Some(gid)).context("fchown")?;
        }
        Ok(File::from(file))
    }

    /// Names in it: its first entries, as the user's programs may make any number.
    pub fn names(&self) -> Vec<String> {
        let listed = entries(&self.locked);
        let names = listed.into_iter().flatten().flatten();
        names.take(MAX_ENTRIES).filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Reads a file that a program has written; of another user's folder, only that user's files.
    /// At most `most` bytes: a longer file is an error.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = nix::fcntl::openat(&*self.locked, name, flags, Mode::empty())?;
        let file = File::from(file);
        let (found, folder) = (file.metadata()?, self.locked.metadata()?);
        let is_owners = found.uid() == folder.uid() && found.nlink() == 1;
        if !found.is_file() || !is_owners || found.len() > most {
            return Err(io::Error::other("not a report"));
        }
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Gives the folder and its socket, if it has one, to the user of the programs, if gctrace runs
    /// as another (root).
    pub fn hand_to(&self, owner: FolderOwner) -> anyhow::Result<()> {
        if owner.uid == Uid::effective().as_raw() {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        // The socket first: afterwards its user could replace it.
        let given = nix::unistd::fchownat(
            self.locked.as_fd(),
            SOCKET,
            Some(uid),
            Some(gid),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        );
        if given != Err(Errno::ENOENT) {
            given.context("cannot give the socket to the command's user")?;
        }
        nix::unistd::fchown(&*self.locked, Some(uid), Some(gid))
            .context("cannot give the private folder to the command's user")
    }
}

/// `sun_path` without the zero at its end (unix(7)).
const LONGEST_PATH: usize = 107;

impl Drop for InjectFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.parent, OsStr::new(&self.name), &self.locked) {
            tracing::warn!("{} could not be removed: {error}", self.path.display());
        }
    }
}

/// Places in the order of the attempts: in memory, and the user's own, first. Places from root's environment are not
/// the user's.
pub fn places(owner: FolderOwner) -> Vec<PathBuf> {
    let named = |name| {
        let value = variable(name, VariableEffect::Place).map(PathBuf::from);
        value.filter(|path| path.is_absolute() && owner.uid == Uid::effective().as_raw())
    };
    let fixed = |path: &str| Some(PathBuf::from(path));
    [
        named("XDG_RUNTIME_DIR"),
        fixed("/dev/shm"),
        named("TMPDIR"),
        fixed("/tmp"),
        // In a user namespace of the user's own (rootless containers) root's folders are owned by
        // the overflow uid (nobody).
        named("HOME").map(|home| home.join(".cache")),
        named("HOME"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Opens a folder where no other user can rename ours: the user's own or root's, and sticky if others may write to it.
#[expect(clippy::disallowed_methods, reason = "opened for reading")]
fn open_place(place: &Path) -> anyhow::Result<File> {
    let examined = trust::examine(place, Uid::effective().as_raw())?;
    if let Some(writable) = examined.writable {
        anyhow::bail!("others may rename its files: {writable}");
    }
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let opened = File::options().read(true).custom_flags(flags).open(examined.real)?;
    let space = nix::sys::statvfs::fstatvfs(&opened).context("statvfs")?;
    anyhow::ensure!(has_room(&space), "it is full");
    Ok(opened)
}

/// Room for the files of gctrace and the processes of a command in the folder, in bytes: 16 reports.
const ROOM: u64 = 1 << 16;

/// Whether ordinary users may write this much. Memory without a limit (`tmpfs` of size 0) has no
/// blocks at all.
fn has_room(space: &Statvfs) -> bool {
    let free = gctrace_units::times(space.blocks_available(), space.fragment_size());
    space.blocks() == 0 || free >= ROOM
}

fn open_folder(parent: &File, name: &OsStr) -> nix::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    nix::fcntl::openat(parent, name, flags, Mode::empty()).map(File::from)
}

/// Removes folders of ended gctrace processes: their lock is free.
fn remove_leftovers(place: &Path, parent: &File, owner: FolderOwner) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| is_our_name(&entry.file_name()));
    for entry in ours.take(MAX_FOLDERS) {
        if let Err(error) = remove_leftover(parent, &entry.file_name(), owner) {
            tracing::debug!("{}: {error}", entry.path().display());
        }
    }
}

/// `gctrace-` and 16 hexadecimal digits.
fn is_our_name(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let Some(digits) = name.strip_prefix(PREFIX) else { return false };
    digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn remove_leftover(parent: &File, name: &OsStr, owner: FolderOwner) -> io::Result<()> {
    let folder = open_folder(parent, name)?;
    let found = folder.metadata()?;
    let is_same_user = [owner.uid, Uid::effective().as_raw()].contains(&found.uid());
    let age = SystemTime::now().duration_since(found.modified()?);
    let is_settled = age.is_ok_and(|age| age >= SETTLED);
    if !is_same_user || found.mode() & 0o077 != 0 || !is_settled {
        return Ok(());
    }
    match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
        Ok(locked) => remove(parent, name, &locked),
        Err((_, Errno::EWOULDBLOCK)) => Ok(()),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// Removes the contents of the opened folder, and then the name. Only an empty folder's name can be removed: if its
/// user replaced it, the replacement stays.
fn remove(parent: &File, name: &OsStr, folder: &File) -> io::Result<()> {
    empty(folder, 0)?;
    Ok(nix::unistd::unlinkat(parent, name, UnlinkatFlags::RemoveDir)?)
}

/// Removes the contents of an opened folder. Programs may make folders in it.
fn empty(folder: &File, depth: u32) -> io::Result<()> {
    for entry in entries(folder)?.flatten() {
        let name = entry.file_name();
        let removed = nix::unistd::unlinkat(folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        // EPERM: as POSIX has it for folders.
        if !matches!(removed, Err(Errno::EISDIR | Errno::EPERM)) {
            removed?;
            continue;
        }
        if depth >= DEEPEST {
            return Err(io::Error::other("it contains folders in folders in folders"));
        }
        empty(&open_inner(folder, &name)?, depth + 1)?;
        nix::unistd::unlinkat(folder, name.as_os_str(), UnlinkatFlags::RemoveDir)?;
    }
    Ok(())
}

/// Opens a folder in a folder. A folder that its own user may not list is made listable; root may.
fn open_inner(folder: &File, name: &OsStr) -> io::Result<File> {
    match open_folder(folder, name) {
        Err(Errno::EACCES) => {}
        opened => return Ok(opened?),
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let place = nix::fcntl::openat(folder, name, flags, Mode::empty())?;
    let listable = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(format!("/proc/self/fd/{}", place.as_raw_fd()), listable)?;
    Ok(open_folder(folder, name)?)
}

/// The entries of an opened folder: by the descriptor, since the name may lead elsewhere by now.
fn entries(folder: &File) -> io::Result<std::fs::ReadDir> {
    std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests;
