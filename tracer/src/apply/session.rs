//! A command that applies settings to itself: the library in it, the folder of its reports.

use super::report::AppliedProcess;
use crate::launch::{Invoker, LaunchPlan, Signals, library_for};
use crate::record::CommandSupervisor;
use crate::record::folder::{FolderOwner, InjectFolder, places};
use anyhow::Context as _;
use gctrace_ring::STEP_FUNCTION_VARIABLE;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

/// The file in which the processes look for a request: `1` takes the settings back.
pub(super) const CONTROL: &str = "control";
/// The variable that names the folder.
pub(super) const FOLDER_VARIABLE: &str = "GCTRACE_APPLY_FOLDER";

/// End of the name of a process's report, after its pid.
const REPORT: &str = ".report.json";
/// End of the name of a process's table of steps, after its pid.
const STEPS: &str = ".steps";
/// Largest report of a process that is read, in bytes: the agent writes a few thousand.
const MAX_REPORT: u64 = 1 << 20;
/// Largest table of steps that is read, in bytes: two million steps.
const MAX_STEPS: u64 = 256 << 20;

/// What the processes of a command are to apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ApplyRequest {
    /// One setting, or several joined by `|` that alternate in blocks of steps.
    pub(crate) settings: String,
    /// The function whose calls are steps; `None`: what PyTorch shows.
    pub(crate) step_function: Option<String>,
    /// The blocks; `None`: the agent's defaults.
    pub(crate) blocks: Option<BlockLengths>,
    /// Write the table of steps, also for one setting.
    pub(crate) writes_steps: bool,
}

/// Lengths in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockLengths {
    /// Of each block, at least 1.
    pub(crate) block: u64,
    /// Before the first block.
    pub(crate) warm_up: u64,
}

impl ApplyRequest {
    fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![("GCTRACE_APPLY", self.settings.clone())];
        variables.extend(self.step_function.clone().map(|name| (STEP_FUNCTION_VARIABLE, name)));
        if let Some(blocks) = self.blocks {
            variables.push(("GCTRACE_APPLY_BLOCK", blocks.block.to_string()));
            variables.push(("GCTRACE_APPLY_WARM_UP", blocks.warm_up.to_string()));
        }
        if self.writes_steps {
            variables.push(("GCTRACE_APPLY_STEPS", "1".to_owned()));
        }
        variables
    }
}

/// The private folder of a command's reports, removed when dropped.
#[derive(Debug)]
pub(crate) struct ApplySession {
    folder: InjectFolder,
    control: File,
}

/// A command that was started with settings.
pub(crate) struct StartedCommand {
    pub(crate) launch: LaunchPlan,
    pub(crate) supervisor: CommandSupervisor,
    pub(crate) session: ApplySession,
}

impl StartedCommand {
    /// Starts a command with settings. `answers_on_stdout`: its standard output becomes standard
    /// error, as gctrace's own answer goes there.
    ///
    /// # Errors
    /// The library cannot be loaded into the command, or the command cannot be started.
    pub(crate) fn start(
        command: &[OsString],
        invoker: &Invoker,
        as_root: bool,
        answers_on_stdout: bool,
        request: &ApplyRequest,
    ) -> anyhow::Result<Self> {
        // Before any thread is created, so that all of them inherit the mask.
        let signals = Signals::block().context("cannot block signals")?;
        let mut launch = LaunchPlan::new(command, invoker, as_root);
        let session = ApplySession::prepare(&mut launch, invoker, as_root, request)?;
        if answers_on_stdout {
            launch.redirect_stdout().context("the command's standard output")?;
        }
        for note in launch.notes() {
            tracing::warn!("{note}");
        }
        let mut supervisor = CommandSupervisor::new(signals);
        supervisor.started(launch.spawn()?)?;
        Ok(Self { launch, supervisor, session })
    }
}

impl ApplySession {
    /// Checks that the library can be loaded into the command, and adds it and the request to the
    /// command's environment.
    ///
    /// # Errors
    /// The library is unusable, the command cannot load it, or no private folder can be made.
    pub(crate) fn prepare(
        launch: &mut LaunchPlan,
        invoker: &Invoker,
        as_root: bool,
        request: &ApplyRequest,
    ) -> anyhow::Result<Self> {
        let library = library_for(launch).context("cannot apply settings")?;
        for obstacle in launch.obstacles() {
            anyhow::ensure!(
                !obstacle.is_certain(true),
                "cannot apply settings in the command: {obstacle}"
            );
            tracing::warn!("{obstacle}");
        }
        let owner = FolderOwner::of_command(invoker, as_root);
        let folder = InjectFolder::make(&places(owner), owner)?;
        let mut control = folder.make_file(CONTROL, owner)?;
        control.write_all(b"0").context(CONTROL)?;
        launch
            .preload(&library, folder.path())
            .with_context(|| format!("cannot load {} into the command", library.display()))?;
        for (name, value) in request.variables() {
            launch.set_variable(name, value.into());
        }
        launch.set_variable(FOLDER_VARIABLE, folder.path().into());
        folder.hand_to(owner)?;
        Ok(Self { folder, control })
    }

    /// Asks the processes to take the settings back, which they do at their next step.
    ///
    /// # Errors
    /// The folder's file system is full or gone.
    pub(crate) fn take_back(&self) -> io::Result<()> {
        self.control.write_all_at(b"1", 0)
    }

    /// The reports of the processes by now, by pid, and the pids of those that cannot be read.
    pub(crate) fn processes(&self) -> (Vec<AppliedProcess>, Vec<u32>) {
        let (mut processes, mut unreadable) = (Vec::new(), Vec::new());
        for name in self.folder.names() {
            let pid = name.strip_suffix(REPORT).and_then(|pid| pid.parse().ok());
            let Some(pid) = pid else { continue };
            let read = self.folder.read(&name, MAX_REPORT);
            let report = read.map_err(anyhow::Error::from).and_then(|bytes| {
                let report: AppliedProcess = serde_json::from_slice(&bytes)?;
                Ok(report)
            });
            match report {
                Ok(report) => processes.push(report),
                Err(error) => {
                    tracing::debug!("{name}: {error}");
                    unreadable.push(pid);
                }
            }
        }
        processes.sort_by_key(|process| (process.rank, process.pid));
        (processes, unreadable)
    }

    /// The table of steps of a process, as the agent wrote it (docs/architecture.md); `None` if it
    /// wrote none or it cannot be read.
    pub(crate) fn steps(&self, pid: u32) -> Option<Vec<u8>> {
        self.folder.read(&format!("{pid}{STEPS}"), MAX_STEPS).ok()
    }
}
