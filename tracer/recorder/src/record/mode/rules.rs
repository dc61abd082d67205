//! The decision about the mode, from facts. Pure.

use super::{ModeDecision, ModeFacts, ModeSummary, NoProbes};
use crate::args::{CudaMode, RecordConfig, RecordMode, RecordTarget};
use crate::launch::{InjectionPlan, LibraryError, PreloadObstacle};
use crate::privileges::PrivilegeError;
use crate::text::shell_line;
use gctrace_event::RecordingMode;
use gctrace_ring::InjectOptions;

/// Why the requested mode is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// Probes need privileges that this process lacks.
    #[error("{denied}")]
    Denied {
        /// The missing privilege.
        denied: PrivilegeError,
        /// The alternative, or why there is none.
        instead: String,
    },
    /// Nothing can be injected into a running process.
    #[error("--mode {mode} records commands that gctrace starts, not running processes (-p)")]
    Attach {
        /// The requested mode.
        mode: &'static str,
    },
    /// An option that only the library can do: calls of a function, memory by layer.
    #[error("{option} is recorded in-process; {without} excludes this")]
    InProcess {
        /// The option.
        option: String,
        /// The option that excludes it, or a running process.
        without: &'static str,
    },
    /// The kernel refuses our probes, and there is no other way to record a running process.
    #[error("cannot record from the kernel: {why}")]
    Kernel {
        /// The kernel's reason.
        why: String,
        /// The alternative, or why there is none.
        instead: String,
    },
    /// The library is needed but cannot be used.
    #[error("cannot record in-process: {0}")]
    Library(LibraryError),
    /// The library is needed but cannot be loaded into the command.
    #[error("the command cannot be recorded in-process: {obstacle}")]
    Command {
        /// The obstacle.
        obstacle: PreloadObstacle,
    },
}

impl ModeError {
    /// The commands that fix it, ready to print after the error.
    pub fn remedy(&self) -> String {
        match self {
            Self::Denied { denied, instead } => format!("{}\n{instead}", denied.remedy()),
            Self::Attach { .. } => {
                "It can be recorded from the kernel: sudo gctrace record -p PID".to_owned()
            }
            Self::InProcess { option, .. } => {
                format!("It can be recorded with: gctrace {option} -- COMMAND")
            }
            Self::Kernel { instead, .. } => instead.clone(),
            Self::Library(error) => error.remedy(),
            Self::Command { .. } => {
                "It can be recorded from the kernel: sudo gctrace --mode ebpf -- COMMAND".to_owned()
            }
        }
    }
}

/// Chooses the sources.
///
/// # Errors
/// The requested mode is not possible.
pub fn choose(config: &RecordConfig, facts: &ModeFacts) -> Result<ModeDecision, ModeError> {
    let in_process = in_process(config);
    let by_both = in_process.is_some() && facts.no_probes.is_none();
    if let Some(option) = in_process
        && let Some(error) = unseen(config, option)
    {
        return Err(error);
    }
    match config.sources.mode {
        RecordMode::Auto if by_both => within(config, facts, RecordingMode::Both),
        RecordMode::Ebpf => from_kernel(config, facts).map(|()| probes_alone()),
        RecordMode::Inject => within(config, facts, RecordingMode::Inject),
        RecordMode::Both => {
            if let Some(attached) = attached(config) {
                return Err(attached);
            }
            from_kernel(config, facts)?;
            within(config, facts, RecordingMode::Both)
        }
        RecordMode::Auto => match &facts.no_probes {
            None => Ok(privileged(config, facts)),
            Some(no_probes) => unprivileged(config, facts, no_probes),
        },
    }
}

fn probes_alone() -> ModeDecision {
    ModeDecision {
        collections: RecordingMode::Ebpf,
        injection: None,
        notes: Vec::new(),
        opening: None,
    }
}

/// The requested option that only the library supports, as on the command line.
fn in_process(config: &RecordConfig) -> Option<String> {
    let sources = &config.sources;
    let function = sources.step_function.as_ref();
    let function = function.map(|function| format!("--step-function {function}"));
    function.or_else(|| sources.layers.map(|_| "--layers".to_owned()))
}

/// It cannot be done.
fn unseen(config: &RecordConfig, option: String) -> Option<ModeError> {
    let without = match (&config.target, config.sources.mode) {
        (RecordTarget::Process(_), _) => "-p",
        (RecordTarget::Everything, _) => "no command to start",
        (RecordTarget::Command(_), RecordMode::Ebpf) => "--mode ebpf",
        (RecordTarget::Command(_), _) => return None,
    };
    Some(ModeError::InProcess { option, without })
}

fn attached(config: &RecordConfig) -> Option<ModeError> {
    let mode = config.sources.mode.into_str();
    if matches!(config.target, RecordTarget::Command(_)) {
        return None;
    }
    Some(ModeError::Attach { mode })
}

/// Checks that probes can be placed.
fn from_kernel(config: &RecordConfig, facts: &ModeFacts) -> Result<(), ModeError> {
    match &facts.no_probes {
        Some(NoProbes::Denied(denied)) => {
            Err(ModeError::Denied { denied: denied.clone(), instead: instead(config) })
        }
        Some(NoProbes::Kernel(why)) => {
            Err(ModeError::Kernel { why: why.clone(), instead: instead(config) })
        }
        // Any other refusal of the kernel is reported when the probes are loaded.
        None => Ok(()),
    }
}

/// The command line that works without privileges.
fn instead(config: &RecordConfig) -> String {
    match &config.target {
        RecordTarget::Command(words) => format!(
            "Or, without them, in-process:\n    gctrace --mode inject -- {}",
            shell_line(words)
        ),
        RecordTarget::Process(_) | RecordTarget::Everything => {
            "Without them gctrace records commands that it starts itself:\n    gctrace -- COMMAND\n    \
             gctrace top -- COMMAND"
                .to_owned()
        }
    }
}

/// Collections recorded in-process, alone or in addition to probes.
fn within(
    config: &RecordConfig,
    facts: &ModeFacts,
    collections: RecordingMode,
) -> Result<ModeDecision, ModeError> {
    let (Some(library), None) = (&facts.library, attached(config)) else {
        let mode = config.sources.mode.into_str();
        return Err(ModeError::Attach { mode });
    };
    let library = library.clone().map_err(ModeError::Library)?;
    if let Some(obstacle) = certain(config, facts) {
        return Err(ModeError::Command { obstacle });
    }
    let options = InjectOptions {
        collections: true,
        // Probes that sample see them, with reasons.
        turns: collections == RecordingMode::Inject || config.sample_rate().is_none(),
        layers: config.sources.layers.unwrap_or(0),
        // Next to probes, allocations are estimated as without the library.
        allocations: config.sources.windows_budget().is_some()
            && collections == RecordingMode::Inject,
        garbage: config.sources.garbage,
        // 100 %: all, at any cost; the library is tested with a thousand times that.
        garbage_budget_ppm: match config.sources.garbage_budget {
            1.0.. => 1_000_000_000,
            share => (share * 1e6) as u32,
        },
        ..options(config)
    };
    Ok(ModeDecision {
        collections,
        injection: Some(InjectionPlan {
            library,
            options,
            step_function: config.sources.step_function.clone(),
            memory_history: config.memory_history.clone(),
        }),
        notes: warnings(config, facts),
        opening: None,
    })
}

fn options(config: &RecordConfig) -> InjectOptions {
    InjectOptions {
        collections: false,
        turns: false,
        stack_depth: config.sources.stack_depth,
        allocations: false,
        cuda: config.sources.cuda != CudaMode::Off,
        only_waits: config.sources.cuda == CudaMode::Sync,
        yields: config.sources.gpu_yield,
        gpu_records: InjectOptions::gpu_ring_of(config.sources.ring_size),
        follow: config.sources.follow,
        ..InjectOptions::default()
    }
}

fn certain(config: &RecordConfig, facts: &ModeFacts) -> Option<PreloadObstacle> {
    let certain = |obstacle: &&PreloadObstacle| obstacle.is_certain(config.sources.follow);
    facts.obstacles.iter().find(certain).cloned()
}

/// Warnings about data that may be missing although the library is loaded.
fn warnings(config: &RecordConfig, facts: &ModeFacts) -> Vec<String> {
    let mut notes: Vec<String> = facts.obstacles.iter().map(ToString::to_string).collect();
    if let Some(other) = &facts.foreign_injection
        && config.sources.cuda != CudaMode::Off
        && !config.sources.gpu_yield
    {
        notes.push(format!(
            "CUDA_INJECTION64_PATH names another tool ({}): it is kept, and may prevent gctrace from recording GPU times",
            other.to_string_lossy()
        ));
    }
    notes
}

/// Auto, if probes can be placed: the library only adds GPU times.
fn privileged(config: &RecordConfig, facts: &ModeFacts) -> ModeDecision {
    let decision = probes_alone();
    let wanted = facts.cuda.is_some() && !config.sources.gpu_yield;
    let (true, Some(library)) = (wanted, &facts.library) else { return decision };
    let without = |why: String| ModeDecision {
        notes: vec![format!("GPU times will not be recorded: {why}")],
        ..probes_alone()
    };
    match (library, certain(config, facts)) {
        (_, Some(obstacle)) => without(obstacle.to_string()),
        (Err(error), None) => {
            let remedy = error.remedy().replace("\n    ", " ");
            without(format!("{error}. {remedy}"))
        }
        (Ok(library), None) => ModeDecision {
            injection: Some(InjectionPlan {
                library: library.clone(),
                options: options(config),
                step_function: None,
                memory_history: None,
            }),
            notes: warnings(config, facts),
            ..decision
        },
    }
}

/// Auto, if they cannot.
fn unprivileged(
    config: &RecordConfig,
    facts: &ModeFacts,
    no_probes: &NoProbes,
) -> Result<ModeDecision, ModeError> {
    let refused = |instead: String| match no_probes.clone() {
        NoProbes::Denied(denied) => ModeError::Denied { denied, instead },
        NoProbes::Kernel(why) => ModeError::Kernel { why, instead },
    };
    if attached(config).is_some() {
        return Err(refused(instead(config)));
    }
    let mut decision = within(config, facts, RecordingMode::Inject).map_err(|error| {
        refused(format!(
            "Without privileges gctrace records in-process, but: {error}\n{}",
            match &error {
                ModeError::Library(error) => error.remedy(),
                _ => String::new(),
            }
        ))
    })?;
    decision.opening = Some(summary_without_probes(no_probes));
    Ok(decision)
}

/// The line at the start.
fn summary_without_probes(no_probes: &NoProbes) -> ModeSummary {
    let (why, more) = match no_probes {
        NoProbes::Denied(denied) if denied.sudo_helps() => {
            ("without privileges".to_owned(), "sudo gctrace records them too")
        }
        NoProbes::Denied(_) => {
            ("without privileges".to_owned(), "gctrace doctor reports what prevents it")
        }
        NoProbes::Kernel(why) => (format!("because {why}"), "details: gctrace doctor"),
    };
    let sentence = format!(
        "recording in-process, {why}: why collections ran is unknown, and those of the first \
         milliseconds and the last at exit are not recorded"
    );
    ModeSummary { sentence, more }
}

#[cfg(test)]
mod tests;
