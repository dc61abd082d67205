//! Turns of loops: the lines of the first screen, and the section.

use crate::document::{Block, INDENT, Section, Table, hanging, paragraph};
use crate::text::OrDash as _;
use crate::units::{counted, duration, percent, three_digits};
use gctrace_analysis::report::{
    Location, LoopReport, ProcessReport, ProcessWaitReport, Report, TurnCause, TurnFigures,
    TurnPart, TurnReport,
};
use gctrace_analysis::words;
use gctrace_analysis::words::turns::Places;
use gctrace_units::if_known;

/// Loops in the section; the others are in the JSON.
const LOOPS_SHOWN: usize = 4;
/// Loops on the first screen.
const LOOPS_IN_SHORT: usize = 2;
/// Long turns in the section.
const TURNS_SHOWN: usize = 5;
/// A wait for a collection of another process is named on the first screen from this length on, 100 ms, ...
const LONG_WAIT_NS: u64 = 100_000_000;
/// ... or if all of its waits for that process take this part of its time.
const WORTH: f64 = 0.01;
/// Waits of a parent for its child that are no start or end of it.
const SEVERAL: u64 = 3;
/// Parts of a turn in a sentence.
const PARTS_SHOWN: usize = 3;
/// A part in a sentence has at least this share of its turn.
const LEAST_PART: f64 = 0.02;

/// The loops of a program without training steps, or why it has none, for the first screen; empty with steps: those are
/// its unit.
pub(crate) fn in_short(report: &Report) -> Vec<Block> {
    if report.phases.as_ref().is_some_and(|phases| phases.steps.is_some()) {
        return Vec::new();
    }
    let others = report.waits_for_processes.iter().find(|wait| is_long(wait, report));
    let others = others.map(|wait| waits(wait, report));
    // Who is waited for comes first among the loops.
    let many = if others.is_some() { 1 } else { LOOPS_IN_SHORT };
    let shown = report.service_loops().take(many);
    let judged = judged_loop(report)
        .filter(|of| !report.service_loops().take(many).any(|shown| std::ptr::eq(shown, *of)));
    let shown = shown.chain(judged).enumerate();
    // The verdict has how long requests wait for the first one.
    let is_in_verdict = words::turns::sentence(report).is_some();
    let sentences = shown.flat_map(|(index, of)| {
        let mut first = figures(of, report);
        if index > 0 || !is_in_verdict {
            first += &waits_for_it(of);
            first += &without_sentence(of);
        }
        [Some(first), longest(of, Places::of(report))]
    });
    let no_loop = words::samples::no_loop_in_short(report);
    let sentences = sentences.flatten().chain(others).chain(no_loop);
    sentences.map(|sentence| hanging(sentence, "", INDENT)).collect()
}

/// The loop of the process that the verdict is about, if its longest turn is a collection.
fn judged_loop(report: &Report) -> Option<&LoopReport> {
    let judged = report.judged_process()?;
    let of = report.loops.iter().find(|of| (of.trace, of.pid) == (judged.trace, judged.pid))?;
    let most = of.longest.first()?.parts.first()?;
    (most.cause == TurnCause::Collection).then_some(of)
}

/// Whether a process waited so long for another one's collections that its users may notice.
fn is_long(wait: &ProcessWaitReport, report: &Report) -> bool {
    let of = |pid: u32| {
        let is_it = |process: &&ProcessReport| (process.trace, process.pid) == (wait.trace, pid);
        report.processes.iter().find(is_it)
    };
    // Who starts a process waits for it as a whole.
    let is_child = of(wait.for_pid).is_some_and(|process| process.parent == Some(wait.pid));
    let observed_ns = of(wait.pid).map_or(0, |process| process.observed_ns);
    let is_often = wait.in_collections_ns as f64 >= WORTH * observed_ns as f64;
    let is_felt = wait.longest_in_collection_ns >= LONG_WAIT_NS
        || is_often && wait.in_collections_ns >= LONG_WAIT_NS;
    is_felt && (!is_child || wait.waits >= SEVERAL)
}

/// The longest wait of one process for collections of another, and all of these waits.
fn waits(wait: &ProcessWaitReport, report: &Report) -> String {
    format!(
        "{} waited {} for collections of {}, {} in all; the longest wait was {}, {} of it in a collection.",
        process(wait.pid, report).replacen('p', "P", 1),
        counted(wait.waits, "time"),
        process(wait.for_pid, report),
        duration(wait.in_collections_ns),
        duration(wait.longest_ns),
        duration(wait.longest_in_collection_ns),
    )
}

/// `process 812`, with the name of its program if that is known.
fn process(pid: u32, report: &Report) -> String {
    match words::program(pid, report) {
        Some(name) => format!("process {pid} ({name})"),
        None => format!("process {pid}"),
    }
}

/// The loops with their longest turns.
pub(crate) fn turns(report: &Report) -> Section {
    let mut blocks = Vec::new();
    for of in report.loops.iter().take(LOOPS_SHOWN) {
        blocks.push(paragraph(format!(
            "{}{} {}",
            figures(of, report),
            waits_for_it(of),
            kinds(of)
        )));
        blocks.push(distribution(of));
        blocks.extend(list(of, Places::of(report)));
    }
    blocks.extend(words::samples::no_loop_in_short(report).map(paragraph));
    for wait in report.waits_for_processes.iter().take(LOOPS_SHOWN) {
        blocks.push(paragraph(waits(wait, report)));
    }
    if !report.loops.is_empty() {
        blocks.push(paragraph(
            "Measured. Waits: what arrives at a random moment waits for the end of a turn. No collections: each long \
             turn less its collections; what queued up meanwhile is still in it, so these figures are an upper bound.",
        ));
    }
    Section::new("Turns of loops", blocks)
}

/// `The loop of process 812 (epoll_wait at serve.py:12 in run): 656 turns/s, p50 157 µs, p99 8.45 ms, longest 91.0 ms.`
fn figures(of: &LoopReport, report: &Report) -> String {
    let several = report.loops.iter().any(|other| (other.trace, other.pid) != (of.trace, of.pid));
    let whose = if several { format!(" of process {}", of.pid) } else { String::new() };
    let name = words::program(of.pid, report).filter(|_| several);
    let name = name.map_or(String::new(), |name| format!("{name}, "));
    let places = Places::of(report);
    let at = of.line.as_ref().map_or(String::new(), |line| format!(" at {}", places.name(line)));
    let call = if of.is_of_lives() { "started" } else { &of.call };
    let rate = of.turns_per_s.map(|rate| format!("{} turns/s, ", three_digits(rate)));
    let TurnFigures { p50_ns, p99_ns, longest_ns, .. } = of.figures;
    // At one descriptor a thread may wait for answers as well as for requests.
    let what = match (of.takes_work(), of.threads) {
        _ if of.is_of_lives() => "A thread for each piece of work",
        (true, 1) => "The consumer",
        (true, _) => "The pool",
        (false, _) if of.waits_for_many() => "The loop",
        (false, 2..) => "Threads that read",
        (false, _) => "Between messages",
    };
    let threads = if of.threads > 1 { format!("{} threads, ", of.threads) } else { String::new() };
    format!(
        "{what}{whose} ({name}{threads}{call}{at}): {}p50 {}, p99 {}, longest {}.",
        if_known(rate),
        p50_ns.map(duration).or_dash(),
        p99_ns.map(duration).or_dash(),
        duration(longest_ns),
    )
}

/// Empty where nobody knows whether requests come.
fn waits_for_it(of: &LoopReport) -> String {
    if !of.waits_for_many() {
        return String::new();
    }
    let waits_ns = of.figures.lag_p99_ns;
    if waits_ns == Some(0) {
        return " Of 100 requests at random times, 99 arrive while it waits.".to_owned();
    }
    let waits = waits_ns.map(duration).or_dash();
    format!(" A request that arrives at any time waits for the end of a turn up to {waits} (p99).")
}

/// Empty if no long turn contains a collection.
fn without_sentence(of: &LoopReport) -> String {
    let Some(without) = of.without_collections else { return String::new() };
    let waits_ns = without.lag_p99_ns.filter(|ns| *ns > 0 && of.waits_for_many());
    let waiting = waits_ns.map(|ns| format!(", waiting {}", duration(ns)));
    format!(
        " Without collections it would be no more than: p99 {}, longest {}{}.",
        without.p99_ns.map(duration).or_dash(),
        duration(without.longest_ns),
        if_known(waiting),
    )
}

/// What the longest turn was spent on.
fn longest(of: &LoopReport, places: Places<'_>) -> Option<String> {
    let turn = of.longest.first()?;
    let (at, length) = (duration(turn.since_start_ns), duration(turn.length_ns));
    Some(format!("Its longest turn, {length} at {at}: {}.", parts(turn, places)))
}

fn parts(turn: &TurnReport, places: Places<'_>) -> String {
    let least_ns = LEAST_PART * turn.length_ns as f64;
    let shown = turn.parts.iter().filter(|part| part.time_ns as f64 >= least_ns);
    let shown: Vec<String> = shown.take(PARTS_SHOWN).map(|of| part(of, places)).collect();
    shown.join(", ")
}

/// `8.10 ms on the CPU at serve.py:19 in work`
fn part(part: &TurnPart, places: Places<'_>) -> String {
    let at = |line: &Location| match part.cause {
        TurnCause::Gil => format!(" (meanwhile {})", places.name(line)),
        _ => format!(" at {}", places.name(line)),
    };
    let at = part.line.as_ref().map_or(String::new(), at);
    format!("{} {}{at}", duration(part.time_ns), part.cause)
}

fn kinds(of: &LoopReport) -> String {
    if of.is_of_lives() {
        let at_once = of.busy_ratio.map(|ratio| format!("{} at a time", three_digits(ratio)));
        return format!("A turn is the life of a thread; there were {}.", at_once.or_dash());
    }
    let busy = match of.busy_ratio {
        Some(ratio) => format!("It is busy {} of the time, ", percent(ratio)),
        None => String::new(),
    };
    let periods = counted(of.busy_periods, "wait");
    let longest = duration(of.longest_busy_ns);
    let seen = match (of.sees_looks, of.takes_work()) {
        (true, _) => "",
        (false, true) => " Work that a thread takes without waiting is in the same turn.",
        (false, false) => " Looks for input that do not wait are not seen.",
    };
    format!("{busy}with {periods} and up to {longest} between two of them.{seen}")
}

fn distribution(of: &LoopReport) -> Block {
    let head = ["", "p50", "p99", "longest", "waits p99", ">10 ms", ">100 ms"];
    // The last three describe arrivals.
    let columns = if of.figures.lag_p99_ns.is_some() { head.len() } else { head.len() - 3 };
    let mut table = Table::new(&head[..columns], &[0]);
    let all = [("turns", Some(of.figures)), ("no collections", of.without_collections)];
    for (name, figures) in all {
        let Some(figures) = figures else { continue };
        let lengths =
            [figures.p50_ns, figures.p99_ns, Some(figures.longest_ns), figures.lag_p99_ns];
        let shares = [figures.late_10_ms_ratio, figures.late_100_ms_ratio];
        let cells = std::iter::once(name.to_owned())
            .chain(lengths.map(|ns| ns.map(duration).or_dash()))
            .chain(shares.map(|ratio| ratio.map(percent).or_dash()));
        table.row(cells.take(columns));
    }
    table.into()
}

fn list(of: &LoopReport, places: Places<'_>) -> impl Iterator<Item = Block> {
    of.longest.iter().take(TURNS_SHOWN).map(move |turn| {
        let (at, length) = (duration(turn.since_start_ns), duration(turn.length_ns));
        hanging(format!("At {at}, {length}: {}.", parts(turn, places)), "", INDENT)
    })
}
