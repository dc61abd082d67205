//! Processes, lines, GPUs and steps in the live view.

use crate::live_feed;

use gctrace_analysis::live::{SETTLE_NS, SnapshotRequest};
use gctrace_analysis::report::StepSource;
use gctrace_event::{
    Annotation, Frame, GcSettings, GpuDevice, GpuProcess, GpuSample, Note, Pause, Record,
};
use live_feed::{SECOND, at, backward, fed, live, only, op};
use test_kit::reports::{MS, START, exit, header, pause, process};

#[test]
fn a_pause_of_three_seconds_is_in_all_of_them() {
    let live = fed([process(1, 0, "generational"), Record::Pause(pause(1, 1500, 4500))]);
    let snapshot = at(&live, 5000, 1000);
    let figures = only(&snapshot);
    assert_eq!(figures.history_ns, [0, 500 * MS, SECOND, SECOND, 500 * MS]);
    assert_eq!(figures.interval_pauses, [1, 0, 0, 0]);
    assert_eq!(figures.interval_pause_ns, 500 * MS);
    assert_eq!(figures.paused_ns, 3 * SECOND);
    assert_eq!(figures.share_ppm, 3_000_000 * 10 / 52);
    let long = &snapshot.long_pauses[0];
    assert_eq!(long.start_unix_ns, header().started_unix_ns + 1500 * MS);
}

#[test]
fn an_id_that_comes_again_is_another_process() {
    let mut live = fed([
        process(1, 0, "generational"),
        Record::Pause(pause(1, 100, 150)),
        exit(1, 1000),
        process(1, 2000, "free-threaded"),
        Record::Pause(pause(1, 2100, 2110)),
        // Of the first process, received late.
        Record::Pause(pause(1, 900, 920)),
    ]);
    let snapshot = at(&live, 3000, 1000);
    let [first, second] = snapshot.processes.as_slice() else {
        unreachable!("{snapshot:?}");
    };
    assert_eq!(first.collections.pause_ns[0], 70 * MS);
    assert_eq!(first.ended.as_ref().unwrap().code, Some(0));
    assert_eq!(second.collections.pause_ns[0], 10 * MS);
    assert_eq!((first.interpreter.as_str(), second.interpreter.as_str()), ("", "t"));
    // Ten seconds later it is shown no more, and still counts.
    let snapshot = at(&live, 12_000, 1000);
    assert_eq!(only(&snapshot).since_ns, START + 2000 * MS);
    assert_eq!(snapshot.totals.collections.pauses[0], 3);
    assert_eq!((snapshot.totals.processes, snapshot.totals.ended), (2, 1));
    // Dropped, and one more pause of it is received.
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
    let Record::Process(python) = process(5, 100, "generational") else { unreachable!() };
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
    let stack = |id, from, to| Record::Pause(Pause { stack: id, ..pause(1, from, to) });
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
    let snapshot = live.snapshot(&SnapshotRequest {
        now_ns: START + SECOND,
        interval_ns: SECOND,
        detail: Some(1),
    });
    let detail = snapshot.detail.unwrap();
    let lines = detail.lines.iter();
    let lines: Vec<_> = lines
        .map(|line| {
            let below = line.below.as_ref().and_then(|below| below.line);
            (line.line.line, below, line.pauses.count, line.pauses.time_ns / MS)
        })
        .collect();
    assert_eq!(lines, [(Some(10), Some(30), 3, 35), (Some(40), None, 1, 1)]);
    assert_eq!((detail.other_lines.count, detail.other_lines.time_ns), (2, 8 * MS));
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
            processes: Some(vec![GpuProcess { pid, memory_bytes: Some(1000) }]),
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
    let request = SnapshotRequest {
        now_ns: START + SECOND + SETTLE_NS,
        interval_ns: SECOND,
        detail: Some(1),
    };
    let snapshot = live.snapshot(&request);
    let [gpu] = only(&snapshot).gpus.as_slice() else {
        unreachable!("{snapshot:?}");
    };
    assert_eq!((gpu.device, gpu.by_nvml, gpu.nvml_index), (0, false, Some(3)));
    assert_eq!(gpu.memory_bytes, Some(1000));
    assert_eq!(gpu.busy.unwrap().total_idle_ns, 500 * MS);
    assert_eq!(snapshot.gpus[0].name.as_deref(), Some("NVIDIA H100"));
    assert_eq!(snapshot.gpus[0].utilization_percent, Some(60));
    let timeline = snapshot.detail.unwrap().timeline;
    let busy: Vec<_> = timeline.iter().map(|cell| cell.gpu_busy_ns.map(|ns| ns / MS)).collect();
    let (none, idle) = (None, Some(0));
    assert_eq!(busy, [none, Some(100), idle, idle, idle, idle, idle, none, none, none]);
    let used: Vec<_> = timeline.iter().map(|cell| cell.gpu_utilization_percent).collect();
    assert_eq!(used[0], None);
    assert_eq!(used[1..5], [Some(40); 4]);
    assert_eq!(used[5..], [Some(60); 5]);
    // A second one by NVML: which is CUDA's first is now unknown.
    live.record(&sample(0, 900, 10, 1));
    let snapshot = live.snapshot(&request);
    let reported: Vec<_> = only(&snapshot)
        .gpus
        .iter()
        .map(|gpu| (gpu.device, gpu.by_nvml, gpu.busy.is_some()))
        .collect();
    assert_eq!(reported, [(0, false, true), (0, true, false), (3, true, false)]);
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
            start_ns: START + from * MS,
            end_ns: START + to * MS,
        })
    };
    let settings = |at, enabled, first| {
        Record::Settings(GcSettings {
            pid: 1,
            at_ns: START + at * MS,
            enabled,
            thresholds: [first, 10, 10],
            stack: None,
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
        Record::Note(Note { pid: Some(1), at_ns: START, message: "Something.".to_owned() }),
    ]);
    live.resident(1, 1, 4096);
    live.resident(2, 1, 4096);
    let snapshot = live.snapshot(&SnapshotRequest {
        now_ns: START + SECOND,
        interval_ns: SECOND,
        detail: Some(1),
    });
    assert_eq!(only(&snapshot).thresholds, Some([5, 10, 10]));
    assert_eq!(only(&snapshot).enabled, Some(false));
    assert_eq!(only(&snapshot).resident_bytes, Some(4096));
    assert_eq!(snapshot.notes[0].message, "Something.");
    let detail = snapshot.detail.unwrap();
    assert_eq!(detail.step_basis, Some(StepSource::ProfilerStep));
    let steps: Vec<u64> = detail.steps.iter().map(|step| step.duration_ns / MS).collect();
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
    let too_early = SnapshotRequest { now_ns: 0, interval_ns: 0, detail: Some(3) };
    assert_eq!(live.snapshot(&too_early).processes, []);
}

#[test]
fn processes_are_forgotten_when_there_are_too_many() {
    const ALL: u32 = 10_000;
    let mut live = live();
    for pid in 1..=ALL {
        live.record(&process(pid, u64::from(pid), "generational"));
        let at = u64::from(pid);
        live.record(&Record::Pause(pause(pid, at, at + 2)));
    }
    // This one was forgotten; it goes on.
    live.record(&Record::Pause(pause(1, 10_000, 10_002)));
    let snapshot = at(&live, 10_100, 200);
    assert!(snapshot.processes.len() <= 4096, "{}", snapshot.processes.len());
    assert!(snapshot.processes.iter().any(|process| process.pid == ALL));
    assert!(snapshot.processes.iter().any(|process| process.pid == 1));
    assert_eq!(snapshot.totals.collections.pauses[0], u64::from(ALL) + 1);
    assert_eq!(snapshot.totals.interval_pauses[0], 104);
    assert_eq!(snapshot.notes.len(), 1);
}

#[test]
fn many_that_end_at_once_are_not_lost() {
    let mut live = live();
    for n in 0..5000u64 {
        let pid = 1 + (n % 2000) as u32;
        live.record(&process(pid, n, "generational"));
        live.record(&Record::Pause(pause(pid, n, n + 1)));
        live.record(&exit(pid, n + 1));
        // Received late, of a process that may have been dropped.
        live.record(&Record::Pause(pause(pid, n, n + 1)));
    }
    let snapshot = at(&live, 5100, 1000);
    assert_eq!(snapshot.totals.collections.pauses[0], 10_000);
    assert_eq!((snapshot.totals.processes, snapshot.totals.ended), (5000, 5000));
    assert_eq!(snapshot.processes.len(), 512);
    assert_eq!(snapshot.totals.interval_pause_ns, 2 * 900 * MS);
}
