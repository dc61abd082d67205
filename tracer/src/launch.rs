//! Starting the command: as the user who typed it, as if gctrace were not there.
//!
//! Owns who that user is, the environment, what the command inherits, how it ended, signals on the
//! way, and files made on that user's behalf. Knows nothing of probes: that a new program is held
//! until its probes are in is the BPF programs' doing.

mod as_user;
mod environment;
mod inherited;
mod invoker;
mod named_interpreters;
mod preload;
mod program;
mod signals;
mod trial;
mod trust;

pub(crate) use as_user::CacheDir;
pub(crate) use as_user::act_as;
pub(crate) use invoker::Invoker;
pub(crate) use preload::CUDA_INJECTION;
pub(crate) use preload::LibraryError;
pub(crate) use preload::library_for;
#[cfg(test)]
pub(crate) use program::ObstacleKind;
pub(crate) use program::PreloadObstacle;
pub(crate) use signals::SignalDecision;
pub(crate) use signals::SignalPolicy;
pub(crate) use signals::Signals;
pub(crate) use trial::load;

use crate::launch::environment::Environment;
use crate::launch::inherited::InheritedState;
use gctrace_probes::cuda::CudaFile;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;

/// Why the command was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// No such file, or in none of the directories of `PATH`.
    #[error("{program}: command not found{searched}")]
    NotFound {
        /// As typed.
        program: String,
        /// ` in PATH=...`, where `PATH` was searched.
        searched: String,
    },
    /// The file is there, but what its first line names, or its loader, is not.
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
        /// ` as alice`, where that is not obvious.
        who: String,
        /// The kernel's reason.
        source: io::Error,
        /// What helps, if known.
        advice: String,
    },
    /// It could not be watched once started.
    #[error("cannot watch the command (process {pid})")]
    Watch {
        /// The started process.
        pid: u32,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit code that a shell gives to the same failure.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::InterpreterMissing { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Watch { .. } => 1,
        }
    }
}

/// Everything about the command that is decided before it starts.
#[derive(Debug)]
pub(crate) struct LaunchPlan {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Environment,
    /// The identity to take on; `None` keeps the present one.
    identity: Option<Invoker>,
    notes: Vec<String>,
    streams: StdioFiles,
}

/// Where the command reads from and writes to; `None`: as gctrace itself.
#[derive(Debug, Default)]
pub(crate) struct StdioFiles {
    /// Standard input.
    pub input: Option<File>,
    /// Standard output.
    pub output: Option<File>,
    /// Standard error.
    pub error: Option<File>,
}

impl LaunchPlan {
    /// Plans to run `command` (program and arguments, never empty) as `invoker`, or with `as_root`
    /// as what gctrace itself is. Reads `/proc` to find out what sudo changed.
    pub(crate) fn new(command: &[OsString], invoker: &Invoker, as_root: bool) -> Self {
        let present = environment::present();
        let (environment, identity, notes) = match invoker.escalated_by() {
            Some(tool) if !as_root => {
                let (environment, note) = environment::before(tool, &present, invoker);
                (
                    environment,
                    Some(invoker.clone()),
                    note.into_iter().collect(),
                )
            }
            _ => (present, None, Vec::new()),
        };
        let (program, arguments) = command
            .split_first()
            .map_or_else(Default::default, |(p, a)| (p.clone(), a.to_vec()));
        Self {
            program,
            arguments,
            environment,
            identity,
            notes,
            streams: StdioFiles::default(),
        }
    }

    /// Its input and output go elsewhere than gctrace's own.
    pub(crate) fn redirect(&mut self, streams: StdioFiles) {
        self.streams = streams;
    }

    /// Program and arguments.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let program = std::iter::once(&self.program);
        program.chain(&self.arguments).cloned().collect()
    }

    /// What it writes to standard output goes to gctrace's standard error: the trace has standard output.
    pub(crate) fn leave_stdout(&mut self) -> io::Result<()> {
        self.streams.output = Some(File::from(crate::print::error_descriptor()?));
        Ok(())
    }

    /// What the user should know about the plan, a sentence each.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The command's environment, for example to look for `RANK`.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
    }

    /// Libraries of CUDA that the command is likely to use.
    pub(crate) fn cuda_libraries(&self) -> Vec<CudaFile> {
        let environment = self.environment.clone().into_iter().collect();
        let file = self.program_file();
        gctrace_probes::cuda::before_start(&self.program, file.as_deref(), &environment)
    }

    /// Files of CUPTI that it is likely to find.
    pub(crate) fn cupti_libraries(&self) -> Vec<PathBuf> {
        let environment = self.environment.clone().into_iter().collect();
        let file = self.program_file();
        gctrace_probes::cuda::cupti_before_start(&self.program, file.as_deref(), &environment)
    }

    /// Starts the command. Returns once it executes its program, or with the reason why it cannot.
    /// It is a direct child, in gctrace's own process group.
    pub(crate) fn spawn(&self) -> Result<RunningCommand, LaunchError> {
        let mut command = self.command();
        let child = self.streams.apply_to(&mut command);
        let child = child.and_then(|()| command.spawn());
        RunningCommand::watch(child.map_err(|error| self.refused(error))?)
    }

    /// The command as it will be started, for a caller that wants its output.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment);
        let identity = self.identity.as_ref().map(invoker::Credentials::of);
        let inherited = InheritedState::at_start();
        // SAFETY: the closure makes system calls only; it neither allocates nor locks.
        unsafe {
            command.pre_exec(move || {
                inherited.restore()?;
                identity
                    .as_ref()
                    .map_or(Ok(()), invoker::Credentials::take_on)
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
            Some(Errno::ENOENT | Errno::ENOTDIR) => LaunchError::NotFound {
                searched: self.searched(),
                program,
            },
            errno => LaunchError::NotExecutable {
                who: self
                    .identity
                    .as_ref()
                    .map(|user| format!(" as {}", user.name))
                    .unwrap_or_default(),
                advice: self.advice(errno),
                program,
                source,
            },
        }
    }

    fn names_a_path(&self) -> bool {
        self.program.as_encoded_bytes().contains(&b'/')
    }

    /// Looked at with the rights of whoever would run it.
    fn program_is_there(&self) -> bool {
        let exists = || std::fs::metadata(&self.program).is_ok();
        self.names_a_path()
            && match &self.identity {
                Some(user) => as_user::act_as(user, exists).unwrap_or(false),
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
                format!(
                    "\nMake it executable: chmod +x {}",
                    shell_word(&self.program)
                )
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
    path.metadata()
        .is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
}

/// Quoted for a shell where needed.
fn shell_word(word: &OsStr) -> String {
    crate::text::shell_line(std::slice::from_ref(&word))
}

/// The running command.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    child: Child,
    pidfd: OwnedFd,
}

/// A descriptor of a child that was not waited for, so that the pid is still its own.
fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let fd = Errno::result(fd)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just handed it out, closed on exec; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl RunningCommand {
    fn watch(child: Child) -> Result<Self, LaunchError> {
        let pid = child.id();
        let pidfd = pidfd_of(&child).map_err(|source| LaunchError::Watch { pid, source })?;
        Ok(Self { child, pidfd })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has. Never blocks.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<CommandEnd>> {
        Ok(self.child.try_wait()?.map(CommandEnd::from))
    }

    /// Blocks until it ends.
    #[cfg(test)]
    pub(crate) fn wait(&mut self) -> io::Result<CommandEnd> {
        Ok(self.child.wait()?.into())
    }

    /// Sends it a signal. That it has ended is no error.
    pub(crate) fn send(&self, signal: Signal) -> io::Result<()> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and a null siginfo is what kill(2) would send.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.pidfd.as_raw_fd(),
                signal as i32,
                no_info,
                0,
            )
        };
        match Errno::result(sent) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl RunningCommand {
    /// What Ctrl-C does where the terminal makes a signal of it, but for gctrace itself: SIGINT for the command
    /// and those of its descendants that are in its process group still.
    pub(crate) fn interrupt_as_terminal(&self) -> io::Result<()> {
        let descendants = gctrace_probes::proc_status::descendants(self.pid()).unwrap_or_default();
        self.send(Signal::SIGINT)?;
        for pid in descendants {
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

/// The pidfd: readable (`POLLIN`) once the command has ended.
impl AsFd for RunningCommand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// By itself, with this exit code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl CommandEnd {
    /// As a shell shows it: the command's own code, or 128 and the signal's number.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

impl From<ExitStatus> for CommandEnd {
    fn from(status: ExitStatus) -> Self {
        // Both fit: an exit code has 8 bits and a signal's number 7 (wait(2)).
        let byte = |value: i32| u8::try_from(value).unwrap_or(u8::MAX);
        match (status.signal(), status.code()) {
            (Some(signal), _) => Self::Signal(byte(signal)),
            (None, code) => Self::Code(code.map_or(u8::MAX, byte)),
        }
    }
}

#[cfg(test)]
mod tests;
