//! Samples of what threads execute, in the report.

use gctrace_analysis::report::{AdviceId, Report};
use gctrace_analysis::words::samples::samples_in_short;
use gctrace_event::{
    CpuSamples, Frame, Interpreter, OffCpu, OffCpuReason, Pause, Process, ProcessOrigin, Record,
};
use test_kit::reports::{MS, START, end, exit, pause, process, report};

/// A process of 10 s without pauses, sampled 100 times a second: 6 s in a library's function that `train.py:41`
/// calls, 1 s of it in collections, 3 s in a native thread.
fn sampled(count: u64) -> Report {
    let frame = |id, parent, file: &str, function: &str, line| {
        Record::Frame(Frame {
            id,
            parent,
            function: function.to_owned(),
            file: file.to_owned(),
            line: Some(line),
        })
    };
    let samples = |tid, at_ms, count, stack, file: &str, in_pause| {
        Record::CpuSamples(CpuSamples {
            pid: 1,
            tid,
            at_ns: START + at_ms * MS,
            until_ns: START + (at_ms + 900) * MS,
            count,
            file: Some(file.to_owned()),
            in_pause,
            stack,
        })
    };
    let library = "/usr/lib/python3.12/site-packages/torch/nn.py";
    let records = vec![
        process(1, 0, "generational"),
        frame(1, None, "/srv/train.py", "step", 41),
        frame(2, Some(1), library, "linear", 7),
        samples(1, 100, 5 * count, Some(2), "libtorch_cpu.so", false),
        samples(1, 2_000, count, Some(2), "python3.12", true),
        samples(2, 3_000, 3 * count, None, "libgomp.so.1", false),
        exit(1, 10_000),
    ];
    report(records, Some(end(10_000)))
}

#[test]
fn lines_of_the_program_have_those_of_what_they_call() {
    let report = sampled(100);
    let [cpu] = &report.cpu[..] else { panic!("{:?}", report.cpu) };
    assert_eq!((cpu.samples, cpu.in_pauses, cpu.threads, cpu.busiest_thread), (900, 100, 2, 600));
    assert_eq!(cpu.observed_ns, 10_000 * MS);
    let lines: Vec<_> = cpu
        .lines
        .iter()
        .map(|of| (of.line.as_ref().map(|line| line.function.as_str()), of.samples))
        .collect();
    assert_eq!(lines, [(Some("step"), 600), (None, 300)]);
    let files: Vec<_> =
        cpu.files.iter().map(|of| (of.file.as_deref().unwrap_or_default(), of.samples)).collect();
    assert_eq!(files, [("libtorch_cpu.so", 500), ("libgomp.so.1", 300), ("python3.12", 100)]);
    let sentence = samples_in_short(&report);
    assert_eq!(
        sentence.as_deref(),
        Some(
            "CPU time, 9.00 s by samples, busiest thread 60.0 % busy: 66.7 % at train.py:41 in step, 33.3 % outside of Python, \
             55.6 % of all in libtorch_cpu.so, 11.1 % in collections."
        )
    );
}

#[test]
fn few_samples_have_no_shares() {
    let report = sampled(10);
    assert_eq!(report.cpu[0].samples, 90);
    assert_eq!(samples_in_short(&report), None);
}

/// A trainer of 10 s: 4 s on the CPU, 3 s in which it waits for its worker, 1 s for the GIL, 0.5 s asleep.
/// The worker decodes for 2 of the 3 s and sleeps for one, and collects before.
#[test]
fn waits_name_what_others_did_meanwhile() {
    let frame = |id, parent, file: &str, function: &str, line| {
        Record::Frame(Frame {
            id,
            parent,
            function: function.to_owned(),
            file: file.to_owned(),
            line: Some(line),
        })
    };
    let ran = |(pid, tid), at_ms, for_ms: u64, stack| {
        Record::CpuSamples(CpuSamples {
            pid,
            tid,
            at_ns: START + at_ms * MS,
            until_ns: START + (at_ms + for_ms) * MS,
            count: for_ms / 10,
            file: None,
            in_pause: false,
            stack: Some(stack),
        })
    };
    let waited = |pid, at_ms, times: &[(u64, u64)], reason, stack| {
        let times = times.iter().map(|(after, length)| (after * MS, length * MS));
        Record::OffCpu(OffCpu {
            pid,
            tid: pid,
            at_ns: START + at_ms * MS,
            reason,
            times: times.collect(),
            woken_by: None,
            in_pause: false,
            stack,
        })
    };
    let loader = "/usr/lib/python3.12/site-packages/torch/utils/data/dataloader.py";
    let worker = match process(2, 0, "generational") {
        Record::Process(process) => Record::Process(Process { parent: Some(1), ..process }),
        other => panic!("{other:?}"),
    };
    let records = vec![
        process(1, 0, "generational"),
        worker,
        frame(1, None, "/srv/train.py", "main", 30),
        frame(2, Some(1), loader, "_next_data", 1400),
        frame(3, Some(1), "/srv/train.py", "step", 41),
        frame(4, None, "/srv/dataset.py", "decode", 9),
        frame(5, None, "/srv/dataset.py", "fetch", 12),
        frame(6, None, "/srv/log.py", "write", 5),
        frame(7, Some(3), "/usr/lib/python3.12/site-packages/torch/nn.py", "linear", 7),
        ran((1, 1), 0, 3_000, 7),
        ran((1, 1), 3_000, 1_000, 3),
        // Its own decoding while the trainer computes is not asked for.
        ran((2, 2), 0, 4_000, 4),
        waited(1, 4_000, &[(0, 1_000), (1_000, 2_000)], OffCpuReason::Poll, Some(2)),
        ran((2, 2), 4_000, 2_000, 4),
        waited(2, 6_000, &[(0, 1_500)], OffCpuReason::Sleep, Some(5)),
        waited(1, 7_000, &[(0, 1_000)], OffCpuReason::Gil, Some(3)),
        ran((1, 7), 7_000, 1_000, 6),
        waited(1, 8_000, &[(0, 500)], OffCpuReason::Sleep, Some(1)),
        exit(1, 10_000),
        exit(2, 10_000),
    ];
    let report = report(records, Some(end(10_000)));
    let trainer = report.cpu.iter().find(|cpu| cpu.pid == 1).expect("it was sampled");
    let main = trainer.main_thread.as_ref().expect("times off the CPU");
    assert_eq!((main.samples, main.off_cpu_ns), (400, 4_500 * MS));
    let longest = &main.off_cpu[0];
    let line = longest.line.as_ref().map(|line| (line.function.as_str(), line.line));
    assert_eq!(
        (longest.for_data, longest.time_ns, line),
        (true, 3_000 * MS, Some(("main", Some(30))))
    );
    let workers = main.workers.as_ref().expect("a child was seen");
    assert_eq!((workers.others, workers.waited_ns), (1, 3_000 * MS));
    assert_eq!((workers.cpu_ns / MS, workers.off_cpu_ns), (2_000, 1_000 * MS));
    let holder = main.gil.as_ref().expect("another thread ran");
    assert_eq!((holder.others, holder.cpu_ns.div_ceil(MS)), (1, 1_000));
    assert_eq!(
        samples_in_short(&report).as_deref(),
        Some(
            "Main thread of process 1, 10.0 s in all: 40.0 % on a CPU (30.0 % in torch, 40.0 % at train.py:41 in step), 30.0 % waiting for data \
             at train.py:30 in main (meanwhile its worker: 66.7 % running at dataset.py:9 in decode, 33.3 % sleeping at \
             dataset.py:12 in fetch), 10.0 % waiting for the GIL at train.py:41 in step (meanwhile another thread ran at \
             log.py:5 in write), 5.00 % sleeping at train.py:30 in main, 15.0 % off it for less than 1 ms at a time, 0 % in collections."
        )
    );
}

/// A process that waits for all of its time, so that no sample meets it.
#[test]
fn waits_need_no_samples() {
    let records = vec![
        process(1, 0, "generational"),
        Record::Frame(Frame {
            id: 1,
            parent: None,
            function: "serve".to_owned(),
            file: "/srv/serve.py".to_owned(),
            line: Some(8),
        }),
        Record::OffCpu(OffCpu {
            pid: 1,
            tid: 1,
            at_ns: START + 500 * MS,
            reason: OffCpuReason::Poll,
            times: vec![(0, 9_000 * MS)],
            woken_by: None,
            in_pause: false,
            stack: Some(1),
        }),
        exit(1, 10_000),
    ];
    let report = report(records, Some(end(10_000)));
    let [cpu] = &report.cpu[..] else { panic!("{:?}", report.cpu) };
    assert_eq!((cpu.samples, cpu.threads), (0, 0));
    assert_eq!(
        samples_in_short(&report).as_deref(),
        Some(
            "Main thread, 10.0 s in all: 0 % on a CPU, 90.0 % waiting for input (poll) at serve.py:8 in serve, 10.0 % off it for less than 1 ms at a time, 0 % in collections."
        )
    );
}

/// A parent that waits, and collects once, and its worker, of which the verdict is.
#[test]
fn the_main_thread_is_that_of_the_judged_process() {
    let samples = |pid, count| {
        Record::CpuSamples(CpuSamples {
            pid,
            tid: pid,
            at_ns: START,
            until_ns: START + 5_000 * MS,
            count,
            file: None,
            in_pause: false,
            stack: None,
        })
    };
    let said = |worker| {
        let mut records = vec![
            process(1, 0, "generational"),
            process(2, 0, "generational"),
            Record::Pause(pause(1, 10, 11)),
        ];
        records.extend((1..50).map(|at| Record::Pause(pause(2, at * 100, at * 100 + 10))));
        records.extend([samples(1, 500), samples(2, worker)]);
        samples_in_short(&report(records, Some(end(10_000))))
    };
    let of_worker = said(400);
    assert!(of_worker.as_ref().is_some_and(|text| text.contains("process 2")), "{of_worker:?}");
    assert_eq!(said(0), None, "of another process there is none");
}

/// Collections that free nothing that CPython counts; one of ten samples in them stands on the code of a generator.
#[test]
fn one_sample_of_a_finalizer_keeps_the_collector() {
    let advised = |stack| {
        let frame = |id, parent, function: &str| {
            let (function, file) = (function.to_owned(), "/srv/train.py".to_owned());
            Record::Frame(Frame { id, parent, function, file, line: Some(id) })
        };
        let samples = |at_ms, count, stack| {
            let (at_ns, until_ns) = (START + at_ms * MS, START + (at_ms + 90) * MS);
            let in_pause = true;
            let (pid, tid, file, stack) = (1, 1, None, Some(stack));
            Record::CpuSamples(CpuSamples {
                pid,
                tid,
                at_ns,
                until_ns,
                count,
                file,
                in_pause,
                stack,
            })
        };
        let Record::Process(of) = process(1, 0, "generational") else { panic!("a process") };
        let version = "3.12.1".to_owned();
        let interpreter = of.interpreter.map(|interpreter| Interpreter { version, ..interpreter });
        let mut records = vec![
            Record::Process(Process { interpreter, origin: ProcessOrigin::Launched, ..of }),
            frame(1, None, "main"),
            frame(2, Some(1), "run"),
        ];
        records.extend((1..50).map(|at| {
            let (collected, stack) = (Some(0), Some(1));
            Record::Pause(Pause { collected, stack, ..pause(1, at * 100, at * 100 + 20) })
        }));
        records.extend([samples(1_000, 9, 1), samples(2_000, 1, stack), exit(1, 10_000)]);
        report(records, Some(end(10_000))).advice.iter().map(|advice| advice.id).collect::<Vec<_>>()
    };
    assert!(advised(1).contains(&AdviceId::Disable), "{:?}", advised(1));
    assert!(!advised(2).contains(&AdviceId::Disable), "{:?}", advised(2));
}
