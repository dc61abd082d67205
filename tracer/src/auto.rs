//! `gctrace auto`: finds the right setting of the collector while the program runs, holds it and proves its savings.
//!
//! Owns the messages: the search itself is in `probes/tuner/src/lib.rs`.
//!
//! - `render`: decisions and the result, for people.

mod render;

pub(crate) use render::{decision, more, verdict};

use crate::advice::FoundSettings;
use crate::apply::{StartedCommand, undo};
use crate::args::{AutoArgs, Verbosity};
use crate::files::{write_beside, write_export};
use crate::invoker::Invoker;
use crate::launch::CommandEnd;
use crate::print;
use crate::record::code_of;
use crate::text::chain;
use gctrace_settings::{
    AppliedProcess, ApplyRequest, AutoDecision, AutoOptions, AutoReport, AutoState,
};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two looks at the reports of the processes, in ms.
const INTERVAL_MS: u16 = 1_000;

/// Starts a command and finds its setting, or gives everything back. Returns the exit code, a
/// command's own.
///
/// # Errors
/// The library cannot be loaded, the command cannot be started; or nothing can
/// be given back.
pub(crate) fn run(config: &AutoArgs, verbosity: Verbosity) -> anyhow::Result<u8> {
    if let Some(pid) = config.undo {
        return undo(pid).map(|()| 0);
    }
    let invoker = Invoker::detect();
    let search_for = SearchRequest {
        command: &config.start.command,
        as_root: config.start.as_root,
        answers_on_stdout: false,
        options: config.options(),
        step_function: config.start.step_function(),
    };
    let SearchedCommand { found, ended, .. } =
        search(&search_for, &invoker, verbosity, |_, _| false)?;
    let ended = ended.flatten();
    let content = print::json(&found)?;
    let content = |out: &mut dyn io::Write| out.write_all(content.as_bytes());
    let path = &config.output;
    let written = if config.force {
        write_export(path, &invoker, &[], true, &content).map(|()| path.to_owned())
    } else {
        let is_ours = |path: &Path| FoundSettings::read(path).is_some();
        write_beside(path, &invoker, is_ours, &content)
    };
    if verbosity > Verbosity::Quiet {
        let wrote = written.as_deref().unwrap_or(path);
        render::lines(&found, wrote).iter().for_each(print::message);
        if wrote != path {
            let (wrote, path) = (wrote.display(), path.display());
            print::message(format!("wrote {wrote}: {path} is not of gctrace auto, and stays"));
        }
    }
    if let Err(error) = written {
        tracing::error!("{}", chain(&error.into()));
    }
    Ok(code_of(ended))
}

/// The setting to search for, and the command.
pub(crate) struct SearchRequest<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) as_root: bool,
    /// The command's standard output becomes standard error.
    pub(crate) answers_on_stdout: bool,
    pub(crate) options: AutoOptions,
    pub(crate) step_function: Option<&'a str>,
}

/// A command with a search for a setting.
pub(crate) struct SearchedCommand {
    pub(crate) command: StartedCommand,
    /// `None`: it still runs; `Some(None)`: the user ended gctrace.
    pub(crate) ended: Option<Option<CommandEnd>>,
    pub(crate) found: FoundSettings,
}

/// Starts a command and seeks a setting in it, telling each decision, until it ends or the reports of its
/// processes, and the time that it has run, are enough.
///
/// # Errors
/// The library cannot be loaded, or the command cannot be started.
pub(crate) fn search(
    search: &SearchRequest<'_>,
    invoker: &Invoker,
    verbosity: Verbosity,
    mut is_enough: impl FnMut(&[AppliedProcess], Duration) -> bool,
) -> anyhow::Result<SearchedCommand> {
    let mut command = StartedCommand::start(
        search.command,
        invoker,
        search.as_root,
        search.answers_on_stdout,
        &ApplyRequest::auto(search.options.clone()),
        search.step_function,
    )?;
    let started = Instant::now();
    let mut told = Told { is_quiet: verbosity == Verbosity::Quiet, processes: HashMap::new() };
    let ended = loop {
        if let Some(ended) = command.wait_a_little(INTERVAL_MS)? {
            break Some(ended);
        }
        let processes = command.session.processes().processes;
        told.tell(&processes);
        if is_enough(&processes, started.elapsed()) {
            break None;
        }
    };
    told.tell(&command.session.processes().processes);
    let words = command.launch.words();
    let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let code = ended.flatten().map(CommandEnd::exit_code);
    let processes = command.session.processes().processes;
    let found = FoundSettings::new(words, code, &processes, search.options.worth);
    Ok(SearchedCommand { command, ended, found })
}

/// Whether every process with a search for a setting has a result. Without steps it may still load. So two things do
/// not count: a finding that a change is not worth it by then, and any result of the first half minute.
pub(crate) fn is_known(processes: &[AppliedProcess], elapsed: Duration) -> bool {
    const LOADING: Duration = Duration::from_secs(30);
    let mut searches = processes.iter().filter_map(|process| {
        let search = process.auto.as_ref()?;
        let is_sought = (process.steps > 0 || search.by_time)
            && search.unsupported.is_none()
            && search.leader.is_none();
        if is_sought { Some(search) } else { None }
    });
    let has_result = |search: &AutoReport| match search.state {
        _ if search.by_time && elapsed < LOADING => false,
        AutoState::Watching if search.by_time => false,
        AutoState::Holding | AutoState::Stopped => true,
        AutoState::Watching => match search.events.last() {
            Some(event) => !matches!(
                event.decision,
                AutoDecision::Changed { .. }
                    | AutoDecision::OwnChanged { .. }
                    | AutoDecision::Unfrozen
            ),
            None => false,
        },
        AutoState::SettingUp
        | AutoState::Exploring
        | AutoState::Comparing
        | AutoState::Proving
        | AutoState::Following => false,
    };
    let Some(first) = searches.next() else { return false };
    has_result(first) && searches.all(has_result)
}

/// Decisions already printed.
struct Told {
    is_quiet: bool,
    processes: HashMap<u32, ToldProcess>,
}

/// Of a process.
struct ToldProcess {
    events: usize,
    /// Results so far, and the time of their last line.
    so_far: Option<String>,
    at: Instant,
}

impl Told {
    fn tell(&mut self, processes: &[AppliedProcess]) {
        /// Between two lines of results so far.
        const EVERY: Duration = Duration::from_secs(10);
        if self.is_quiet {
            return;
        }
        for process in processes {
            let Some(search) = &process.auto else { continue };
            let message = |text: &str| print::message(format!("process {}: {text}", process.pid));
            let told = self.processes.entry(process.pid).or_insert_with(|| ToldProcess {
                events: 0,
                so_far: None,
                at: Instant::now(),
            });
            for event in search.events.iter().skip(told.events) {
                message(&render::decision(event, search.by_time));
            }
            told.events = search.events.len();
            if told.at.elapsed() < EVERY && told.so_far.is_some() {
                continue;
            }
            if let Some(text) = render::so_far(search)
                && told.so_far.as_ref() != Some(&text)
            {
                message(&text);
                (told.so_far, told.at) = (Some(text), Instant::now());
            }
        }
    }
}
