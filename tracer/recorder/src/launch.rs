//! Starts the command as the user who typed it would, as if gctrace were not there.
//!
//! Owns that user's environment, inherited state, the command's end, signals on the way, and files
//! created for that user (`invoker.rs` has the identity). Knows nothing of probes: the BPF programs
//! stop a new program until its probes are placed.

mod bundle;
mod cache;
mod environment;
mod inherited;
mod named_interpreters;
mod preload;
mod program;
mod signals;
mod trial;

pub use bundle::simulator;
pub use cache::CacheDir;
pub use environment::ancestors;
pub use preload::{CUDA_INJECTION, InjectionPlan, LibraryError, injected_library, library_for};
#[cfg(test)]
pub use program::ObstacleKind;
pub use program::PreloadObstacle;
pub use signals::{SignalDecision, SignalPolicy, Signals};
pub use trial::load;

use crate::invoker::{Credentials, Invoker, act_as};
use crate::launch::environment::Environment;
use crate::launch::inherited::InheritedState;
use crate::platform::{pidfd, send_signal};
use crate::text::shell_line;
use gctrace_event::ProcessExit;
use gctrace_probes::cuda::CudaFile;
use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

/// Why the command was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No such file, or in none of the directories of `PATH`.
    #[error("{program}: command not found{searched}")]
    NotFound {
        /// As typed.
        program: String,
        /// ` in PATH=...`, if `PATH` was searched.
        searched: String,
    },
    /// The file exists, but the interpreter in its first line, or its loader, does not.
    #[error(
        "{program}: the interpreter in its first line (#!) or its dynamic loader does not exist"
    )]
    InterpreterMissing {
        /// As typed.
        program: String,
    },
    /// The kernel refused to execute it.
    #[error("{program}: cannot be executed{who}: {source}{advice}")]
    NotExecutable {
        /// As typed.
        program: String,
        /// ` as alice`, if that is not obvious.
        who: String,
        /// The kernel's reason.
        source: io::Error,
        /// How to fix it, if known.
        advice: String,
    },
    /// The command was started but could not be watched.
    #[error("cannot watch the command (process {pid})")]
    Watch {
        /// Its process id.
        pid: u32,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit code of a shell for the same failure; 1 where gctrace's own limits are the reason.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::InterpreterMissing { .. } => 127,
            Self::NotExecutable { source, .. }
                if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) =>
            {
                1
            }
            Self::NotExecutable { .. } => 126,
            Self::Watch { .. } => 1,
        }
    }
}

/// The command as decided before it starts: program, environment, user, files.
#[derive(Debug)]
pub struct LaunchPlan {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Environment,
    /// The identity to assume; `None` keeps the present one.
    identity: Option<Invoker>,
    notes: Vec<String>,
    streams: StdioFiles,
}

/// The command's standard streams; `None`: gctrace's own.
#[derive(Debug, Default)]
pub struct StdioFiles {
    /// Standard input.
    pub input: Option<File>,
    /// Standard output.
    pub output: Option<File>,
    /// Standard error.
    pub error: Option<File>,
}

impl LaunchPlan {
    /// Plans to run `command` (program and arguments, never empty) as `invoker`, or with `as_root` as gctrace's own
    /// user. Reads `/proc` to find out sudo's changes.
    pub fn new(command: &[OsString], invoker: &Invoker, as_root: bool) -> Self {
        let present = environment::present();
        let (environment, identity, notes) = match invoker.escalated_by() {
            Some(tool) if !as_root => {
                let (environment, note) = environment::before(tool, &present, invoker);
                (environment, Some(invoker.clone()), note.into_iter().collect())
            }
            _ => (present, None, Vec::new()),
        };
        let (program, arguments) =
            command.split_first().map_or_else(Default::default, |(p, a)| (p.clone(), a.to_vec()));
        Self { program, arguments, environment, identity, notes, streams: StdioFiles::default() }
    }

    /// Sets the command's standard streams in place of gctrace's own; replaces earlier settings.
    pub fn redirect(&mut self, streams: StdioFiles) {
        self.streams = streams;
    }

    /// The command, program first.
    pub fn words(&self) -> Vec<OsString> {
        let program = std::iter::once(&self.program);
        program.chain(&self.arguments).cloned().collect()
    }

    /// Redirects the command's standard output to gctrace's standard error: the trace is written to
    /// standard output.
    pub fn redirect_stdout(&mut self) -> io::Result<()> {
        self.streams.output = Some(File::from(crate::print::error_descriptor()?));
        Ok(())
    }

    /// Sentences about the plan for the user.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// A variable of the command's environment, for example `RANK`.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// CUDA libraries that the command is likely to use.
    pub fn cuda_libraries(&self) -> Vec<CudaFile> {
        let environment = self.environment.clone().into_iter().collect();
        let file = self.program_file();
        gctrace_probes::cuda::before_start(&self.program, file.as_deref(), &environment)
    }

    /// CUPTI libraries that it is likely to find.
    pub fn cupti_libraries(&self) -> Vec<PathBuf> {
        let environment = self.environment.clone().into_iter().collect();
        let file = self.program_file();
        gctrace_probes::cuda::cupti_before_start(&self.program, file.as_deref(), &environment)
    }

    /// Starts the command. Returns once it executes its program, or with the reason why it cannot.
    /// It is a direct child, in gctrace's own process group.
    pub fn spawn(&self) -> Result<RunningCommand, LaunchError> {
        let mut command = self.command();
        let child = self.streams.apply_to(&mut command);
        let child = child.and_then(|()| command.spawn());
        RunningCommand::watch(child.map_err(|error| self.refused(error))?)
    }

    /// The command as it will be started, for a caller that needs its output.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(&self.environment);
        let identity = self.identity.as_ref().map(Credentials::of);
        let inherited = InheritedState::at_start();
        // SAFETY: the closure only makes system calls; it neither allocates nor locks.
        unsafe {
            command.pre_exec(move || {
                inherited.restore()?;
                if let Some(identity) = &identity { identity.assume() } else { Ok(()) }
            });
        }
        command
    }

    fn refused(&self, source: io::Error) -> LaunchError {
        let program = self.program.to_string_lossy().into_owned();
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ENOTDIR) if self.program_is_there() => {
                LaunchError::InterpreterMissing { program }
            }
            Some(Errno::ENOENT | Errno::ENOTDIR) => {
                LaunchError::NotFound { searched: self.searched(), program }
            }
            errno => LaunchError::NotExecutable {
                who: match self.identity.as_ref() {
                    Some(user) => format!(" as {}", user.name),
                    None => String::new(),
                },
                advice: self.advice(errno),
                program,
                source,
            },
        }
    }

    fn names_a_path(&self) -> bool {
        self.program.as_encoded_bytes().contains(&b'/')
    }

    /// Checked with the rights of the command's user.
    fn program_is_there(&self) -> bool {
        let exists = || std::fs::metadata(&self.program).is_ok();
        self.names_a_path()
            && match &self.identity {
                Some(user) => act_as(user, exists).unwrap_or(false),
                None => exists(),
            }
    }

    fn searched(&self) -> String {
        if self.names_a_path() {
            return String::new();
        }
        match self.variable("PATH") {
            Some(path) => format!(" in PATH={}", path.to_string_lossy()),
            None => " (PATH is not set)".to_owned(),
        }
    }

    fn advice(&self, errno: Option<Errno>) -> String {
        let path = Path::new(&self.program);
        let plain_file = self.names_a_path() && path.metadata().is_ok_and(|file| file.is_file());
        match (errno, &self.identity) {
            (Some(Errno::EACCES), _) if plain_file && !has_execute_bit(path) => {
                format!("\nMake it executable: chmod +x {}", shell_line(&[&self.program]))
            }
            (Some(Errno::EACCES | Errno::EPERM), Some(_)) => {
                "\nThe command runs as the user who typed it; --as-root runs it as root.".to_owned()
            }
            _ => String::new(),
        }
    }
}

impl StdioFiles {
    fn apply_to(&self, command: &mut Command) -> io::Result<()> {
        if let Some(input) = &self.input {
            command.stdin(input.try_clone()?);
        }
        if let Some(output) = &self.output {
            command.stdout(output.try_clone()?);
        }
        if let Some(error) = &self.error {
            command.stderr(error.try_clone()?);
        }
        Ok(())
    }
}

fn has_execute_bit(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
}

/// The command that gctrace started, a direct child, with a pidfd to signal it by.
#[derive(Debug)]
pub struct RunningCommand {
    child: Child,
    pidfd: OwnedFd,
    /// Once it has ended.
    used_ns: Option<u64>,
}

/// CPU time in user and kernel mode.
pub fn usage_ns(who: UsageWho) -> Option<u64> {
    let usage = getrusage(who).ok()?;
    let times = [usage.user_time(), usage.system_time()];
    let nanoseconds = times.map(|time| {
        let seconds = u64::try_from(time.tv_sec()).ok()?;
        let micros = u64::try_from(time.tv_usec()).ok()?;
        Some(seconds * 1_000_000_000 + micros * 1000)
    });
    nanoseconds.into_iter().sum()
}

impl RunningCommand {
    fn watch(child: Child) -> Result<Self, LaunchError> {
        let pid = child.id();
        let pidfd = pidfd(pid).map_err(|source| LaunchError::Watch { pid, source })?;
        Ok(Self { child, pidfd, used_ns: None })
    }

    /// CPU time of it and of all that it waited for, once it has ended.
    pub fn used_ns(&self) -> Option<u64> {
        self.used_ns
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has. Never blocks.
    pub fn try_wait(&mut self) -> io::Result<Option<CommandEnd>> {
        let before = usage_ns(UsageWho::RUSAGE_CHILDREN);
        let ended = self.child.try_wait()?.map(CommandEnd::from);
        if ended.is_some() && self.used_ns.is_none() {
            // Other children are not waited for meanwhile.
            if let (Some(after), Some(before)) = (usage_ns(UsageWho::RUSAGE_CHILDREN), before) {
                self.used_ns = Some(gctrace_units::beyond(after, before));
            }
        }
        Ok(ended)
    }

    /// Blocks until it exits; only tests may wait, a recording polls [`Self::try_wait`].
    #[cfg(test)]
    pub fn wait(&mut self) -> io::Result<CommandEnd> {
        Ok(self.child.wait()?.into())
    }

    /// Sends it a signal. Succeeds if it has exited.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        match send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl RunningCommand {
    /// Acts as Ctrl-C in a terminal that generates the signal, except for gctrace itself: SIGINT for the command and
    /// its descendants that are still in its process group.
    pub fn interrupt_as_terminal(&self) -> io::Result<()> {
        let descendants = gctrace_probes::proc_status::descendants(self.pid());
        self.send(Signal::SIGINT)?;
        for pid in descendants.into_iter().flatten() {
            if signals::in_own_group(pid) {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid.cast_signed()),
                    Signal::SIGINT,
                );
            }
        }
        Ok(())
    }
}

/// The pidfd: readable (`POLLIN`) once the command has exited.
impl AsFd for RunningCommand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited with this code.
    Code(u8),
    /// It was terminated by this signal.
    Signal(u8),
}

impl CommandEnd {
    /// From a status of wait(2). Both fit: an exit code has 8 bits and a signal number 7.
    pub fn from_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code(((status >> 8) & 0xff) as u8),
            signal => Self::Signal(signal as u8),
        }
    }

    /// The record of a process that ended this way.
    pub fn exit(self, pid: u32, at_ns: u64) -> ProcessExit {
        let (code, signal) = match self {
            Self::Code(code) => (Some(code.into()), None),
            Self::Signal(signal) => (None, Some(signal.into())),
        };
        ProcessExit { pid, at_ns, code, signal }
    }

    /// As a shell reports it: the command's own code, or 128 plus the signal number.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl From<ExitStatus> for CommandEnd {
    fn from(status: ExitStatus) -> Self {
        Self::from_status(status.into_raw())
    }
}

#[cfg(test)]
mod tests;
