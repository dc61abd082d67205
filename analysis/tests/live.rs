//! Figures of the live view against a naive model of the same records, and what happens to processes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod common;

use common::MS;
use common::START;
use common::exit;
use common::header;
use common::pause;
use common::process;
use gctrace_analysis::live::Live;
use gctrace_analysis::live::PAUSE_CLASSES_NS;
use gctrace_analysis::live::ProcessFigures;
use gctrace_analysis::live::Request;
use gctrace_analysis::live::SETTLE_NS;
use gctrace_analysis::live::Snapshot;
use gctrace_event::Annotation;
use gctrace_event::Frame;
use gctrace_event::GpuDevice;
use gctrace_event::GpuOp;
use gctrace_event::GpuOpKind;
use gctrace_event::GpuProcess;
use gctrace_event::GpuSample;
use gctrace_event::Note;
use gctrace_event::Pause;
use gctrace_event::Reason;
use gctrace_event::Record;
use gctrace_event::Settings;
use gctrace_event::Step;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECOND: u64 = 1_000_000_000;
const LONG: u64 = 10 * MS;

fn live() -> Live {
    Live::new(header(), LONG)
}

fn fed(records: impl IntoIterator<Item = Record>) -> Live {
    let mut live = live();
    for record in records {
        live.record(&record);
    }
    live
}

/// The state a moment after the settling of `until_ms`, over the interval before.
fn at(live: &Live, until_ms: u64, interval_ms: u64) -> Snapshot {
    live.snapshot(&Request {
        now_ns: START + until_ms * MS + SETTLE_NS,
        interval_ns: interval_ms * MS,
        detail: None,
    })
}

fn only(snapshot: &Snapshot) -> &ProcessFigures {
    assert_eq!(snapshot.processes.len(), 1, "{snapshot:?}");
    &snapshot.processes[0]
}

fn op(pid: u32, from_ms: u64, to_ms: u64) -> Record {
    Record::GpuOp(GpuOp {
        pid: Some(pid),
        device: 0,
        stream: 7,
        kind: GpuOpKind::Kernel,
        name: "kernel".to_owned(),
        begin_ns: START + from_ms * MS,
        end_ns: START + to_ms * MS,
        correlation: None,
        bytes: None,
        collective: None,
    })
}

fn backward(pid: u32, from_ms: u64, to_ms: u64) -> Record {
    Record::Step(Step {
        pid,
        tid: pid,
        begin_ns: START + from_ms * MS,
        end_ns: START + to_ms * MS,
    })
}

/// What a pause is in the model: begin and length in ms, process, generation, reason.
type Drawn = (u64, u64, u32, u8, u8);

fn drawn(pause_ms: std::ops::Range<u64>) -> impl Strategy<Value = Vec<Drawn>> {
    let one = (0u64..70_000, pause_ms, 1u32..4, 0u8..4, 0u8..4);
    prop::collection::vec(one, 0..80)
}

fn record((begin, length, pid, generation, reason): Drawn) -> Pause {
    let reasons = [
        Reason::Automatic,
        Reason::Manual,
        Reason::Shutdown,
        Reason::Unknown,
    ];
    Pause {
        generation: match generation {
            3 => Pause::UNKNOWN_GENERATION,
            known => known,
        },
        reason: reasons[usize::from(reason)],
        ..pause(pid, begin, begin + length)
    }
}

/// Time of pauses within a stretch, added, in ms.
fn clipped(pauses: &[Drawn], from: u64, until: u64) -> u64 {
    let within = |(begin, length, ..): &Drawn| {
        (begin + length)
            .min(until)
            .saturating_sub(*begin.max(&from))
    };
    pauses.iter().map(within).sum()
}

/// Milliseconds in which any pause ran.
fn moments(pauses: &[Drawn]) -> BTreeSet<u64> {
    let all = pauses.iter();
    all.flat_map(|(begin, length, ..)| *begin..begin + length)
        .collect()
}

fn same_process(figures: &ProcessFigures, pauses: &[Drawn], from: u64, until: u64) {
    for generation in 0..4u8 {
        let of = pauses.iter().filter(|pause| pause.3 == generation);
        let lengths: Vec<u64> = of.map(|pause| pause.1 * MS).collect();
        let place = usize::from(generation);
        let collections = &figures.collections;
        assert_eq!(collections.pauses[place], lengths.len() as u64);
        assert_eq!(collections.pause_ns[place], lengths.iter().sum::<u64>());
        let mut bound = 0;
        for (class, count) in collections.histogram[place].iter().enumerate() {
            let upper = PAUSE_CLASSES_NS.get(class).copied().unwrap_or(u64::MAX);
            let within = |ns: &&u64| **ns <= upper && (**ns > bound || class == 0);
            assert_eq!(*count, lengths.iter().filter(within).count() as u64);
            bound = upper;
        }
        let ended =
            |pause: &&Drawn| pause.3 == generation && (from..until).contains(&(pause.0 + pause.1));
        let ended = pauses.iter().filter(ended).count();
        assert_eq!(figures.interval_pauses[place], ended as u64);
    }
    assert_eq!(figures.interval_pause_ns, clipped(pauses, from, until) * MS);
    let moments = moments(pauses);
    assert_eq!(figures.paused_ns, moments.len() as u64 * MS);
    let within = moments.range(from..until).count();
    assert_eq!(figures.interval_paused_ns, within as u64 * MS);
    assert_eq!(figures.history_ns.len(), 60);
    for (back, ns) in figures.history_ns.iter().rev().enumerate() {
        let end = until - back as u64 * 1000;
        assert_eq!(*ns, clipped(pauses, end - 1000, end) * MS, "{back} s back");
    }
    let longest = pauses.iter().map(|pause| pause.1 * MS).max();
    assert_eq!(figures.worst.map(|worst| worst.duration_ns), longest);
    let last = pauses
        .iter()
        .map(|pause| START + (pause.0 + pause.1) * MS)
        .max();
    assert_eq!(figures.last.map(|last| last.ended_ns), last);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Pauses come in the order of their ends, each at most a second too late.
    #[test]
    fn figures_equal_the_naive_ones(
        pauses in drawn(0..20_000),
        late in prop::collection::vec(0u64..1000, 80),
        until in 605u64..701,
        interval in 1u64..600,
    ) {
        let mut order: Vec<_> = pauses.iter().zip(late).collect();
        order.sort_by_key(|((begin, length, ..), late)| begin + length + late);
        // What ends after the next second is not known yet.
        let (until, interval) = (until * 100, interval * 100);
        let known = order.into_iter().map(|(pause, _)| *pause).filter(|pause| pause.0 + pause.1 < until + 1000);
        let known: Vec<Drawn> = known.collect();
        let mut live = fed((1..4).map(|pid| process(pid, 0, "generational")));
        for pause in &known {
            live.record(&Record::Pause(record(*pause)));
        }
        let snapshot = at(&live, until, interval);
        prop_assert_eq!(snapshot.interval_ns, interval * MS);
        prop_assert_eq!(snapshot.interval_until_ns, START + until * MS);
        for figures in &snapshot.processes {
            let own: Vec<Drawn> = known.iter().copied().filter(|pause| pause.2 == figures.pid).collect();
            same_process(figures, &own, until - interval, until);
        }
        let all: u64 = known.iter().map(|pause| pause.1 * MS).sum();
        prop_assert_eq!(snapshot.totals.collections.pause_ns.iter().sum::<u64>(), all);
        prop_assert_eq!(snapshot.totals.interval_pause_ns, clipped(&known, until - interval, until) * MS);
        let reasons = snapshot.totals.collections.by_reason.values().flatten();
        prop_assert_eq!(reasons.map(|sum| sum.count).sum::<u64>(), known.len() as u64);
        let mut long: Vec<u64> = known.iter().filter(|pause| pause.1 * MS >= LONG).map(|pause| pause.0).collect();
        long.sort_unstable();
        let kept: Vec<u64> = snapshot.long_pauses.iter().map(|pause| (pause.begin_ns - START) / MS).collect();
        prop_assert_eq!(kept, long);
    }

    /// Operations of the GPU come up to three seconds late, in any order.
    #[test]
    fn gpu_times_equal_the_naive_ones(
        pauses in prop::collection::vec((0u64..20_000, 0u64..900), 0..40),
        ops in prop::collection::vec((0u64..20_000, 1u64..900, 0u64..3000), 1..60),
        interval in 1u64..100,
    ) {
        let mut records: Vec<(u64, Record)> = Vec::new();
        for (begin, length) in &pauses {
            records.push((begin + length, Record::Pause(pause(1, *begin, begin + length))));
        }
        for (begin, length, late) in &ops {
            records.push((begin + length + late, op(1, *begin, begin + length)));
        }
        records.sort_by_key(|(told, _)| *told);
        let mut live = fed([process(1, 0, "generational")]);
        for (_, record) in &records {
            live.record(record);
        }
        let busy: BTreeSet<u64> = ops.iter().flat_map(|(begin, length, _)| *begin..begin + length).collect();
        let paused: BTreeSet<u64> = pauses.iter().flat_map(|(begin, length)| *begin..begin + length).collect();
        let (first, last) = (*busy.first().unwrap(), *busy.last().unwrap() + 1);
        let idle: BTreeSet<u64> = &(first..last).collect() - &busy;
        let snapshot = at(&live, 25_000, interval * 100);
        let gpu = only(&snapshot).gpus[0].busy.unwrap();
        prop_assert_eq!(gpu.total_busy_ns, busy.len() as u64 * MS);
        prop_assert_eq!(gpu.total_idle_ns, idle.len() as u64 * MS);
        prop_assert_eq!(gpu.total_idle_in_gc_ns, idle.intersection(&paused).count() as u64 * MS);
        let until = last / 100 * 100;
        let from = until.saturating_sub(interval * 100).max(first / 100 * 100);
        prop_assert_eq!((gpu.until_ns, gpu.window_ns), (START + until * MS, (until - from) * MS));
        let window: BTreeSet<u64> = (from..until).collect();
        prop_assert_eq!(gpu.busy_ns, busy.intersection(&window).count() as u64 * MS);
        let idle = &window - &busy;
        prop_assert_eq!(gpu.idle_ns, idle.len() as u64 * MS);
        prop_assert_eq!(gpu.idle_in_gc_ns, idle.intersection(&paused).count() as u64 * MS);
    }

    /// A backward pass is told at its end, pauses within it before.
    #[test]
    fn steps_equal_the_naive_ones(
        begins in prop::collection::btree_set(0u64..30_000, 2..100),
        pauses in prop::collection::vec((0u64..30_000, 0u64..900, 0u64..1000), 0..60),
    ) {
        let begins: Vec<u64> = begins.into_iter().collect();
        let mut records: Vec<(u64, Record)> = Vec::new();
        for pair in begins.windows(2) {
            let end = pair[0] + (pair[1] - pair[0]) / 2;
            records.push((end, backward(1, pair[0], end)));
        }
        let last = *begins.last().unwrap();
        records.push((last, backward(1, last, last)));
        for (begin, length, late) in &pauses {
            records.push((begin + length + late, Record::Pause(pause(1, *begin, begin + length))));
        }
        records.sort_by_key(|(told, _)| *told);
        let mut live = fed([process(1, 0, "generational")]);
        for (_, record) in &records {
            live.record(record);
        }
        let request = Request { now_ns: START + 40 * SECOND, interval_ns: SECOND, detail: Some(1) };
        let detail = live.snapshot(&request).detail.unwrap();
        let expected: Vec<(u64, u64)> = begins.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let expected = &expected[expected.len().saturating_sub(60)..];
        prop_assert_eq!(detail.steps.len(), expected.len());
        let paused: BTreeSet<u64> = pauses.iter().flat_map(|(begin, length, _)| *begin..begin + length).collect();
        for (step, (begin, end)) in detail.steps.iter().zip(expected) {
            prop_assert_eq!((step.begin_ns, step.duration_ns), (START + begin * MS, (end - begin) * MS));
            let time = paused.range(begin..end).count() as u64;
            let begun = pauses.iter().filter(|pause| (*begin..*end).contains(&pause.0)).count() as u64;
            prop_assert_eq!(step.pauses.time_ns, time * MS);
            prop_assert_eq!(step.pauses.count, begun.max(u64::from(time > 0)));
        }
    }
}

#[test]
fn a_pause_of_three_seconds_is_in_all_of_them() {
    let live = fed([
        process(1, 0, "generational"),
        Record::Pause(pause(1, 1500, 4500)),
    ]);
    let snapshot = at(&live, 5000, 1000);
    let figures = only(&snapshot);
    assert_eq!(figures.history_ns, [0, 500 * MS, SECOND, SECOND, 500 * MS]);
    assert_eq!(figures.interval_pauses, [1, 0, 0, 0]);
    assert_eq!(figures.interval_pause_ns, 500 * MS);
    assert_eq!(figures.paused_ns, 3 * SECOND);
    assert_eq!(figures.share_ppm, 3_000_000 * 10 / 52);
    let long = &snapshot.long_pauses[0];
    assert_eq!(long.begin_unix_ns, header().started_unix_ns + 1500 * MS);
}

#[test]
fn an_id_that_comes_again_is_another_process() {
    let mut live = fed([
        process(1, 0, "generational"),
        Record::Pause(pause(1, 100, 150)),
        exit(1, 1000),
        process(1, 2000, "free-threaded"),
        Record::Pause(pause(1, 2100, 2110)),
        // Of the first, told late.
        Record::Pause(pause(1, 900, 920)),
    ]);
    let snapshot = at(&live, 3000, 1000);
    let [first, second] = snapshot.processes.as_slice() else {
        unreachable!("{snapshot:?}");
    };
    assert_eq!(first.collections.pause_ns[0], 70 * MS);
    assert_eq!(first.ended.as_ref().unwrap().code, Some(0));
    assert_eq!(second.collections.pause_ns[0], 10 * MS);
    assert_eq!(
        (first.interpreter.as_str(), second.interpreter.as_str()),
        ("", "t")
    );
    // Ten seconds later it is shown no more, and still counts.
    let snapshot = at(&live, 12_000, 1000);
    assert_eq!(only(&snapshot).since_ns, START + 2000 * MS);
    assert_eq!(snapshot.totals.collections.pauses[0], 3);
    assert_eq!((snapshot.totals.processes, snapshot.totals.ended), (2, 1));
    // Forgotten, and one more pause of it is told.
    live.record(&exit(1, 20_000));
    live.record(&process(2, 40_000, "generational"));
    live.record(&Record::Pause(pause(1, 19_900, 19_950)));
    let snapshot = at(&live, 41_000, 25_000);
    assert_eq!(only(&snapshot).pid, 2);
    assert_eq!(snapshot.totals.collections.pauses[0], 4);
    assert_eq!(snapshot.totals.interval_pause_ns, 50 * MS);
    assert_eq!((snapshot.totals.processes, snapshot.totals.ended), (3, 2));
}

#[test]
fn a_shell_is_not_shown_until_it_runs_python() {
    let Record::Process(python) = process(5, 100, "generational") else {
        unreachable!()
    };
    let shell = gctrace_event::Process {
        interpreter: None,
        command: vec!["sh".to_owned(), "-c".to_owned(), "python".to_owned()],
        since_ns: START,
        ..python.clone()
    };
    let mut live = fed([Record::Process(shell)]);
    assert!(at(&live, 1000, 1000).processes.is_empty());
    assert_eq!(at(&live, 1000, 1000).totals.processes, 0);
    live.record(&Record::Process(python));
    let snapshot = at(&live, 1000, 1000);
    assert_eq!(only(&snapshot).since_ns, START, "an exec ends no process");
    assert_eq!(only(&snapshot).command, "python");
    assert_eq!(snapshot.totals.processes, 1);
}

#[test]
fn pauses_of_unknown_processes_are_shown() {
    let live = fed([Record::Pause(pause(9, 500, 510))]);
    let snapshot = at(&live, 1000, 1000);
    assert_eq!(only(&snapshot).pid, 9);
    assert_eq!(only(&snapshot).interpreter, "");
    assert_eq!(only(&snapshot).share_ppm, 10_000_000 / 700);
}

#[test]
fn lines_are_the_programs_own_and_the_librarys_below() {
    let frame = |id, parent, file: &str, line| {
        Record::Frame(Frame {
            id,
            parent,
            function: format!("f{line}"),
            file: file.to_owned(),
            line: Some(line),
        })
    };
    let library = "/usr/lib/python3/dist-packages/torch/nn/module.py";
    let stack = |id, from, to| {
        Record::Pause(Pause {
            stack: id,
            ..pause(1, from, to)
        })
    };
    let live = fed([
        process(1, 0, "generational"),
        frame(1, None, "train.py", 10),
        frame(2, Some(1), library, 20),
        frame(3, Some(1), library, 30),
        frame(4, None, library, 40),
        stack(Some(2), 10, 15),
        stack(Some(3), 20, 40),
        stack(Some(1), 50, 60),
        stack(Some(4), 100, 101),
        stack(None, 200, 207),
        stack(Some(77), 300, 301),
    ]);
    let snapshot = live.snapshot(&Request {
        now_ns: START + SECOND,
        interval_ns: SECOND,
        detail: Some(1),
    });
    let detail = snapshot.detail.unwrap();
    let lines = detail.lines.iter();
    let lines: Vec<_> = lines
        .map(|line| {
            let below = line.below.as_ref().and_then(|below| below.line);
            (
                line.line.line,
                below,
                line.pauses.count,
                line.pauses.time_ns / MS,
            )
        })
        .collect();
    assert_eq!(lines, [(Some(10), Some(30), 3, 35), (Some(40), None, 1, 1)]);
    assert_eq!(
        (detail.other_lines.count, detail.other_lines.time_ns),
        (2, 8 * MS)
    );
    let long = &snapshot.long_pauses[0];
    assert_eq!(long.line.as_ref().unwrap().line, Some(10));
    assert_eq!(long.below.as_ref().unwrap().function, "f30");
}

#[test]
fn a_gpu_by_cuda_and_by_nvml_is_one_where_there_is_one() {
    let sample = |device, at_ms, percent, pid| {
        Record::GpuSample(GpuSample {
            device,
            at_ns: START + at_ms * MS,
            utilization_percent: Some(percent),
            memory_used_bytes: Some(5000),
            processes: Some(vec![GpuProcess {
                pid,
                memory_bytes: Some(1000),
            }]),
            ..GpuSample::default()
        })
    };
    let device = Record::GpuDevice(GpuDevice {
        index: 3,
        name: Some("NVIDIA H100".to_owned()),
        memory_total_bytes: Some(9000),
        ..GpuDevice::default()
    });
    let mut live = fed([
        process(1, 0, "generational"),
        device,
        sample(3, 100, 40, 1),
        sample(3, 500, 60, 1),
        op(1, 100, 200),
        op(1, 700, 750),
    ]);
    let request = Request {
        now_ns: START + SECOND + SETTLE_NS,
        interval_ns: SECOND,
        detail: Some(1),
    };
    let snapshot = live.snapshot(&request);
    let [gpu] = only(&snapshot).gpus.as_slice() else {
        unreachable!("{snapshot:?}");
    };
    assert_eq!(
        (gpu.device, gpu.by_nvml, gpu.nvml_index),
        (0, false, Some(3))
    );
    assert_eq!(gpu.memory_bytes, Some(1000));
    assert_eq!(gpu.busy.unwrap().total_idle_ns, 500 * MS);
    assert_eq!(snapshot.gpus[0].name.as_deref(), Some("NVIDIA H100"));
    assert_eq!(snapshot.gpus[0].utilization_percent, Some(60));
    let timeline = snapshot.detail.unwrap().timeline;
    let busy: Vec<_> = timeline
        .iter()
        .map(|cell| cell.gpu_busy_ns.map(|ns| ns / MS))
        .collect();
    let (none, idle) = (None, Some(0));
    assert_eq!(
        busy,
        [
            none,
            Some(100),
            idle,
            idle,
            idle,
            idle,
            idle,
            none,
            none,
            none
        ]
    );
    let used: Vec<_> = timeline
        .iter()
        .map(|cell| cell.gpu_utilization_percent)
        .collect();
    assert_eq!(used[0], None);
    assert_eq!(used[1..5], [Some(40); 4]);
    assert_eq!(used[5..], [Some(60); 5]);
    // A second one by NVML: which is CUDA's first is not known any more.
    live.record(&sample(0, 900, 10, 1));
    let snapshot = live.snapshot(&request);
    let told: Vec<_> = only(&snapshot)
        .gpus
        .iter()
        .map(|gpu| (gpu.device, gpu.by_nvml, gpu.busy.is_some()))
        .collect();
    assert_eq!(told, [(0, false, true), (0, true, false), (3, true, false)]);
    // It left the GPU.
    live.record(&sample(0, 950, 10, 2));
    live.record(&sample(3, 950, 10, 2));
    let snapshot = live.snapshot(&request);
    assert_eq!(only(&snapshot).gpus[0].nvml_index, None);
}

#[test]
fn settings_notes_and_the_profilers_steps() {
    let annotation = |name: &str, from: u64, to: u64| {
        Record::Annotation(Annotation {
            pid: 1,
            tid: 1,
            name: name.to_owned(),
            begin_ns: START + from * MS,
            end_ns: START + to * MS,
        })
    };
    let settings = |at, enabled, first| {
        Record::Settings(Settings {
            pid: 1,
            at_ns: START + at * MS,
            enabled,
            thresholds: [first, 10, 10],
        })
    };
    let mut live = fed([
        process(1, 0, "generational"),
        settings(20, Some(false), 5),
        settings(10, Some(true), 700),
        Record::Pause(pause(1, 150, 160)),
        annotation("ProfilerStep#1", 100, 200),
        annotation("ProfilerStep#two", 100, 200),
        annotation("forward", 100, 300),
        backward(1, 100, 120),
        backward(1, 500, 520),
        annotation("ProfilerStep#2", 200, 330),
        Record::Note(Note {
            pid: Some(1),
            at_ns: START,
            message: "Something.".to_owned(),
        }),
    ]);
    live.resident(1, 4096);
    live.resident(2, 4096);
    let snapshot = live.snapshot(&Request {
        now_ns: START + SECOND,
        interval_ns: SECOND,
        detail: Some(1),
    });
    assert_eq!(only(&snapshot).thresholds, Some([5, 10, 10]));
    assert_eq!(only(&snapshot).enabled, Some(false));
    assert_eq!(only(&snapshot).resident_bytes, Some(4096));
    assert_eq!(snapshot.notes[0].message, "Something.");
    let detail = snapshot.detail.unwrap();
    assert_eq!(detail.step_basis, "ProfilerStep");
    let steps: Vec<u64> = detail
        .steps
        .iter()
        .map(|step| step.duration_ns / MS)
        .collect();
    assert_eq!(steps, [100, 130]);
    assert_eq!(detail.steps[0].pauses.time_ns, 10 * MS);
}

#[test]
fn intervals_are_whole_buckets_of_what_was_recorded() {
    let live = live();
    assert_eq!(at(&live, 10_000, 250).interval_ns, 200 * MS);
    assert_eq!(at(&live, 10_000, 0).interval_ns, 100 * MS);
    assert_eq!(at(&live, 10_000, u64::MAX / MS).interval_ns, 10 * SECOND);
    assert_eq!(at(&live, 100_000, u64::MAX / MS).interval_ns, 60 * SECOND);
    assert_eq!(at(&live, 300, 1000).interval_ns, 300 * MS);
    let too_early = Request {
        now_ns: 0,
        interval_ns: 0,
        detail: Some(3),
    };
    assert_eq!(live.snapshot(&too_early).processes, []);
}

/// Times and ids that no clock and no kernel gives.
fn wild() -> impl Strategy<Value = Record> {
    let time = prop_oneof![Just(0), Just(u64::MAX), 0..SECOND * 100, any::<u64>()];
    let pid = prop_oneof![1u32..4, Just(u32::MAX)];
    (0u8..12, pid, time.clone(), time, any::<u64>()).prop_map(|(kind, pid, begin, end, value)| {
        let small = u32::try_from(value % 5).unwrap();
        match kind {
            0..3 => Record::Pause(Pause {
                begin_ns: begin,
                end_ns: end,
                generation: (value % 256) as u8,
                collected: Some(value),
                heap_objects: Some(value),
                stack: Some(pid),
                ..pause(pid, 0, 0)
            }),
            3 => Record::GpuOp(GpuOp {
                pid: Some(pid),
                device: value as u32,
                stream: 0,
                kind: GpuOpKind::Memcpy,
                name: String::new(),
                begin_ns: begin,
                end_ns: end,
                correlation: None,
                bytes: None,
                collective: None,
            }),
            4 => Record::Step(Step {
                pid,
                tid: small,
                begin_ns: begin,
                end_ns: end,
            }),
            5 => Record::Annotation(Annotation {
                pid,
                tid: small,
                name: format!("ProfilerStep#{value}"),
                begin_ns: begin,
                end_ns: end,
            }),
            6 => Record::Frame(Frame {
                id: value as u32,
                parent: Some(pid),
                ..Frame::default()
            }),
            7 => Record::GpuSample(GpuSample {
                device: value as u32,
                at_ns: begin,
                utilization_percent: Some(value as u32),
                ..GpuSample::default()
            }),
            8 => Record::Pressure(gctrace_event::Pressure {
                pid,
                since_ns: begin,
                at_ns: end,
                net_containers: value,
                arenas_mapped: Some(value),
                arenas_unmapped: Some(end),
                ..Default::default()
            }),
            9 => Record::ProcessExit(gctrace_event::ProcessExit {
                pid,
                at_ns: begin,
                code: None,
                signal: Some(9),
            }),
            _ => {
                let Record::Process(known) = process(pid, 0, "generational") else {
                    unreachable!()
                };
                Record::Process(gctrace_event::Process {
                    since_ns: begin,
                    ..known
                })
            }
        }
    })
}

proptest! {
    #[test]
    fn no_record_is_too_wild(
        records in prop::collection::vec(wild(), 0..60),
        now_ns in any::<u64>(),
        interval_ns in any::<u64>(),
    ) {
        let live = fed(records.iter().cloned());
        let snapshot = live.snapshot(&Request { now_ns, interval_ns, detail: Some(1) });
        let pauses = records.iter().filter(|record| matches!(record, Record::Pause(_))).count();
        prop_assert_eq!(snapshot.totals.collections.pauses.iter().sum::<u64>(), pauses as u64);
    }
}
