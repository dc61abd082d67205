//! `gctrace top`: the live view.
//!
//! Owns the threads: this one records, others display. Figures come from `gctrace_analysis::live`;
//! `top/view/` draws them, `top/lines.rs` prints them, `top/metrics/` serves them.

mod lines;
mod live_handle;
mod metrics;
mod output;
mod printer;
mod resources;
mod view;

pub(crate) use live_handle::{LiveHandle, LiveSink};

use crate::args::{OutputFormat, RecordConfig, RecordTarget, TopArgs, Verbosity};
use crate::clock::nanoseconds;
use crate::invoker::Invoker;
use crate::launch::{CommandEnd, LaunchPlan, Signals};
use crate::print;
use crate::record::{CommandSupervisor, EndReason, Recording, RecordingPlan};
use crate::text::shell_line;
use crate::top::live_handle::UserCommand;
use crate::top::metrics::MetricsServer;
use crate::top::output::CommandOutput;
use crate::top::printer::Printer;
use crate::top::resources::ResourceSampler;
use crate::top::view::{Prepared, View, ViewConfig, ViewError};
use anyhow::Context as _;
use gctrace_analysis::live::Live;
use gctrace_event::TraceHeader;
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// Records and displays as configured. Returns the exit code of gctrace.
pub(crate) fn run(config: &TopArgs, verbosity: Verbosity) -> anyhow::Result<u8> {
    // Before any thread exists, so that all of them inherit the mask.
    let signals = Signals::block().context("cannot block signals")?;
    let recorded = config.recording(verbosity);
    let mut top = LiveSetup::new(config, &recorded);
    let plan = RecordingPlan::new(&recorded)?;
    let shared = top.open(plan.header())?;
    let mut recording = plan.prepare(signals, Some(Box::new(LiveSink(Arc::clone(&shared)))))?;
    if let Some(launch) = recording.launch_plan() {
        top.redirect(launch)?;
    }
    recording.start()?;
    let shown = top.show(&shared)?;
    let why = follow(&mut recording, &shared, &shown, &recorded)?;
    let (closed, mut command) = recording.close(why);
    let closing: Vec<String> =
        closed.iter().flat_map(|outcome| &outcome.sentences).cloned().collect();
    let ended = ended_words(why, &recorded.target);
    shared.end(std::iter::once(ended).chain(closing.clone()).collect());
    let stays = stays(why, &command, config);
    shown.finish(stays, &mut command)?;
    top.print_summary(why, &command, &closing);
    command.exit_code(why, closed)
}

/// Runs until the recording ends, the user quits or the display is gone.
fn follow(
    recording: &mut Recording<'_>,
    shared: &LiveHandle,
    shown: &LiveDisplay,
    config: &RecordConfig,
) -> anyhow::Result<EndReason> {
    let mut resources = ResourceSampler::new(config.output.as_deref());
    loop {
        let ended = recording.turn()?;
        resources.tick(recording, shared, ended.is_some());
        if let Some(why) = ended {
            return Ok(why);
        }
        for submit in shared.take_requests() {
            match submit {
                UserCommand::Quit => return Ok(EndReason::Left),
                UserCommand::Interrupt => {
                    if let Some(why) = recording.interrupt()? {
                        return Ok(why);
                    }
                }
            }
        }
        if !shown.is_on() {
            return Ok(EndReason::Left);
        }
    }
}

/// Display, metrics server and output, opened before the recording starts.
struct LiveSetup<'a> {
    config: &'a TopArgs,
    recording: &'a RecordConfig,
    /// The form of the printed output; `None`: the view.
    printed: Option<OutputFormat>,
    output: CommandOutput,
    /// The terminal, until the view takes it over.
    terminal: Option<Prepared>,
    /// Metrics server of `--listen`; runs until gctrace exits.
    server: Option<MetricsServer>,
}

impl<'a> LiveSetup<'a> {
    /// Falls back to lines if the view is not possible.
    fn new(config: &'a TopArgs, recording: &'a RecordConfig) -> Self {
        let printed = match (config.printed(), view::possible()) {
            (None, Err(why)) => {
                tracing::warn!("printing lines instead of the view: {why}");
                Some(OutputFormat::Text)
            }
            (printed, _) => printed,
        };
        let output = CommandOutput::default();
        Self { config, recording, printed, output, terminal: None, server: None }
    }

    /// Opens the display's files; no program was touched yet.
    fn open(&mut self, header: &TraceHeader) -> anyhow::Result<Arc<LiveHandle>> {
        let long_pause_ns = nanoseconds(self.config.long_pause);
        let shared = Arc::new(LiveHandle::new(Live::new(header.clone(), long_pause_ns)));
        if let Some(address) = self.config.listen {
            let arguments = self.config.listen_arguments;
            let server = MetricsServer::start(address, arguments, Arc::clone(&shared))?;
            if !server.address().ip().is_loopback() {
                tracing::warn!(
                    "anyone who can reach {} can read the metrics: processes, their commands, file names; --listen PORT \
                     listens on localhost only",
                    server.address()
                );
            }
            if self.recording.verbosity > Verbosity::Quiet {
                print::message(format!("metrics at http://{}/metrics", server.address()));
            }
            self.server = Some(server);
        }
        if self.printed.is_none() {
            self.terminal = Some(Prepared::open().map_err(ViewError::Start)?);
        }
        Ok(shared)
    }

    /// Redirects the command's standard streams.
    fn redirect(&mut self, launch: &mut LaunchPlan) -> anyhow::Result<()> {
        let asked = self.config.output.as_deref();
        let on_screen = self.printed.is_none();
        self.output = CommandOutput::open(asked, on_screen, launch, &Invoker::detect())?;
        Ok(())
    }

    /// Starts the display.
    fn show(&mut self, shared: &Arc<LiveHandle>) -> anyhow::Result<LiveDisplay> {
        let config = self.config;
        let Some(form) = self.printed else {
            let terminal = match self.terminal.take() {
                Some(terminal) => terminal,
                None => Prepared::open().map_err(ViewError::Start)?,
            };
            let view = View::start(terminal, Arc::clone(shared), self.view())?;
            return Ok(LiveDisplay::OnScreen(view));
        };
        let shared = Arc::clone(shared);
        let printer = Printer::start(shared, form, config.interval, config.iterations);
        let printer = printer.context("cannot start the printer thread")?;
        Ok(LiveDisplay::Printed(printer))
    }

    fn view(&self) -> ViewConfig {
        let command = match &self.recording.target {
            RecordTarget::Command(words) => Some(shell_line(words)),
            RecordTarget::Process(_) | RecordTarget::Everything => None,
        };
        ViewConfig {
            interval: self.config.interval,
            iterations: self.config.iterations,
            output: self.output.written().cloned(),
            command,
            // It is shown on a terminal only.
            colors: print::colors_wanted(true),
        }
    }

    /// Prints the closing messages, after the display has ended.
    fn print_summary(&self, why: EndReason, command: &CommandSupervisor, closing: &[String]) {
        let continues = match why {
            EndReason::CommandEnded(_) => None,
            _ => command.command(),
        };
        let place = self.output.dismiss(continues.is_some());
        if self.recording.verbosity == Verbosity::Quiet {
            return;
        }
        // Printed figures stay readable; the view's screen is gone.
        let is_summarized = self.printed.is_none() || self.recording.output.is_some();
        let mut sentences = match (why, is_summarized) {
            (EndReason::Left, _) => Vec::new(),
            (_, true) | (EndReason::ProcessEnded, _) => {
                vec![ended_words(why, &self.recording.target)]
            }
            _ => Vec::new(),
        };
        if is_summarized {
            sentences.extend_from_slice(closing);
        }
        sentences.extend(
            continues
                .map(|command| format!("the command keeps running: process {}", command.pid())),
        );
        let failed = matches!(why, EndReason::CommandEnded(ended) if ended.exit_code() != 0);
        let place = place.map(|path| format!("the command's output is in {}", path.display()));
        for sentence in sentences.into_iter().chain(place) {
            print::message(sentence);
        }
        if failed && let Some(end) = self.output.end() {
            print::message("its last lines:");
            print::lines(&end);
        }
    }
}

/// The running display.
enum LiveDisplay {
    /// Full screen.
    OnScreen(View),
    /// Lines or JSON objects on standard output.
    Printed(Printer),
}

impl LiveDisplay {
    /// Whether the display still runs.
    fn is_on(&self) -> bool {
        match self {
            Self::OnScreen(view) => view.is_on(),
            Self::Printed(printer) => printer.is_on(),
        }
    }

    /// Shows the final state after the recording has ended. With `stays`, the view remains until the
    /// user quits or a signal arrives.
    fn finish(self, stays: bool, command: &mut CommandSupervisor) -> anyhow::Result<()> {
        let mut view = match self {
            Self::Printed(printer) => return printer.finish(command),
            Self::OnScreen(view) => view,
        };
        while stays && view.is_on() {
            view.stay(command.as_fd()).context("cannot wait for keys")?;
            if command.was_told_to_end()? {
                break;
            }
        }
        Ok(view.leave()?)
    }
}

/// Whether the view remains after the end: only if the program ended by itself, without `-n` or a
/// signal.
fn stays(why: EndReason, command: &CommandSupervisor, config: &TopArgs) -> bool {
    let by_itself =
        matches!(why, EndReason::CommandEnded(_) | EndReason::ProcessEnded | EndReason::TimeOver);
    by_itself && !command.handed_on() && config.iterations.is_none()
}

/// The reason of the end, as a clause.
fn ended_words(why: EndReason, target: &RecordTarget) -> String {
    match (why, target) {
        (EndReason::CommandEnded(CommandEnd::Code(code)), _) => {
            format!("the command ended with exit code {code}")
        }
        (EndReason::CommandEnded(CommandEnd::Signal(signal)), _) => {
            format!("the command was killed by {}", signal_name(signal))
        }
        (EndReason::ProcessEnded, RecordTarget::Process(pid)) => {
            format!("process {pid} ended")
        }
        (EndReason::ProcessEnded, _) => "the process ended".to_owned(),
        (EndReason::TimeOver, _) => "the time limit was reached".to_owned(),
        (EndReason::Interrupted, _) => "interrupted".to_owned(),
        (EndReason::Left, _) => "quit".to_owned(),
        (EndReason::CannotWrite, _) => "writing the trace failed".to_owned(),
    }
}

/// The name of a signal, for example `SIGKILL`.
fn signal_name(number: u8) -> String {
    nix::sys::signal::Signal::try_from(i32::from(number))
        .map_or_else(|_| format!("signal {number}"), |signal| signal.to_string())
}
