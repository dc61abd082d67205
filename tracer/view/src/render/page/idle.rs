//! The sections of a page about idle time: that of a GPU by cause, and that of the main thread.

use crate::document::{BarPart, Block, Section};
use crate::render::idle as words;
use crate::units::{duration, percent};
use gctrace_analysis::report::{IdleLedger, IdleRow, Report};
use gctrace_analysis::words::samples;
use gctrace_analysis::words::samples::ThreadUse;

/// Colors of what a device does, or a thread; the first of a cause of idle time follows.
const WORK: usize = 0;
const IDLE: usize = 3;
/// Of what is no cause: gray.
const REST: usize = 16;

/// The idle time of a device as a share of its time.
pub(super) fn share(ledger: &IdleLedger) -> f64 {
    words::share(ledger.idle_ns, ledger.span_ns)
}

/// Why the GPU was idle that idled the longest, and what the others did.
pub(super) fn idle(report: &Report) -> Section {
    let Some(ledger) = words::idlest(report) else {
        return Section::default();
    };
    let use_of = [
        ("compute", ledger.compute_ns, WORK),
        ("communication alone", ledger.communication_ns, 1),
        ("copies alone", ledger.copies_ns, 2),
        ("idle", ledger.idle_ns, IDLE),
    ];
    let use_of = use_of.map(|(name, ns, color)| (name.to_owned(), ns, color));
    let mut all = vec![
        Block::Bar("GPU time".to_owned(), parts(&use_of, ledger.span_ns)),
        Block::Bar("Idle time by cause".to_owned(), causes(ledger)),
    ];
    all.extend(words::explained(report, ledger));
    all.extend(words::devices(report));
    let gaps = words::gaps(report, ledger);
    if !gaps.is_empty() {
        all.push(Block::More("The longest gaps".to_owned(), gaps));
    }
    let about = format!("{} {}", words::device(report, ledger), words::idled(ledger));
    Section::new("Why the GPU was idle", all).id("idle").about(about)
}

fn parts(times: &[(String, u64, usize)], whole_ns: u64) -> Vec<BarPart> {
    let part = |(name, ns, color): &(String, u64, usize)| {
        let ratio = words::share(*ns, whole_ns);
        BarPart {
            name: name.clone(),
            share: percent(ratio),
            width: format!("{:.3}", ratio * 100.0),
            color: *color,
        }
    };
    times.iter().filter(|(_, ns, _)| *ns > 0).map(part).collect()
}

fn causes(ledger: &IdleLedger) -> Vec<BarPart> {
    let time = |row: &IdleRow| (row.cause.to_string(), row.time_ns, words::color(row.cause));
    let times: Vec<_> = ledger.rows.iter().map(time).collect();
    parts(&times, ledger.idle_ns)
}

/// What the main thread of the process with the most CPU time did.
pub(super) fn main_thread(report: &Report) -> Vec<Block> {
    let Some((whole_ns, times)) = samples::main_thread_times(report) else {
        return Vec::new();
    };
    let colored = |(at, (use_of, ns)): (usize, (ThreadUse, u64))| {
        let color = match use_of {
            ThreadUse::Running => WORK,
            ThreadUse::Collecting => IDLE,
            ThreadUse::Waiting(_) => words::FIRST_CAUSE + 1 + at % 10,
            ThreadUse::Rest => REST,
        };
        (use_of.to_string(), ns, color)
    };
    let times: Vec<_> = times.into_iter().enumerate().map(colored).collect();
    vec![Block::Bar(format!("Main thread, {}", duration(whole_ns)), parts(&times, whole_ns))]
}
