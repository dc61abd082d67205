//! `libgctrace_inject.so`: finds it, checks that it may be loaded into the command, and arranges
//! that.
//!
//! `probes/inject` is the library; `record/mode.rs` decides whether it is used.

use crate::invoker::Invoker;
use crate::launch::bundle::BundledLibrary;
use crate::launch::{LaunchPlan, bundle, trial};
use crate::trust;
use crate::trust::WritablePath;
use crate::variables::{VariableEffect, variable};
use anyhow::Context as _;
use gctrace_ring::{
    MEMORY_HISTORY_VARIABLE, OPTIONS_VARIABLE, RENDEZVOUS_VARIABLE, STEP_FUNCTION_VARIABLE,
};
use nix::errno::Errno;
use nix::unistd::Uid;
use std::env::consts::ARCH;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// File name of the injected library, the same in every folder that is searched for it.
pub(crate) const LIBRARY: &str = "libgctrace_inject.so";

/// Names the file instead of a search, for packagers and tests.
const LIBRARY_VARIABLE: &str = "GCTRACE_INJECT_LIBRARY";

/// Folders where it is installed for all users.
const INSTALLED: [&str; 2] = ["/usr/local/lib/gctrace", "/usr/lib/gctrace"];

/// Most bytes of a library that is copied; a debug build has 20 MB.
const MOST_BYTES: u64 = 256 << 20;

/// The library, and the sources it records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectionPlan {
    /// The path of the library.
    pub library: PathBuf,
    /// The sources for the library to record, as its environment variable will state them.
    pub options: gctrace_ring::InjectOptions,
    /// The function of `--step-function`.
    pub step_function: Option<String>,
    /// The file of `--memory-history`.
    pub memory_history: Option<PathBuf>,
}

/// Builds and installs gctrace with its libraries.
const BUILD: &str = "cargo build --release && sudo target/release/gctrace setup";

/// Libraries for the dynamic loader to load first (ld.so(8)).
const PRELOAD: &str = "LD_PRELOAD";

/// The library that NVIDIA's driver loads when it is initialized.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";

/// Why the library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// It was not found.
    #[error("{LIBRARY} is neither next to gctrace nor in {}", shown(.searched))]
    NotFound {
        /// The folders that were searched.
        searched: Vec<PathBuf>,
    },
    /// It is inside this binary, but no folder can have a copy.
    #[error("{LIBRARY}, part of this gctrace, cannot be in {}", .reasons.join("; "))]
    NotKept {
        /// Each folder with the reason.
        reasons: Vec<String>,
    },
    /// The file is not usable.
    #[error("{} cannot be used: {reason}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The kernel's reason, or the file's fault.
        reason: String,
    },
    /// It is from another version of gctrace.
    #[error("{} is from gctrace {found}, this is gctrace {}", .path.display(), gctrace_ring::VERSION)]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// The command's user may not read it.
    #[error("{user} may not read {}: {reason}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The user that the command runs as.
        user: String,
        /// The kernel's reason.
        reason: String,
    },
    /// With more rights than its user, gctrace loads nothing that anyone but root and the command's
    /// user could have replaced.
    #[error("{rights}, gctrace does not load {} into programs of {user}: {writable}", .path.display())]
    NotTrusted {
        /// The file.
        path: PathBuf,
        /// `as root`, `with file capabilities`.
        rights: &'static str,
        /// The user that the command runs as.
        user: String,
        /// The replaceable part of the path, and the users that could have replaced it.
        writable: WritablePath,
    },
    /// The loader ends a path at a space or a colon.
    #[error("{} has a space or a colon in its path; the loader would split it there", .path.display())]
    Separator {
        /// The file.
        path: PathBuf,
    },
}

fn shown(folders: &[PathBuf]) -> String {
    let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    folders.join(", ")
}

impl LibraryError {
    /// The remedy for the user, with the command to type.
    pub fn remedy(&self) -> String {
        match self {
            Self::NotFound { .. } => {
                format!("Each release of gctrace has it. To build and install both:\n    {BUILD}")
            }
            Self::NotKept { .. } if Uid::effective().is_root() => {
                "Make one of these folders writable, or install gctrace with its library where only \
                 root can write: gctrace setup --prefix FOLDER"
                    .to_owned()
            }
            Self::NotKept { .. } => {
                "Name a folder that may have programs: XDG_CACHE_HOME=FOLDER gctrace ...".to_owned()
            }
            Self::Unusable { .. } | Self::OtherVersion { .. } => format!(
                "gctrace and the library must be of one build. To build and install both:\n    {BUILD}"
            ),
            Self::Unreadable { path, .. }
            | Self::NotTrusted { path, .. }
            | Self::Separator { path } => {
                let words = [
                    OsStr::new("install"),
                    "-D".as_ref(),
                    "-m".as_ref(),
                    "755".as_ref(),
                ];
                let target = installed();
                let words: Vec<&OsStr> = words
                    .into_iter()
                    .chain([path.as_os_str(), OsStr::new(&target)])
                    .collect();
                let install = crate::text::shell_line(&words);
                if path == Path::new(&target) {
                    format!(
                        "Only root should be able to write it:\n    sudo chown root:root {target} && sudo chmod 755 {target}"
                    )
                } else {
                    format!("Install it where only root can write:\n    sudo {install}")
                }
            }
        }
    }
}

/// The first of the installation folders that only root can write.
fn installed() -> String {
    let trusted = |folder: &&str| {
        let there = Path::new(folder).ancestors().find(|part| part.exists());
        matches!(there, Some(part) if nobody_ever_can_write(part, 0))
    };
    let [first, _] = INSTALLED;
    let folder = INSTALLED.into_iter().find(trusted).unwrap_or(first);
    format!("{folder}/{LIBRARY}")
}

/// Whether no one but root and `user` may put anything there, now or once the present file is gone.
fn nobody_ever_can_write(path: &Path, user: u32) -> bool {
    trust::examine(path, user).is_ok_and(|found| found.writable.or(found.sticky).is_none())
}

/// The library, checked for loading into the command: a file next to gctrace, the file inside this binary, or a file
/// installed for all users.
///
/// # Errors
/// Why not; of several files, the first one's reason.
pub fn library_for(launch: &LaunchPlan) -> Result<PathBuf, LibraryError> {
    match variable(LIBRARY_VARIABLE, VariableEffect::Code) {
        Some(named) => usable(&PathBuf::from(named), launch, &bundle::places()),
        None => first_usable(launch, bundle::INJECT.as_ref(), &bundle::places()),
    }
}

/// The contents of the library, to install it.
///
/// # Errors
/// There is none that may be loaded into commands of the invoker.
pub fn injected_library() -> anyhow::Result<Vec<u8>> {
    if let Some(bundled) = bundle::INJECT {
        return bundled.contents().context("this gctrace is damaged");
    }
    let launch = LaunchPlan::new(&["true".into()], &Invoker::detect(), false);
    let path = library_for(&launch)?;
    let mut contents = Vec::new();
    let read = open_as_user(&path, &launch)?.read_to_end(&mut contents);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(contents)
}

/// `places`: where a private copy of a library may be kept.
fn first_usable(
    launch: &LaunchPlan,
    bundled: Option<&BundledLibrary>,
    places: &[PathBuf],
) -> Result<PathBuf, LibraryError> {
    let mut refused = None;
    let mut searched = folders_beside();
    let mut found = first_of(&searched, launch, places, &mut refused);
    if let (None, Some(bundled)) = (&found, bundled) {
        match copied(bundled, places, launch) {
            Ok(path) => found = Some(path),
            Err(error) => _ = refused.get_or_insert(error),
        }
    }
    let installed = INSTALLED.map(PathBuf::from);
    found = found.or_else(|| first_of(&installed, launch, places, &mut refused));
    searched.extend(installed);
    found.ok_or_else(|| refused.unwrap_or(LibraryError::NotFound { searched }))
}

/// The first usable file; `refused` gets the reason of the first that is not.
fn first_of(
    folders: &[PathBuf],
    launch: &LaunchPlan,
    places: &[PathBuf],
    refused: &mut Option<LibraryError>,
) -> Option<PathBuf> {
    let files = folders.iter().map(|folder| folder.join(LIBRARY));
    for file in files.filter(|file| file.exists()) {
        match usable(&file, launch, places) {
            Ok(path) => return Some(path),
            Err(error) => {
                tracing::info!("{error}");
                _ = refused.get_or_insert(error);
            }
        }
    }
    None
}

/// A copy of the library inside this binary, in the first place that can have one.
fn copied(
    bundled: &BundledLibrary,
    places: &[PathBuf],
    launch: &LaunchPlan,
) -> Result<PathBuf, LibraryError> {
    let mut reasons = Vec::new();
    for place in places {
        let copy = bundled.copy_in(place).map_err(|error| error.to_string());
        match copy.and_then(|file| usable(&file, launch, &[]).map_err(|error| error.to_string())) {
            Ok(path) => {
                if !reasons.is_empty() {
                    let (path, reasons) = (path.display(), reasons.join("; "));
                    tracing::warn!("the injected library is {path}, as it cannot be in {reasons}");
                }
                return Ok(path);
            }
            Err(reason) => reasons.push(format!("{} ({reason})", place.display())),
        }
    }
    Err(LibraryError::NotKept { reasons })
}

/// Next to gctrace, in the folder of a cargo build and in `../lib`.
fn folders_beside() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let mut folders = Vec::new();
    if let Some(folder) = program.as_deref().and_then(Path::parent) {
        // Cargo leaves old copies behind: the newest is from this build.
        let built: fn(&PathBuf) -> Option<SystemTime> =
            |folder| folder.join(LIBRARY).metadata().ok()?.modified().ok();
        folders = vec![folder.to_owned(), folder.join("deps")];
        folders.sort_by_key(|folder| std::cmp::Reverse(built(folder)));
        folders.extend(folder.parent().map(|above| above.join("lib/gctrace")));
    }
    folders
}

/// Checks one file; returns the path to load: its own with links resolved or, below a folder such
/// as `/tmp`, the path of a private copy in the first of `places` that can have one.
fn usable(file: &Path, launch: &LaunchPlan, places: &[PathBuf]) -> Result<PathBuf, LibraryError> {
    let unusable = |reason: String| LibraryError::Unusable { path: file.to_owned(), reason };
    let mut path = std::fs::canonicalize(file).map_err(|error| unusable(error.to_string()))?;
    let has_separator = path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte));
    if has_separator && launch.identity.is_some() {
        return Err(LibraryError::Separator { path });
    }
    if let Some(rights) = trust::rights_beyond_user(launch.identity.is_some()) {
        let examined = trust::examine(&path, launch.user_id());
        let examined = examined.map_err(|error| unusable(error.to_string()))?;
        if let Some(writable) = examined.writable.clone().or(examined.sticky) {
            let copy = match examined.writable {
                None => kept_elsewhere(&path, launch, places)?,
                Some(_) => None,
            };
            let Some(copy) = copy else {
                let user = launch.user();
                return Err(LibraryError::NotTrusted { path, rights, user, writable });
            };
            tracing::info!("{copy:?} is a copy of {path:?}, as {writable}");
            path = copy;
        }
    }
    version_matches(&path, &open_as_user(&path, launch)?)?;
    // If the C library is older than the one it was linked with, no program would start with it
    // preloaded.
    trial::loads(&path, launch).map_err(unusable)?;
    Ok(path)
}

/// A private copy of a file that another user can replace later, although not now: programs load the library whenever
/// they start others, and files in `/tmp` may be removed while they run. `None`: no place can have it.
fn kept_elsewhere(
    path: &Path,
    launch: &LaunchPlan,
    places: &[PathBuf],
) -> Result<Option<PathBuf>, LibraryError> {
    let mut contents = Vec::new();
    let read = open_as_user(path, launch)?.take(MOST_BYTES + 1).read_to_end(&mut contents);
    let reason = match read {
        Ok(length) if length as u64 > MOST_BYTES => "is too large for the library".to_owned(),
        Ok(_) => {
            // Only names a folder: the contents of a file in there are compared.
            let mut hasher = DefaultHasher::new();
            contents.hash(&mut hasher);
            let hash = format!("{:016x}", hasher.finish());
            let trusted = |copy: &PathBuf| nobody_ever_can_write(copy, launch.user_id());
            let copies =
                places.iter().map(|place| bundle::private_copy(place, &hash, LIBRARY, &contents));
            return Ok(copies.flatten().find(trusted));
        }
        Err(error) => error.to_string(),
    };
    Err(LibraryError::Unusable { path: path.to_owned(), reason })
}

/// Opens the library as the loader will: with the rights of the command's user, who may have put
/// anything there since.
#[expect(clippy::disallowed_methods, reason = "opened for reading")]
fn open_as_user(path: &Path, launch: &LaunchPlan) -> Result<File, LibraryError> {
    let mut options = File::options();
    let options =
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let opened =
        launch.with_users_rights(|| options.open(path)).unwrap_or_else(|| Err(Errno::EPERM.into()));
    let file = opened.map_err(|error| LibraryError::Unreadable {
        path: path.to_owned(),
        user: launch.user(),
        reason: error.to_string(),
    })?;
    if file.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(file);
    }
    Err(LibraryError::Unusable { path: path.to_owned(), reason: "it is not a file".to_owned() })
}

fn version_matches(path: &Path, file: &File) -> Result<(), LibraryError> {
    let unusable = |reason: String| LibraryError::Unusable { path: path.to_owned(), reason };
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    let version = gctrace_probes::exported_bytes(opened.as_ref(), gctrace_ring::VERSION_SYMBOL)
        .map_err(|error| unusable(error.to_string()))?
        .ok_or_else(|| unusable(format!("it is not gctrace's library for {ARCH}")))?;
    if version == gctrace_ring::VERSION.as_bytes() {
        return Ok(());
    }
    Err(LibraryError::OtherVersion {
        path: path.to_owned(),
        found: String::from_utf8_lossy(&version).into_owned(),
    })
}

impl LaunchPlan {
    /// Name of the user that the command runs as.
    fn user(&self) -> String {
        match &self.identity {
            Some(user) => user.name.clone(),
            None => Invoker::effective_name(),
        }
    }

    /// Id of the user that the command runs as.
    fn user_id(&self) -> u32 {
        match &self.identity {
            Some(user) => user.uid,
            None => Uid::effective().as_raw(),
        }
    }

    /// Makes the loader load the library into the command and its children, after the user's own libraries. `private`:
    /// gctrace's folder. Returns the path that it is loaded by.
    ///
    /// # Errors
    /// The loader would split the library's path, and it cannot be given another one in the private
    /// folder.
    pub fn preload(&mut self, library: &Path, private: &Path) -> io::Result<PathBuf> {
        let library = preloadable(library, private)?;
        let environment = self.environment.get(OsStr::new(PRELOAD));
        let mut preloaded = environment.cloned().unwrap_or_default();
        if !split_preload(&preloaded).any(|entry| entry == library.as_os_str()) {
            if !preloaded.is_empty() {
                preloaded.push(":");
            }
            preloaded.push(&library);
        }
        self.set_variable(PRELOAD, preloaded);
        Ok(library)
    }

    /// Sets a variable of the command's environment.
    pub fn set_variable(&mut self, name: &str, value: OsString) {
        self.environment.insert(name.into(), value);
    }

    /// Makes the loader and NVIDIA's driver load the library into the command and its children. `rendezvous` is the
    /// socket, in gctrace's private folder. A `CUDA_INJECTION64_PATH` of another tool is kept, and the library then
    /// starts without the driver's call.
    ///
    /// # Errors
    /// As of [`Self::preload`].
    pub fn inject(&mut self, injection: &InjectionPlan, rendezvous: &Path) -> io::Result<()> {
        let private = rendezvous.parent().unwrap_or(Path::new("/"));
        let library = self.preload(&injection.library, private)?;
        self.set_variable(RENDEZVOUS_VARIABLE, rendezvous.into());
        self.set_variable(OPTIONS_VARIABLE, injection.options.to_string().into());
        if let Some(function) = &injection.step_function {
            self.set_variable(STEP_FUNCTION_VARIABLE, function.into());
        }
        if let Some(file) = &injection.memory_history {
            // The program may change its directory.
            self.set_variable(MEMORY_HISTORY_VARIABLE, std::path::absolute(file)?.into());
        }
        let uses_cupti = injection.options.cuda && !injection.options.yields;
        if uses_cupti && self.foreign_cuda_injection().is_none() {
            self.set_variable(CUDA_INJECTION, library.into());
        }
        Ok(())
    }

    /// The value of `CUDA_INJECTION64_PATH` in the command's environment, unless it is another
    /// tool's library; `None` if it is unset.
    pub fn cuda_injection(&self) -> Option<&OsStr> {
        let named = self.variable(CUDA_INJECTION);
        if self.foreign_cuda_injection().is_none() { named } else { None }
    }

    /// The value of `CUDA_INJECTION64_PATH` in the command's environment if it is another tool's library; gctrace
    /// leaves it in place.
    pub fn foreign_cuda_injection(&self) -> Option<&OsStr> {
        self.variable(CUDA_INJECTION).filter(|value| {
            !value.is_empty() && Path::new(value).file_name() != Some(OsStr::new(LIBRARY))
        })
    }
}

/// Splits like the loader.
pub(super) fn split_preload(value: &OsStr) -> impl Iterator<Item = &OsStr> {
    value.as_bytes().split(|byte| matches!(byte, b' ' | b':')).map(OsStr::from_bytes)
}

/// A path that the loader does not split: the library's own, or a link's to it in the private
/// folder.
fn preloadable(library: &Path, private: &Path) -> io::Result<PathBuf> {
    let whole = |path: &Path| split_preload(path.as_os_str()).nth(1).is_none();
    if whole(library) {
        return Ok(library.to_owned());
    }
    let link = private.join(LIBRARY);
    if !whole(&link) {
        return Err(io::Error::other(format!(
            "the loader would split {} and {} at a space or colon; set TMPDIR to a folder without them",
            library.display(),
            link.display()
        )));
    }
    match std::os::unix::fs::symlink(library, &link) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(link),
    }
}

#[cfg(test)]
mod tests;
