//! The folder for the reports of a running program's agent: found by the program's environment.

use anyhow::Context as _;
use gctrace_probes::proc_status;
use gctrace_settings::{AppliedProcess, CONTROL_FILE, FOLDER_VARIABLE, MAX_REPORT, REPORT_SUFFIX};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// gctrace's private folder of a program that `gctrace apply` or `gctrace auto` has started.
#[derive(Debug)]
pub(crate) struct AgentFolder {
    folder: File,
    /// The user of the program and owner of the whole folder.
    owner: u32,
    report: String,
}

impl AgentFolder {
    /// The folder of a process of this user; `None`: it is another user's (it could name any folder), or was not
    /// started so.
    ///
    /// # Errors
    /// The process has ended or may not be inspected, or its folder is not private.
    pub(crate) fn of(pid: u32, owner: u32) -> anyhow::Result<Option<Self>> {
        let status = proc_status::status(pid)?;
        if status.effective_user != Some(owner) {
            return Ok(None);
        }
        let environment = proc_status::environment(pid)?;
        let Some(path) = environment.get(OsStr::new(FOLDER_VARIABLE)) else { return Ok(None) };
        let inner = status.namespace_pids.last().copied().unwrap_or(pid);
        let path = match status.namespace_pids.len() {
            0 | 1 => PathBuf::from(path),
            // Of its container.
            _ => {
                let path = Path::new(path);
                let path = path.strip_prefix("/").unwrap_or(path);
                Path::new("/proc").join(pid.to_string()).join("root").join(path)
            }
        };
        let folder = open_folder(&path, owner)
            .with_context(|| format!("the folder of process {pid}, {}", path.display()))?;
        Ok(Some(Self { folder, owner, report: format!("{inner}{REPORT_SUFFIX}") }))
    }

    /// The file for taking settings back.
    pub(super) fn control(&self) -> io::Result<File> {
        self.open(CONTROL_FILE, OFlag::O_WRONLY)
    }

    /// The last report of its agent, made about once a second; `None`: nothing, or nothing complete.
    pub(crate) fn report(&self) -> Option<AppliedProcess> {
        let file = self.open(&self.report, OFlag::O_RDONLY).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_REPORT).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn open(&self, name: &str, access: OFlag) -> io::Result<File> {
        let flags = access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(nix::fcntl::openat(&self.folder, name, flags, Mode::empty())?);
        let found = file.metadata()?;
        if found.is_file() && found.uid() == self.owner && found.nlink() == 1 {
            Ok(file)
        } else {
            Err(io::Error::other("it is not gctrace's file"))
        }
    }
}

/// Opens a private folder of this user, and no other's.
fn open_folder(path: &Path, owner: u32) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = File::from(nix::fcntl::open(path, flags, Mode::empty())?);
    let found = folder.metadata()?;
    if found.uid() == owner && found.mode() & 0o077 == 0 {
        Ok(folder)
    } else {
        Err(io::Error::other("it is not a private folder of this user"))
    }
}
