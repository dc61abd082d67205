//! The sections of a page about idle time: that of a GPU by cause, and that of the main thread.

use super::blocks::{BarPart, Block, Cell, Section, Table, blocks, figures_together};
use crate::render::cause::started_ns;
use crate::render::idle as words;
use crate::render::table::for_page;
use crate::text::OrDash as _;
use crate::units::{duration, percent};
use gctrace_analysis::report::{IdleCause, IdleLedger, IdleRow, Report};
use gctrace_analysis::words::samples;
use gctrace_analysis::words::samples::ThreadUse;

/// Colors of the causes of idle time begin here; those before are of what a device does, or a thread.
const FIRST_CAUSE: usize = 4;
const WORK: usize = 0;
const IDLE: usize = 3;
/// Of what is no cause: gray.
const REST: usize = 16;

fn color(cause: IdleCause) -> usize {
    FIRST_CAUSE + cause as usize
}

/// The idle time of a device as a share of its time.
pub(super) fn share(ledger: &IdleLedger) -> f64 {
    words::share(ledger.idle_ns, ledger.span_ns)
}

/// Why the GPU was idle that idled the longest, and what the others did.
pub(super) fn idle(report: &Report) -> Section {
    let Some(ledger) = words::idlest(report) else {
        return Section::new("idle", "", Vec::new());
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
        Block::Table(table(ledger)),
        Block::Note(figures_together(&words::notes(ledger))),
    ];
    all.extend(blocks(&for_page(|| words::place_lines(ledger))));
    all.extend(words::longest_waits(report).map(|text| Block::Text(figures_together(&text))));
    all.extend(blocks(&for_page(|| words::devices(report))));
    let gaps = ledger.longest.iter().take(words::GAPS_SHOWN).enumerate();
    let started_ns = started_ns(report, ledger.id.trace);
    let gaps = for_page(|| {
        gaps.flat_map(|(at, gap)| words::one_gap(at + 1, gap, started_ns)).collect::<Vec<String>>()
    });
    if !gaps.is_empty() {
        all.push(Block::More("The longest gaps".to_owned(), blocks(&gaps)));
    }
    let about = format!("{} {}", words::device(report, ledger), words::idled(ledger));
    Section::new("idle", "Why the GPU was idle", all).about(figures_together(&about))
}

fn parts(times: &[(String, u64, usize)], whole_ns: u64) -> Vec<BarPart> {
    let part = |(name, ns, color): &(String, u64, usize)| {
        let ratio = words::share(*ns, whole_ns);
        BarPart {
            name: name.clone(),
            share: figures_together(&percent(ratio)),
            width: format!("{:.3}", ratio * 100.0),
            color: *color,
        }
    };
    times.iter().filter(|(_, ns, _)| *ns > 0).map(part).collect()
}

fn causes(ledger: &IdleLedger) -> Vec<BarPart> {
    let time = |row: &IdleRow| (row.cause.to_string(), row.time_ns, color(row.cause));
    let times: Vec<_> = ledger.rows.iter().map(time).collect();
    parts(&times, ledger.idle_ns)
}

fn table(ledger: &IdleLedger) -> Table {
    let head = |text: &str| Cell { text: text.to_owned(), ..Cell::default() };
    let row = |row: &IdleRow| {
        let of_idle = words::share(row.time_ns, ledger.idle_ns);
        let place = words::most(row);
        let below = [place, row.remedy.map(|remedy| format!("Change: {remedy}"))];
        let below: Vec<String> = below.into_iter().flatten().collect();
        vec![
            Cell {
                color: Some(color(row.cause)),
                below: figures_together(&below.join(". ")),
                ..Cell::left(row.cause.to_string())
            },
            Cell::figure(duration(row.time_ns), row.time_ns),
            Cell { value: of_idle.to_string(), ..head(&percent(of_idle)) },
            Cell::figure(row.saves_ns.map(duration).or_dash(), row.saves_ns.unwrap_or(0)),
            head(&words::by_order(row).or_dash()),
        ]
    };
    Table {
        head: vec![
            Cell::left("cause"),
            head("idle"),
            head("of idle"),
            head("saves"),
            head("by order"),
        ],
        rows: ledger.rows.iter().map(row).collect(),
        sortable: true,
    }
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
            ThreadUse::Waiting(_) => FIRST_CAUSE + 1 + at % 10,
            ThreadUse::Rest => REST,
        };
        (use_of.to_string(), ns, color)
    };
    let times: Vec<_> = times.into_iter().enumerate().map(colored).collect();
    vec![Block::Bar(format!("Main thread, {}", duration(whole_ns)), parts(&times, whole_ns))]
}
