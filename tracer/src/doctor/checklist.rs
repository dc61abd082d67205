//! The checklist: derives statuses and remedies from facts. Pure.

mod gpus;
mod in_process;

use crate::doctor::explain;
use crate::doctor::interpreters::{FoundInterpreters, InterpreterFile};
use crate::doctor::machine::HostFacts;
use crate::print::clean;
use crate::privileges::{FOR_OTHERS, Lockdown, NEEDED, PrivilegeError, PrivilegeFacts, cap};
use crate::text::shell_line;
use gctrace_ebpf::{AttachMethod, OLDEST_LINUX};
use gctrace_probes::counters::CounterError;
use std::fmt;
use strum::Display;

/// Maximum number of pids listed; the others are only counted.
const SHOWN_PIDS: usize = 4;

/// The status of a line of the checklist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
enum CheckStatus {
    /// Works.
    Ok,
    /// Recording works, with a restriction.
    Note,
    /// Recording by kernel probes, or at all, will not work.
    #[strum(to_string = "MISSING")]
    Missing,
    /// The check needs privileges.
    Unknown,
}

#[derive(Clone, Debug)]
struct CheckLine {
    verdict: CheckStatus,
    what: &'static str,
    value: String,
    remedy: Option<String>,
}

impl CheckLine {
    fn new(verdict: CheckStatus, what: &'static str, value: impl Into<String>) -> Self {
        Self { verdict, what, value: value.into(), remedy: None }
    }

    fn ok(what: &'static str, value: impl Into<String>) -> Self {
        Self::new(CheckStatus::Ok, what, value)
    }

    fn note(what: &'static str, value: impl Into<String>) -> Self {
        Self::new(CheckStatus::Note, what, value)
    }

    fn missing(what: &'static str, value: impl Into<String>) -> Self {
        Self::new(CheckStatus::Missing, what, value)
    }

    fn with_fix(mut self, remedy: impl Into<String>) -> Self {
        if self.verdict != CheckStatus::Ok {
            self.remedy = Some(remedy.into());
        }
        self
    }
}

/// The checked facts as lines, with a conclusion and whether recording works at all.
#[derive(Clone, Debug)]
pub(super) struct Checklist {
    works: bool,
    lines: Vec<CheckLine>,
    interpreters: Vec<CheckLine>,
    closing: String,
}

/// Derives the checklist from the facts.
pub(super) fn draw(machine: &HostFacts, found: &FoundInterpreters) -> Checklist {
    let lines: Vec<CheckLine> = kernel(machine).into_iter().chain(rights(machine)).collect();
    let mut interpreters: Vec<CheckLine> = found.interpreters.iter().map(interpreter).collect();
    if interpreters.is_empty() {
        interpreters.push(
            CheckLine::note("none found", "in PATH, venv, conda, pyenv or running processes")
                .with_fix("To examine one elsewhere: gctrace doctor --python PATH"),
        );
    }
    interpreters.extend(hidden(found.hidden_processes, &machine.rights));
    let works = machine.within.choice.is_ok();
    let closing = closing(machine, &lines, found);
    Checklist { works, lines, interpreters, closing }
}

/// The line on processes that could not be inspected, if any.
fn hidden(count: usize, rights: &PrivilegeFacts) -> Option<CheckLine> {
    let line = CheckLine::note("processes", format!("{count} cannot be inspected"));
    let denied = PrivilegeError::from_facts(rights.clone());
    Some(match denied {
        _ if count == 0 => return None,
        Some(denied) if denied.sudo_helps() => {
            line.with_fix("To inspect all of them: sudo gctrace doctor")
        }
        _ => line,
    })
}

fn kernel(machine: &HostFacts) -> Vec<CheckLine> {
    let kernel = &machine.kernel;
    let newer = format!("Linux {OLDEST_LINUX} or newer is needed.");
    // Without the capability to load programs, the results of the tests are meaningless.
    let feature = |there: bool, otherwise| match (kernel.permitted, there) {
        (true, true) => CheckStatus::Ok,
        (true, false) => otherwise,
        (false, _) => CheckStatus::Unknown,
    };
    let answer = |verdict| match verdict {
        CheckStatus::Ok => "yes",
        CheckStatus::Unknown => "cannot be tested without privileges",
        _ => "no",
    };
    let needed = |what, there| {
        let verdict = feature(there, CheckStatus::Missing);
        let line = CheckLine::new(verdict, what, answer(verdict));
        match verdict {
            CheckStatus::Missing => line.with_fix(newer.as_str()),
            _ => line,
        }
    };
    let machine_known = kernel.machine == std::env::consts::ARCH;
    let multi = feature(kernel.uprobe_multi, CheckStatus::Note);
    vec![
        CheckLine::new(
            fatal_unless(machine_known),
            "kernel",
            format!("{} {}", kernel.release, kernel.machine),
        )
        .with_fix("This gctrace is built for another machine; install the package for this one: gctrace supports x86-64 and arm64."),
        CheckLine::new(
            fatal_unless(kernel.btf),
            "type information",
            "/sys/kernel/btf/vmlinux",
        )
        .with_fix("A kernel with CONFIG_DEBUG_INFO_BTF=y is needed, as in current distributions."),
        needed("ring buffer", kernel.ring_buffer),
        needed("probe cookies", kernel.cookie),
        needed("signals from BPF", kernel.send_signal),
        match multi {
            CheckStatus::Note => {
                CheckLine::new(multi, "multi links", "no: probes are attached one by one")
                    .with_fix("Detaching is slower than with Linux 6.6 or newer.")
            }
            _ => CheckLine::new(multi, "multi links", answer(multi)),
        },
        match feature(kernel.loops, CheckStatus::Note) {
            CheckStatus::Note => CheckLine::note("loops in BPF", "no: probes do not see what collections free")
                .with_fix("--garbage needs Linux 5.17 or newer, or in-process recording (--mode inject)."),
            loops => CheckLine::new(loops, "loops in BPF", answer(loops)),
        },
        // An instruction of a probed function is a breakpoint for all processes of the file, and for all its readers.
        CheckLine::ok("valgrind", "of a Python that probes record ends by SIGTRAP: in-process then (--mode inject)"),
    ]
}

fn rights(machine: &HostFacts) -> Vec<CheckLine> {
    let rights = &machine.rights;
    let denied = PrivilegeError::from_facts(rights.clone());
    let privileges = match &denied {
        None => CheckLine::ok("privileges", NEEDED.each_ref().map(cap).join(", ")),
        Some(denied) => {
            CheckLine::missing("privileges", denied.to_string()).with_fix(denied.remedy())
        }
    };
    let mut lines = vec![privileges];
    if denied.is_none() {
        lines.push(other_users(rights));
    }
    lines.extend(machine.replaceable.as_ref().map(|writable| {
        let setup = shell_line(&[rights.executable.as_os_str(), "setup".as_ref()]);
        CheckLine::note("this file", writable.to_string()).with_fix(format!(
            "Root runs any program put there. To install it where only root can write:\n    sudo {setup}"
        ))
    }));
    if denied.is_none() && !machine.kernel.permitted {
        lines.push(
            CheckLine::missing("loading programs", "the kernel rejects even a minimal BPF program")
                .with_fix("A seccomp filter (containers: --security-opt seccomp=unconfined) or a security module denies bpf(2)."),
        );
    }
    lines.extend([
        lockdown(rights.lockdown),
        paranoid(machine),
        locked_memory(machine),
        processor_counters(machine),
        gpus::line(machine),
        container(machine),
    ]);
    lines.extend(in_process::lines(machine));
    lines
}

/// Capabilities for processes of other users.
fn other_users(rights: &PrivilegeFacts) -> CheckLine {
    let what = "other users";
    let lacking = rights.effective.lacking(FOR_OTHERS);
    if lacking.is_empty() {
        return CheckLine::ok(what, FOR_OTHERS.each_ref().map(cap).join(", "));
    }
    let value = match lacking.as_slice() {
        [only] if *only == FOR_OTHERS[1] => "not if its Python is in a closed directory".to_owned(),
        _ => format!("only processes of {} can be recorded", rights.user),
    };
    let purposes: Vec<_> = lacking
        .iter()
        .map(|lacking| format!("{} is needed to {}", cap(lacking), lacking.purpose))
        .collect();
    let remedy = if rights.bounding.lacking(FOR_OTHERS).is_empty() {
        "sudo gctrace"
    } else {
        "add to the capabilities of this container or service"
    };
    CheckLine::note(what, value).with_fix(format!("{}: {remedy}", purposes.join(", ")))
}

fn lockdown(lockdown: Lockdown) -> CheckLine {
    match lockdown {
        Lockdown::Off => CheckLine::ok("lockdown", "off"),
        Lockdown::Integrity => CheckLine::ok("lockdown", "integrity: does not affect recording"),
        Lockdown::Confidentiality => CheckLine::missing("lockdown", "confidentiality"),
    }
}

/// Affects only users without CAP_PERFMON (Documentation/admin-guide/perf-security.rst), except for
/// level 3, a Debian patch that requires CAP_SYS_ADMIN.
fn paranoid(machine: &HostFacts) -> CheckLine {
    let what = "perf_event_paranoid";
    let level = match machine.perf_event_paranoid {
        Some(level) => level.to_string(),
        None => return CheckLine::ok(what, "absent"),
    };
    let kernel = &machine.kernel;
    if kernel.permitted && kernel.attach() == AttachMethod::Single && !kernel.uprobe_events {
        let value = format!("{level}: this kernel requires CAP_SYS_ADMIN to place probes");
        return CheckLine::missing(what, value)
            .with_fix("File capabilities suffice only from Linux 6.6 on:\n    sudo gctrace");
    }
    if kernel.perf_events || !kernel.permitted {
        let value = format!("{level}: not relevant with CAP_PERFMON");
        return CheckLine::ok(what, value);
    }
    let value = format!("{level}: this kernel requires CAP_SYS_ADMIN to open perf events");
    CheckLine::note(what, value).with_fix(
        "CPU counters and arenas need perf events:\n    sudo sysctl kernel.perf_event_paranoid=2",
    )
}

/// BPF maps have not been charged as locked memory since Linux 5.11.
fn locked_memory(machine: &HostFacts) -> CheckLine {
    let value = match machine.locked_memory {
        Some(bytes) => format!("limit {} KiB: not relevant from Linux 5.11 on", bytes / 1024),
        None => "no limit".to_owned(),
    };
    CheckLine::ok("locked memory", value)
}

/// Hardware counters are optional. Software counters (page faults, context switches) always work.
fn processor_counters(machine: &HostFacts) -> CheckLine {
    let what = "CPU counters";
    let missing: Vec<_> = machine
        .counters
        .iter()
        .filter_map(|(counter, there)| Some((*counter, there.as_ref().err()?)))
        .collect();
    let Some((_, why)) = missing.first() else { return CheckLine::ok(what, "all") };
    if **why == CounterError::Denied {
        return CheckLine::new(CheckStatus::Unknown, what, "cannot be tested without privileges");
    }
    if missing.len() == machine.counters.len() {
        return CheckLine::note(what, format!("none: {why}"))
            .with_fix("Traces will not contain cycles, instructions, cache and TLB misses; --counters lists the rest.");
    }
    let names: Vec<_> = missing.iter().map(|(counter, _)| counter.as_ref()).collect();
    CheckLine::note(what, format!("all but {}", names.join(", "))).with_fix(why.to_string())
}

fn container(machine: &HostFacts) -> CheckLine {
    let rights = &machine.rights;
    match (&rights.container, rights.foreign_pid_namespace) {
        (None, false) => CheckLine::ok("container", "none"),
        (Some(kind), false) => {
            CheckLine::ok("container", format!("{kind}, in the host's pid namespace"))
        }
        (kind, true) => {
            let kind = kind.as_deref().unwrap_or("unknown");
            CheckLine::missing("container", format!("{kind}, in a pid namespace of its own"))
        }
    }
}

fn fatal_unless(there: bool) -> CheckStatus {
    if there { CheckStatus::Ok } else { CheckStatus::Missing }
}

fn interpreter(interpreter: &InterpreterFile) -> CheckLine {
    let place = place(interpreter);
    match &interpreter.outcome {
        Ok(found) => {
            let functions = explain::collector_functions(found);
            let title = explain::title(found);
            let value = format!("{title}\n{place}\n{functions}, found by {}", found.rung);
            if found.warnings.is_empty() {
                CheckLine::ok("python", value)
            } else {
                CheckLine::note("python", value).with_fix(found.warnings.join("\n"))
            }
        }
        Err(error) => CheckLine::note("python", format!("cannot be recorded\n{place}"))
            .with_fix(error.clone()),
    }
}

/// `/usr/bin/python3.11 (PATH, venv; processes 12, 13)`.
fn place(interpreter: &InterpreterFile) -> String {
    let mut seen_in: Vec<&str> = interpreter.seen_in.iter().copied().collect();
    let running = running(&interpreter.pids);
    seen_in.extend(running.as_deref());
    format!("{} ({})", clean::path(&interpreter.file), seen_in.join(", "))
}

fn running(pids: &[u32]) -> Option<String> {
    let shown: Vec<_> = pids.iter().take(SHOWN_PIDS).map(u32::to_string).collect();
    match pids.len() {
        0 => None,
        1 => Some(format!("process {}", pids[0])),
        all => Some(match all.checked_sub(SHOWN_PIDS) {
            None | Some(0) => format!("processes {}", shown.join(", ")),
            Some(more) => format!("processes {} and {more} more", shown.join(", ")),
        }),
    }
}

fn closing(machine: &HostFacts, lines: &[CheckLine], found: &FoundInterpreters) -> String {
    let missing: Vec<_> = lines
        .iter()
        .filter(|line| line.verdict == CheckStatus::Missing)
        .map(|line| line.what)
        .collect();
    let missing = missing.join(", ");
    match &machine.within.choice {
        Err(_) => {
            return format!(
                "Recording will not work: see {missing}. gctrace analyze works everywhere."
            );
        }
        Ok(decision) if !decision.uses_probes() => {
            return format!(
                "Recording will work in-process, for commands that gctrace starts. For recording by kernel probes, \
                 and of running processes, see {missing}."
            );
        }
        Ok(_) => {}
    }
    let all = found.interpreters.len();
    let usable =
        found.interpreters.iter().filter(|interpreter| interpreter.outcome.is_ok()).count();
    match all - usable {
        _ if all == 0 => "Recording will work; no interpreter was found to test.".to_owned(),
        0 => format!("Recording will work, with all interpreters found ({all})."),
        failing => {
            format!("Recording will work, but {failing} of {all} interpreters cannot be recorded.")
        }
    }
}

impl Checklist {
    /// Whether a command can be recorded, in any mode.
    pub(super) fn recording_works(&self) -> bool {
        self.works
    }
}

impl fmt::Display for Checklist {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| write_line(formatter, line))?;
        writeln!(formatter, "\nInterpreters")?;
        self.interpreters.iter().try_for_each(|line| write_line(formatter, line))?;
        writeln!(formatter, "\n{}", self.closing)
    }
}

fn write_line(formatter: &mut fmt::Formatter<'_>, line: &CheckLine) -> fmt::Result {
    let value = line.value.replace('\n', &format!("\n{:30}", ""));
    writeln!(formatter, "{:<8} {:<20} {value}", line.verdict, line.what)?;
    let mut sign = "->";
    for remedy in line.remedy.iter().flat_map(|remedy| remedy.lines()) {
        writeln!(formatter, "{:<8}   {sign:<2} {remedy}", "")?;
        sign = "";
    }
    Ok(())
}

#[cfg(test)]
mod tests;
