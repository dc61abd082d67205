//! A command that applies settings to itself: the library in it, the folder of its reports.

use crate::invoker::Invoker;
use crate::launch::{CommandEnd, LaunchPlan, Signals, library_for};
use crate::record::CommandSupervisor;
use crate::record::folder::{FolderOwner, InjectFolder, places};
use crate::record::mode::own_filters;
use crate::wait;
use anyhow::Context as _;
use gctrace_ring::{InjectOptions, OPTIONS_VARIABLE, RENDEZVOUS_VARIABLE, STEP_FUNCTION_VARIABLE};
use gctrace_settings::{
    APPLY_VARIABLE, AppliedProcess, ApplyRequest, CONTROL_FILE, FOLDER_VARIABLE, MAX_PROCESSES,
    MAX_REPORT, REPORT_SUFFIX,
};
use nix::poll::PollTimeout;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

/// The most bytes of reports to read: the reports of [`MAX_PROCESSES`] processes take 4 MB, and a report may take eight
/// times as much when it is read.
const MAX_REPORTS: u64 = 16 << 20;

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
        step_function: Option<&str>,
    ) -> anyhow::Result<Self> {
        // Before any thread is created, so that all of them inherit the mask.
        let signals = Signals::block().context("cannot block signals")?;
        let mut launch = LaunchPlan::new(command, invoker, as_root);
        let session = ApplySession::prepare(&mut launch, invoker, as_root, request)?;
        if let Some(name) = step_function {
            launch.set_variable(STEP_FUNCTION_VARIABLE, name.into());
        }
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

    /// Waits for so many ms, or the command's end; `Some(None)`: the user ended gctrace.
    ///
    /// # Errors
    /// The command cannot be waited for.
    pub(crate) fn wait_a_little(
        &mut self,
        interval_ms: u16,
    ) -> anyhow::Result<Option<Option<CommandEnd>>> {
        let supervisor = &mut self.supervisor;
        let running = supervisor.command().map(|running| running.as_fd());
        let descriptors = [supervisor.as_fd()].into_iter().chain(running);
        wait::readable(descriptors, PollTimeout::from(interval_ms))
            .context("cannot wait for the command")?;
        if let Some(ended) = supervisor.try_wait()? {
            return Ok(Some(Some(ended)));
        }
        Ok(if supervisor.handle_signals()? { Some(None) } else { None })
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
        let mut control = folder.make_file(CONTROL_FILE, owner)?;
        control.write_all(b"0").context(CONTROL_FILE)?;
        launch
            .preload(&library, folder.path())
            .with_context(|| format!("cannot load {} into the command", library.display()))?;
        launch.set_variable(APPLY_VARIABLE, request.text().into());
        launch.set_variable(FOLDER_VARIABLE, folder.path().into());
        // Options of a `gctrace record` that started this command hold for both.
        let is_recorded = [RENDEZVOUS_VARIABLE, OPTIONS_VARIABLE]
            .iter()
            .all(|name| matches!(launch.variable(name), Some(value) if !value.is_empty()));
        if !is_recorded {
            let options = InjectOptions { filters: own_filters(), ..InjectOptions::nothing() };
            launch.set_variable(OPTIONS_VARIABLE, options.to_string().into());
        }
        folder.hand_to(owner)?;
        Ok(Self { folder, control })
    }

    /// Asks the processes to take the settings back; they do so at their next step.
    ///
    /// # Errors
    /// The folder's file system is full or gone.
    pub(crate) fn take_back(&self) -> io::Result<()> {
        self.control.write_all_at(b"1", 0)
    }

    /// The reports of the processes by now.
    pub(crate) fn processes(&self) -> CommandProcesses {
        let mut found = CommandProcesses::default();
        let (mut reports, mut bytes) = (0, 0);
        for name in self.folder.names() {
            let Some(pid) = name.strip_suffix(REPORT_SUFFIX) else { continue };
            let Ok(pid) = pid.parse() else { continue };
            reports += 1;
            if reports > MAX_PROCESSES || bytes >= MAX_REPORTS {
                found.left_out += 1;
                continue;
            }
            let report = self.report(&name, &mut bytes);
            match report {
                Ok(report) => found.processes.push(report),
                Err(error) => {
                    tracing::debug!("{name}: {error}");
                    found.unreadable.push(pid);
                }
            }
        }
        // Each has appended a byte.
        let length = if let Ok(control) = self.control.metadata() { control.len() } else { 0 };
        found.left_out += gctrace_units::beyond(gctrace_units::beyond(length, 1), reports);
        found.processes.sort_by_key(|process| (process.rank, process.pid));
        found
    }

    fn report(&self, name: &str, bytes: &mut u64) -> anyhow::Result<AppliedProcess> {
        let read = self.folder.read(name, MAX_REPORT)?;
        *bytes += read.len() as u64;
        Ok(serde_json::from_slice(&read)?)
    }
}

/// The processes of a command, as they reported.
#[derive(Debug, Default)]
pub(crate) struct CommandProcesses {
    /// By rank and pid.
    pub(crate) processes: Vec<AppliedProcess>,
    /// Pids of processes with unreadable reports.
    pub(crate) unreadable: Vec<u32>,
    /// Number of processes without a report: [`MAX_PROCESSES`] write one, if there is room for it.
    pub(crate) left_out: u64,
}
