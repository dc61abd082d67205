//! The checklist: facts in, verdicts and remedies out. Pure.

mod gpus;
mod within;

use crate::doctor::explain;
use crate::doctor::interpreters::Found;
use crate::doctor::interpreters::Interpreter;
use crate::doctor::machine::Machine;
use crate::print::clean;
use crate::privileges::Capability;
use crate::privileges::Denied;
use crate::privileges::FOR_OTHERS;
use crate::privileges::Facts;
use crate::privileges::Lockdown;
use crate::privileges::NEEDED;
use crate::privileges::cap;
use gctrace_ebpf::Attach;
use gctrace_ebpf::OLDEST_LINUX;
use gctrace_probes::counters::CounterError;
use std::fmt;

/// More pids than these are only counted.
const SHOWN_PIDS: usize = 4;

/// What one line of the list comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// As it should be.
    Ok,
    /// Recording works, but something is to be known.
    Note,
    /// Recording from the kernel, or at all, will not work.
    Missing,
    /// Only a process with the privileges can find out.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Missing => "MISSING",
            Self::Unknown => "unknown",
        })
    }
}

#[derive(Clone, Debug)]
struct Line {
    verdict: Verdict,
    what: &'static str,
    value: String,
    remedy: Option<String>,
}

impl Line {
    fn new(verdict: Verdict, what: &'static str, value: impl Into<String>) -> Self {
        Self {
            verdict,
            what,
            value: value.into(),
            remedy: None,
        }
    }

    fn mend(mut self, remedy: impl Into<String>) -> Self {
        if self.verdict != Verdict::Ok {
            self.remedy = Some(remedy.into());
        }
        self
    }
}

/// All lines and what follows from them.
#[derive(Clone, Debug)]
pub(super) struct Checklist {
    works: bool,
    lines: Vec<Line>,
    interpreters: Vec<Line>,
    closing: String,
}

/// Draws the list from the facts.
pub(super) fn draw(machine: &Machine, found: &Found) -> Checklist {
    let lines: Vec<Line> = kernel(machine).into_iter().chain(rights(machine)).collect();
    let mut interpreters: Vec<Line> = found.interpreters.iter().map(interpreter).collect();
    if interpreters.is_empty() {
        interpreters.push(
            Line::new(
                Verdict::Note,
                "none found",
                "in PATH, venv, conda, pyenv or running",
            )
            .mend("gctrace doctor --python PATH examines one elsewhere."),
        );
    }
    interpreters.extend(hidden(found.hidden_processes, &machine.rights));
    let works = machine.within.choice.is_ok();
    let closing = closing(machine, &lines, found);
    Checklist {
        works,
        lines,
        interpreters,
        closing,
    }
}

/// Processes that could not be looked into.
fn hidden(count: usize, rights: &Facts) -> Option<Line> {
    let value = format!("{count} may not be looked into");
    let line = Line::new(Verdict::Note, "processes", value);
    let denied = Denied::from_facts(rights.clone()).is_some();
    (count > 0).then(|| {
        if denied {
            line.mend("sudo gctrace doctor sees all of them.")
        } else {
            line
        }
    })
}

fn kernel(machine: &Machine) -> Vec<Line> {
    let kernel = &machine.kernel;
    let newer = format!("Linux {OLDEST_LINUX} or newer is needed.");
    // Without the right to load programs the kernel's answer says nothing about the kernel.
    let feature = |there: bool, otherwise| match (kernel.permitted, there) {
        (true, true) => Verdict::Ok,
        (true, false) => otherwise,
        (false, _) => Verdict::Unknown,
    };
    let answer = |verdict| match verdict {
        Verdict::Ok => "yes",
        Verdict::Unknown => "cannot be tried without privileges",
        _ => "no",
    };
    let needed = |what, there| {
        let verdict = feature(there, Verdict::Missing);
        let line = Line::new(verdict, what, answer(verdict));
        if verdict == Verdict::Missing {
            line.mend(newer.as_str())
        } else {
            line
        }
    };
    let machine_known = kernel.machine == "x86_64";
    let multi = feature(kernel.uprobe_multi, Verdict::Note);
    vec![
        Line::new(fatal_unless(machine_known), "kernel", format!("{} {}", kernel.release, kernel.machine))
            .mend("gctrace records on x86-64 only."),
        Line::new(fatal_unless(kernel.btf), "type information", "/sys/kernel/btf/vmlinux")
            .mend("A kernel built with CONFIG_DEBUG_INFO_BTF=y is needed; those of current distributions are."),
        needed("ring buffer", kernel.ring_buffer),
        needed("probe cookies", kernel.cookie),
        needed("signals from BPF", kernel.send_signal),
        match multi {
            Verdict::Note => Line::new(multi, "multi links", "no: each probe is attached alone")
                .mend("Detaching takes a moment longer; kernels from 6.6 on do without."),
            _ => Line::new(multi, "multi links", answer(multi)),
        },
    ]
}

fn rights(machine: &Machine) -> Vec<Line> {
    let rights = &machine.rights;
    let denied = Denied::from_facts(rights.clone());
    let privileges = match &denied {
        None => Line::new(Verdict::Ok, "privileges", held()),
        Some(denied) => {
            Line::new(Verdict::Missing, "privileges", denied.to_string()).mend(denied.remedy())
        }
    };
    let mut lines = vec![privileges];
    lines.extend(denied.is_none().then(|| other_users(rights)));
    if denied.is_none() && !machine.kernel.permitted {
        lines.push(
            Line::new(Verdict::Missing, "loading programs", "the kernel refuses even the smallest BPF program")
                .mend("A seccomp filter (containers: --security-opt seccomp=unconfined) or a security module forbids bpf(2)."),
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
    lines.extend(within::lines(machine));
    lines
}

/// Without them recording works, but not of everybody.
fn other_users(rights: &Facts) -> Line {
    let what = "other users";
    let lacking = rights.effective.lacking(FOR_OTHERS);
    let names = |list: &[Capability]| list.iter().map(cap).collect::<Vec<_>>().join(", ");
    if lacking.is_empty() {
        return Line::new(Verdict::Ok, what, names(&FOR_OTHERS));
    }
    let value = format!("only processes of {} can be recorded", rights.user);
    let purposes: Vec<_> = lacking
        .iter()
        .map(|lacking| format!("{} is needed to {}", cap(lacking), lacking.purpose))
        .collect();
    Line::new(Verdict::Note, what, value).mend(format!("{}: sudo gctrace", purposes.join(", ")))
}

fn held() -> String {
    let names: Vec<_> = NEEDED
        .iter()
        .map(|needed| format!("CAP_{}", needed.name))
        .collect();
    names.join(", ")
}

fn lockdown(lockdown: Lockdown) -> Line {
    match lockdown {
        Lockdown::Off => Line::new(Verdict::Ok, "lockdown", "off"),
        Lockdown::Integrity => Line::new(
            Verdict::Ok,
            "lockdown",
            "integrity: does not concern recording",
        ),
        Lockdown::Confidentiality => Line::new(Verdict::Missing, "lockdown", "confidentiality"),
    }
}

/// Concerns users without CAP_PERFMON only (Documentation/admin-guide/perf-security.rst), but for 3, which is
/// Debian's and asks for CAP_SYS_ADMIN.
fn paranoid(machine: &Machine) -> Line {
    let what = "perf_event_paranoid";
    let level = match machine.perf_event_paranoid {
        Some(level) => level.to_string(),
        None => return Line::new(Verdict::Ok, what, "not there"),
    };
    let kernel = &machine.kernel;
    if kernel.perf_events || !kernel.permitted {
        let value = format!("{level}: does not matter with CAP_PERFMON");
        return Line::new(Verdict::Ok, what, value);
    }
    let verdict = match kernel.attach() {
        Attach::Multi => Verdict::Note,
        Attach::Single => Verdict::Missing,
    };
    let value = format!("{level}: this kernel lets only CAP_SYS_ADMIN open perf events");
    Line::new(verdict, what, value).mend(
        "Processor counters and arenas are perf events, and before Linux 6.6 probes are, too:\n    \
         sudo sysctl kernel.perf_event_paranoid=2",
    )
}

/// BPF maps have not counted as locked memory since 5.11.
fn locked_memory(machine: &Machine) -> Line {
    let value = match machine.locked_memory {
        Some(bytes) => format!(
            "limit {} KiB: does not matter from kernel 5.11 on",
            bytes / 1024
        ),
        None => "no limit".to_owned(),
    };
    Line::new(Verdict::Ok, "locked memory", value)
}

/// Recording works without them. Page faults, context switches and the like are counted anywhere.
fn processor_counters(machine: &Machine) -> Line {
    let what = "processor counters";
    let missing: Vec<_> = machine
        .counters
        .iter()
        .filter_map(|(counter, there)| Some((*counter, there.as_ref().err()?)))
        .collect();
    let Some((_, why)) = missing.first() else {
        return Line::new(Verdict::Ok, what, "all");
    };
    if **why == CounterError::Denied {
        return Line::new(Verdict::Unknown, what, "cannot be tried without privileges");
    }
    if missing.len() == machine.counters.len() {
        return Line::new(Verdict::Note, what, format!("none: {why}"))
            .mend("Cycles, instructions, cache and TLB misses will not be in traces; --counters lists the rest.");
    }
    let names: Vec<_> = missing
        .iter()
        .map(|(counter, _)| counter.as_str())
        .collect();
    Line::new(Verdict::Note, what, format!("all but {}", names.join(", "))).mend(why.to_string())
}

fn container(machine: &Machine) -> Line {
    let rights = &machine.rights;
    match (&rights.container, rights.foreign_pid_namespace) {
        (None, false) => Line::new(Verdict::Ok, "container", "none"),
        (Some(kind), false) => Line::new(
            Verdict::Ok,
            "container",
            format!("{kind}, with the host's pids"),
        ),
        (kind, true) => {
            let kind = kind.as_deref().unwrap_or("unknown");
            Line::new(
                Verdict::Missing,
                "container",
                format!("{kind}, with pids of its own"),
            )
        }
    }
}

fn fatal_unless(there: bool) -> Verdict {
    if there { Verdict::Ok } else { Verdict::Missing }
}

fn interpreter(interpreter: &Interpreter) -> Line {
    let place = place(interpreter);
    match &interpreter.outcome {
        Ok(found) => {
            let functions = explain::collector_functions(found);
            let value = format!(
                "{}\n{place}\n{functions}, found by {}",
                explain::title(found),
                found.rung
            );
            Line::new(
                if found.warnings.is_empty() {
                    Verdict::Ok
                } else {
                    Verdict::Note
                },
                "python",
                value,
            )
            .mend(found.warnings.join("\n"))
        }
        Err(error) => Line::new(
            Verdict::Note,
            "python",
            format!("cannot be recorded\n{place}"),
        )
        .mend(error.clone()),
    }
}

/// `/usr/bin/python3.11 (PATH, venv; processes 12, 13)`.
fn place(interpreter: &Interpreter) -> String {
    let mut met: Vec<&str> = interpreter.met.iter().copied().collect();
    let running = running(&interpreter.pids);
    met.extend(running.as_deref());
    format!("{} ({})", clean::path(&interpreter.file), met.join(", "))
}

fn running(pids: &[u32]) -> Option<String> {
    let shown: Vec<_> = pids.iter().take(SHOWN_PIDS).map(u32::to_string).collect();
    match pids.len() {
        0 => None,
        1 => Some(format!("process {}", shown.join(", "))),
        all if all > SHOWN_PIDS => Some(format!(
            "processes {} and {} more",
            shown.join(", "),
            all - SHOWN_PIDS
        )),
        _ => Some(format!("processes {}", shown.join(", "))),
    }
}

fn closing(machine: &Machine, lines: &[Line], found: &Found) -> String {
    let missing: Vec<_> = lines
        .iter()
        .filter(|line| line.verdict == Verdict::Missing)
        .map(|line| line.what)
        .collect();
    let missing = missing.join(", ");
    match &machine.within.choice {
        Err(_) => {
            return format!(
                "Recording will not work: see {missing}. gctrace analyze works everywhere."
            );
        }
        Ok(decision) if !decision.collections.uses_probes() => {
            return format!(
                "Recording will work from within the commands that gctrace starts. For recording from the kernel, \
                 and with it of running processes, see {missing}."
            );
        }
        Ok(_) => {}
    }
    let all = found.interpreters.len();
    let usable = found
        .interpreters
        .iter()
        .filter(|interpreter| interpreter.outcome.is_ok())
        .count();
    match all - usable {
        _ if all == 0 => "Recording will work; there was no interpreter to try.".to_owned(),
        0 => format!("Recording will work, with each of the interpreters found ({all})."),
        failing => {
            format!("Recording will work, but {failing} of {all} interpreters cannot be recorded.")
        }
    }
}

impl Checklist {
    /// A command can be recorded, in one way or the other.
    pub(super) fn recording_works(&self) -> bool {
        self.works
    }
}

impl fmt::Display for Checklist {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines
            .iter()
            .try_for_each(|line| write_line(formatter, line))?;
        writeln!(formatter, "\nInterpreters")?;
        self.interpreters
            .iter()
            .try_for_each(|line| write_line(formatter, line))?;
        writeln!(formatter, "\n{}", self.closing)
    }
}

fn write_line(formatter: &mut fmt::Formatter<'_>, line: &Line) -> fmt::Result {
    let mut values = line.value.lines();
    let first = values.next().unwrap_or_default();
    writeln!(formatter, "{:<8} {:<20} {first}", line.verdict, line.what)?;
    for value in values {
        writeln!(formatter, "{:<8} {:<20} {value}", "", "")?;
    }
    let mut sign = "->";
    for remedy in line.remedy.iter().flat_map(|remedy| remedy.lines()) {
        writeln!(formatter, "{:<8}   {sign:<2} {remedy}", "")?;
        sign = "";
    }
    Ok(())
}

#[cfg(test)]
mod tests;
