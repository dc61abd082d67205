//! `gctrace auto`: finds the right setting of the collector while the program runs, holds it and proves
//! what it saves.
//!
//! Owns the messages: the search itself is in `probes/inject/src/apply/auto.rs`.
//!
//! - `render`: decisions and the result, for people.

mod render;

use crate::advice::FoundSettings;
use crate::apply::{StartedCommand, undo};
use crate::args::{AutoArgs, Verbosity};
use crate::files::write_export;
use crate::invoker::Invoker;
use crate::launch::CommandEnd;
use crate::print;
use crate::record::INTERRUPTED;
use crate::text::chain;
use gctrace_settings::ApplyRequest;
use std::collections::HashMap;
use std::io;
use std::io::Write as _;

/// How often the reports of the processes are looked at, in ms.
const INTERVAL_MS: u16 = 1_000;

/// Starts a command and finds its setting, or gives everything back. Returns the exit code, a
/// command's own.
///
/// # Errors
/// The output file exists, the library cannot be loaded, the command cannot be started; or nothing can
/// be given back.
pub(crate) fn run(config: &AutoArgs, verbosity: Verbosity) -> anyhow::Result<u8> {
    if let Some(pid) = config.undo {
        return undo(pid).map(|()| 0);
    }
    let path = config.output();
    anyhow::ensure!(
        config.force || !path.exists(),
        "{} exists and was not overwritten; --force overwrites it, -o names another file",
        path.display()
    );
    let invoker = Invoker::detect();
    let request = ApplyRequest::auto(config.options());
    let mut command = StartedCommand::start(
        &config.command,
        &invoker,
        config.as_root,
        false,
        &request,
        config.step_function(),
    )?;
    let mut told = Told { is_quiet: verbosity == Verbosity::Quiet, events: HashMap::new() };
    let ended = loop {
        if let Some(ended) = command.wait_a_little(INTERVAL_MS)? {
            break ended;
        }
        told.tell(&command);
    };
    told.tell(&command);
    let words = command.launch.words();
    let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let found = FoundSettings::new(
        words,
        ended.map(CommandEnd::exit_code),
        &command.session.processes().processes,
    );
    if !told.is_quiet {
        render::lines(&found, path).iter().for_each(print::message);
    }
    let content = |out: &mut dyn io::Write| {
        let mut out = print::JsonEscaper(out);
        serde_json::to_writer_pretty(&mut out, &found)?;
        out.write_all(b"\n")
    };
    if let Err(error) = write_export(path, &invoker, &[], config.force, &content) {
        tracing::error!("{}", chain(&error.into()));
    }
    Ok(ended.map_or(INTERRUPTED, CommandEnd::exit_code))
}

/// Number of the decisions of each process that were told.
struct Told {
    is_quiet: bool,
    events: HashMap<u32, usize>,
}

impl Told {
    fn tell(&mut self, command: &StartedCommand) {
        if self.is_quiet {
            return;
        }
        for process in command.session.processes().processes {
            let Some(search) = process.auto else { continue };
            let told = self.events.entry(process.pid).or_insert(0);
            for event in search.events.iter().skip(*told) {
                print::message(format!(
                    "process {}: {}",
                    process.pid,
                    render::decision(event, search.by_time)
                ));
            }
            *told = search.events.len();
        }
    }
}
