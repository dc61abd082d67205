//! Obstacles to preloading a library into the command, as far as files show before it starts.
//!
//! Follows the command as the kernel and env(1) would: through PATH, first lines of scripts, and
//! words of `env`.

use crate::invoker::act_as;
use crate::launch::LaunchPlan;
use crate::launch::environment::Environment;
use crate::launch::preload::split_preload;
use gctrace_probes::{Loading, ProgramKind, is_sanitizer_runtime};
use nix::unistd::{Gid, Uid};
use std::env::consts::ARCH;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A script may name a script: the kernel follows five (`exec_binprm`, fs/exec.c), and `env` may be
/// in between.
const MAX_STEPS: usize = 10;

/// An obstacle to loading the library into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreloadObstacle {
    /// The program.
    pub file: PathBuf,
    /// The obstacle.
    pub what: ObstacleKind,
}

/// Kind of obstacle, in a program or in the programs that it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObstacleKind {
    /// Statically linked, with Python inside.
    StaticPython,
    /// Statically linked: programs that it starts may load libraries.
    Static,
    /// Runs with privileges beyond its user's: the loader drops the variables, for its children as
    /// well.
    OtherRights(&'static str),
    /// Uses musl's loader. The library does not support it: the program would not start.
    Musl(PathBuf),
    /// Has the runtime library of a sanitizer, of this name; no other may be loaded before it.
    Sanitizer(String),
    /// For another processor.
    Machine(String),
    /// Starts programs without the variables, or elsewhere.
    Drops(String),
}

impl PreloadObstacle {
    /// Whether nothing of the command can be recorded in-process.
    pub fn is_certain(&self, children_follow: bool) -> bool {
        match self.what {
            ObstacleKind::StaticPython
            | ObstacleKind::OtherRights(_)
            | ObstacleKind::Musl(_)
            | ObstacleKind::Sanitizer(_) => true,
            ObstacleKind::Static | ObstacleKind::Machine(_) => !children_follow,
            ObstacleKind::Drops(_) => false,
        }
    }
}

impl fmt::Display for PreloadObstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match &self.what {
            ObstacleKind::StaticPython => write!(
                formatter,
                "{file} is statically linked with Python inside: no library can be loaded into it"
            ),
            ObstacleKind::Static => write!(
                formatter,
                "{file} is statically linked: no library can be loaded into it, only into programs it starts"
            ),
            ObstacleKind::OtherRights(which) => write!(
                formatter,
                "{file} runs with privileges beyond its user's ({which}): the loader loads no library into it or its children"
            ),
            ObstacleKind::Musl(loader) => write!(
                formatter,
                "{file} is loaded by {}: the library needs the GNU C library",
                loader.display()
            ),
            ObstacleKind::Sanitizer(runtime) => write!(
                formatter,
                "{file} is built with a sanitizer: its {runtime} has to be loaded before any other library"
            ),
            ObstacleKind::Machine(machine) => write!(
                formatter,
                "{file} is a program for {machine}: the library is built for {ARCH}"
            ),
            ObstacleKind::Drops(word) => write!(
                formatter,
                "`{word}` starts programs without the variables that load the library into them"
            ),
        }
    }
}

impl LaunchPlan {
    /// Known obstacles to loading a library into the command. Files that cannot be read count as
    /// none.
    pub fn obstacles(&self) -> Vec<PreloadObstacle> {
        let words = self.words();
        let user = match &self.identity {
            Some(user) => (user.uid, user.gid),
            None => (Uid::effective().as_raw(), Gid::effective().as_raw()),
        };
        self.with_users_rights(|| {
            let walk = ProgramWalk { environment: &self.environment, user };
            walk.obstacles(words)
        })
        .unwrap_or_default()
    }

    /// The file of the command's first word, through `PATH` and links.
    pub fn program_file(&self) -> Option<PathBuf> {
        self.with_users_rights(|| {
            let file = find(&self.program, &self.environment)?;
            std::fs::canonicalize(file).ok()
        })?
    }

    /// Runs `look` with the command's access to files.
    pub(super) fn with_users_rights<R: Send>(&self, look: impl FnOnce() -> R + Send) -> Option<R> {
        match &self.identity {
            Some(user) => act_as(user, look).ok(),
            None => Some(look()),
        }
    }
}

/// Finds a program like execvp(3), in the `PATH` of `environment`; `None` if no executable file has
/// the name. A name with a slash is returned unchecked.
pub(super) fn find(program: &OsStr, environment: &Environment) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = environment.get(OsStr::new("PATH"))?;
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|file| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    })
}

struct ProgramWalk<'a> {
    environment: &'a Environment,
    /// User and group that the command runs as.
    user: (u32, u32),
}

impl ProgramWalk<'_> {
    fn obstacles(&self, mut words: Vec<OsString>) -> Vec<PreloadObstacle> {
        let mut found = Vec::new();
        for _ in 0..MAX_STEPS {
            let Some(program) = words.first() else { break };
            let Some(file) = find(program, self.environment) else { break };
            let step = self.step(&file, &words);
            found.extend(step.obstacle.map(|what| PreloadObstacle { file, what }));
            match step.next {
                Some(next) => words = next,
                None => break,
            }
        }
        found
    }

    fn step(&self, file: &Path, words: &[OsString]) -> ProgramStep {
        let end = |what| ProgramStep { obstacle: what, next: None };
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            return end(None);
        }
        match gctrace_probes::loading(file) {
            Ok(Loading::Script { interpreter, argument }) => ProgramStep {
                obstacle: None,
                next: Some(script(interpreter, argument, file, words)),
            },
            Ok(Loading::Static) => match gctrace_probes::identify(file) {
                Ok(ProgramKind::Static) => end(Some(ObstacleKind::StaticPython)),
                _ => end(Some(other_rights(file, self.user).unwrap_or(ObstacleKind::Static))),
            },
            Ok(Loading::OtherMachine(machine)) => end(Some(ObstacleKind::Machine(machine))),
            Ok(Loading::Loader(loader)) if is_musl(&loader) => {
                end(Some(ObstacleKind::Musl(loader)))
            }
            Ok(Loading::Sanitizer(runtime)) if !self.preloads_sanitizer() => {
                end(Some(ObstacleKind::Sanitizer(runtime)))
            }
            Ok(Loading::Loader(_) | Loading::Sanitizer(_) | Loading::Unknown) | Err(_) => {
                if let Some(what) = other_rights(file, self.user) {
                    return end(Some(what));
                }
                launcher(file, words)
            }
        }
    }
}

impl ProgramWalk<'_> {
    /// Whether the user's own LD_PRELOAD begins with a sanitizer's runtime: gctrace's library comes after that.
    fn preloads_sanitizer(&self) -> bool {
        let Some(preloaded) = self.environment.get(OsStr::new("LD_PRELOAD")) else { return false };
        let Some(first) = split_preload(preloaded).next() else { return false };
        let Some(name) = Path::new(first).file_name() else { return false };
        is_sanitizer_runtime(name.as_bytes())
    }
}

/// One program of the chain.
struct ProgramStep {
    obstacle: Option<ObstacleKind>,
    /// The words that it runs, if known.
    next: Option<Vec<OsString>>,
}

/// The program that the kernel runs for a script.
fn script(
    interpreter: PathBuf,
    argument: Option<String>,
    file: &Path,
    words: &[OsString],
) -> Vec<OsString> {
    let mut next = vec![interpreter.into_os_string()];
    next.extend(argument.map(OsString::from));
    next.push(file.as_os_str().to_owned());
    next.extend(words.iter().skip(1).cloned());
    next
}

/// `/lib/ld-musl-x86_64.so.1`.
fn is_musl(loader: &Path) -> bool {
    let Some(name) = loader.file_name() else { return false };
    name.as_bytes().starts_with(b"ld-musl")
}

/// Why the loader would run the file in secure execution (ld.so(8)): the kernel sets that when ids
/// change or capabilities are gained (`cap_bprm_creds_from_file`, security/commoncap.c).
fn other_rights(file: &Path, (uid, gid): (u32, u32)) -> Option<ObstacleKind> {
    let found = file.metadata().ok()?;
    let nosuid = nix::sys::statvfs::statvfs(file)
        .is_ok_and(|system| system.flags().contains(nix::sys::statvfs::FsFlags::ST_NOSUID));
    if nosuid {
        return None;
    }
    let set_user = found.mode() & libc::S_ISUID != 0 && found.uid() != uid;
    // Without the group's right to execute, the bit means mandatory locking.
    let both = libc::S_ISGID | libc::S_IXGRP;
    let set_group = found.mode() & both == both && found.gid() != gid;
    match () {
        () if set_user => Some(ObstacleKind::OtherRights("setuid")),
        () if set_group => Some(ObstacleKind::OtherRights("setgid")),
        () if uid != 0 && has_capabilities(file) => {
            Some(ObstacleKind::OtherRights("file capabilities"))
        }
        () => None,
    }
}

fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both are C strings, and only the size of the value is requested.
    let size = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    size > 0
}

/// Programs that start others, and their treatment of the environment.
fn launcher(file: &Path, words: &[OsString]) -> ProgramStep {
    let name = file.file_name().map(OsStr::to_string_lossy);
    match name.as_deref().unwrap_or("") {
        "env" => env(&words[1..]),
        "sudo" | "sudo-rs" | "doas" | "su" | "runuser" | "pkexec" | "docker" | "podman"
        | "nerdctl" | "ssh" => ProgramStep {
            obstacle: name.map(|name| ObstacleKind::Drops(name.into_owned())),
            next: None,
        },
        _ => ProgramStep { obstacle: None, next: None },
    }
}

/// The words of env(1), of coreutils 9.
fn env(words: &[OsString]) -> ProgramStep {
    let mut words: Vec<OsString> = words.iter().rev().cloned().collect();
    let mut drops = None;
    while let Some(word) = words.pop() {
        let text = word.to_string_lossy().into_owned();
        match &*text {
            "-" | "-i" | "--ignore-environment" => drops = Some(format!("env {text}")),
            "-u" | "--unset" => {
                if matches!(words.pop(), Some(name) if name == "LD_PRELOAD") {
                    drops = Some("env -u LD_PRELOAD".to_owned());
                }
            }
            "-C" | "--chdir" => drop(words.pop()),
            "-S" | "--split-string" => {
                if let Some(split) = words.pop() {
                    push_split(&mut words, &split.to_string_lossy());
                }
            }
            _ if text.starts_with("-S") => push_split(&mut words, &text[2..]),
            _ if text.starts_with("--split-string=") => {
                push_split(&mut words, text.trim_start_matches("--split-string="));
            }
            // Several in one: -iS.
            _ if text.starts_with("-i") => {
                drops = Some("env -i".to_owned());
                words.push(OsString::from(format!("-{}", &text[2..])));
            }
            "-uLD_PRELOAD" | "--unset=LD_PRELOAD" => drops = Some("env -u LD_PRELOAD".to_owned()),
            _ if text.starts_with("LD_PRELOAD=") => drops = Some("env LD_PRELOAD=...".to_owned()),
            _ if text.starts_with('-') || text.contains('=') => {}
            _ => {
                words.push(word);
                break;
            }
        }
    }
    words.reverse();
    ProgramStep {
        obstacle: drops.map(ObstacleKind::Drops),
        next: if words.is_empty() { None } else { Some(words) },
    }
}

/// Pushes words onto a reversed list.
fn push_split(words: &mut Vec<OsString>, text: &str) {
    words.extend(text.split_whitespace().rev().map(OsString::from));
}

#[cfg(test)]
mod tests;
