//! Properties of any trace with stacks: sums agree, and the order of records does not matter.

use gctrace_analysis::Analysis;
use gctrace_analysis::report::PauseTotal;
use gctrace_event::{Counter, Frame, GcReason, Pause, Record};
use proptest::prelude::*;
use test_kit::reports;
use test_kit::reports::{end, exit, pause, process, report};

/// Few enough that no list is truncated.
const FRAMES: u32 = 16;

fn frame(id: u32) -> impl Strategy<Value = Record> {
    let files = prop::sample::select(vec!["a.py", "/x/lib/python3.12/ast.py", ""]);
    let functions = prop::sample::select(vec!["f", Frame::OUTER, Frame::UNREADABLE]);
    // Any parent, itself and unknown ones included: circles must end.
    let parent = prop::option::of(1..FRAMES + 3);
    (files, functions, parent, 0..3u32).prop_map(move |(file, function, parent, line)| {
        Record::Frame(Frame {
            id,
            parent,
            function: function.to_owned(),
            file: file.to_owned(),
            line: Some(line),
        })
    })
}

fn any_pause() -> impl Strategy<Value = Record> {
    let reasons = prop::sample::select(vec![
        GcReason::Automatic,
        GcReason::Manual,
        GcReason::Shutdown,
        GcReason::Unknown,
    ]);
    let stack = prop::option::of(1..FRAMES + 3);
    (1..4u32, 0..1000u64, 0..50u64, 0..4u8, reasons, stack).prop_map(
        |(pid, from, length, generation, reason, stack)| {
            let mut pause = Pause {
                generation,
                reason,
                stack,
                oldest_objects: Some(length * 100),
                young_count: Some(from),
                ..pause(pid, from, from + length)
            };
            pause.counters.set(Counter::CacheMisses, length * 7);
            pause.counters.set(Counter::TaskClock, length + 1);
            Record::Pause(pause)
        },
    )
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let frames: Vec<_> = (1..=FRAMES).map(frame).collect();
    let pauses = prop::collection::vec(any_pause(), 0..60);
    (frames, pauses).prop_map(|(frames, pauses)| frames.into_iter().chain(pauses).collect())
}

/// The processes described first, as in every trace; the others in this order.
fn whole(records: &[Record]) -> Vec<Record> {
    let processes = (1..4).map(|pid| process(pid, 0, "generational"));
    let exits = (1..4).map(|pid| exit(pid, 1500));
    processes.chain(records.iter().cloned()).chain(exits).collect()
}

fn sum(efforts: impl Iterator<Item = PauseTotal>) -> PauseTotal {
    efforts.fold(PauseTotal::default(), |sum, effort| PauseTotal {
        count: sum.count + effort.count,
        time_ns: sum.time_ns + effort.time_ns,
    })
}

proptest! {
    #[test]
    fn sums_agree(records in records()) {
        let report = report(whole(&records), Some(end(2000)));
        let Some(lines) = &report.lines else {
            let stacks = |record: &Record| matches!(record, Record::Pause(pause) if pause.stack.is_some());
            prop_assert!(!records.iter().any(stacks));
            return Ok(());
        };
        let with = lines.with_stack;
        prop_assert_eq!(sum(lines.own.iter().map(|line| line.pauses)), with);
        prop_assert_eq!(sum(lines.innermost.iter().map(|line| line.pauses)), with);
        for line in lines.own.iter().chain(&lines.innermost) {
            prop_assert_eq!(sum(line.by_generation.into_iter()), line.pauses);
            prop_assert_eq!(sum(line.by_reason.into_iter()), line.pauses);
            prop_assert!(line.time_ratio <= 1.0 && line.max_ns <= line.pauses.time_ns);
        }
        let all = sum([with, lines.without_stack, lines.without_stack_at_shutdown].into_iter());
        prop_assert_eq!(all.count, report.totals.pauses.count);
        prop_assert_eq!(all.time_ns, report.totals.pauses.time_ns);
        let of_processes = report.processes.iter().filter_map(|process| process.lines.as_ref());
        prop_assert_eq!(sum(of_processes.map(|lines| lines.with_stack)), with);
    }

    #[test]
    fn the_order_of_records_does_not_matter(
        (records, shuffled) in records().prop_flat_map(|records| {
            (Just(records.clone()), Just(records).prop_shuffle())
        })
    ) {
        let causes = |records: &[Record]| {
            let report = report(whole(records), Some(end(2000)));
            serde_json::to_string(&(report.lines, report.pressure, report.counters)).unwrap()
        };
        prop_assert_eq!(causes(&records), causes(&shuffled));
    }

    #[test]
    fn flame_graphs_have_all_the_time(records in records()) {
        let mut analysis = Analysis::default();
        reports::add(&mut analysis, "t.json", whole(&records), Some(end(2000)));
        analysis.settle();
        let with_stack = analysis.report().lines.map(|lines| lines.with_stack);
        let stacks: Vec<_> = analysis.stacks().flat_map(|process| process.stacks()).collect();
        let weights = sum(stacks.iter().map(|stack| stack.pauses()));
        let by_generation = |stack: &gctrace_analysis::WeightedStack<'_>| {
            sum([0, 1, 2, Pause::UNKNOWN_GENERATION].map(|g| stack.of_generation(g)).into_iter())
        };
        prop_assert_eq!(sum(stacks.iter().map(by_generation)), weights);
        prop_assert_eq!(weights, with_stack.unwrap_or_default());
        prop_assert!(stacks.iter().all(|stack| !stack.frames().is_empty()));
    }
}
