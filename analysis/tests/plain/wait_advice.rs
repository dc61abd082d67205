//! Advice on what training's main thread waits for, of planted traces.

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{Advice, AdviceId, Report};
use gctrace_event::read::{DecodedItem, TraceCompletion};
use gctrace_event::{
    CpuSamples, Frame, NamedMarker, OffCpu, OffCpuReason, Process, Record, StepMark, TraceHeader,
};
use test_kit::reports::{MS, START, end, exit, header, pause, process};

/// Steps of training, of 10 ms each.
const STEPS: u64 = 1_000;
/// Frames: training that waits in a DataLoader, its own code, what loads, and that in PyTorch's fetch.
const WAITS: u32 = 2;
const STEP: u32 = 3;
const LOADS: u32 = 4;
const FETCHES: u32 = 6;

fn frame(id: u32, parent: Option<u32>, file: &str, function: &str, line: u32) -> Record {
    let (file, function) = (file.to_owned(), function.to_owned());
    Record::Frame(Frame { id, parent, function, file, line: Some(line) })
}

fn ran((pid, tid): (u32, u32), at_ms: u64, for_ms: u64, stack: u32) -> Record {
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
}

fn waited(pid: u32, at_ms: u64, for_ms: u64, reason: OffCpuReason, stack: u32) -> Record {
    Record::OffCpu(OffCpu {
        pid,
        tid: pid,
        at_ns: START + at_ms * MS,
        reason,
        times: vec![(0, for_ms * MS)],
        woken_by: None,
        in_pause: false,
        stack: Some(stack),
    })
}

/// A trainer, process 1, of 10 s of training, with this number of workers, of which `did` is added.
fn trained(cpus: Option<u32>, workers: u32, did: Vec<Record>) -> Report {
    let library = "/usr/lib/python3.12/site-packages/torch/utils/data";
    let mut records = vec![
        process(1, 0, "generational"),
        frame(1, None, "/srv/train.py", "main", 30),
        frame(WAITS, Some(1), &format!("{library}/dataloader.py"), "_next_data", 1400),
        frame(STEP, Some(1), "/srv/train.py", "step", 41),
        frame(LOADS, None, "/srv/dataset.py", "decode", 9),
        frame(5, Some(WAITS), &format!("{library}/_utils/fetch.py"), "fetch", 50),
        frame(FETCHES, Some(5), "/srv/dataset.py", "decode", 9),
        Record::Pause(pause(1, 1, 2)),
    ];
    for worker in 0..workers {
        if let Record::Process(process) = process(2 + worker, 0, "generational") {
            records.push(Record::Process(Process { parent: Some(1), ..process }));
        }
    }
    records.extend((0..=STEPS).map(|step| {
        let at_ns = START + (10 + step * 10) * MS;
        let marker = NamedMarker::Function("step".into());
        Record::Step(StepMark {
            pid: 1,
            tid: 1,
            marker,
            start_ns: at_ns,
            end_ns: at_ns,
            cpu_ns: None,
        })
    }));
    records.extend(did);
    records.push(exit(1, 10_020));
    let mut analysis = Analysis::default();
    analysis.begin_trace("t.json");
    analysis.add(DecodedItem::Header(Box::new(TraceHeader { cpus, ..header() })));
    records.push(Record::End(end(10_020)));
    records.into_iter().for_each(|record| analysis.add(DecodedItem::Record(record)));
    analysis.end_trace(TraceCompletion::default(), None);
    analysis.settle();
    analysis.report()
}

/// Process 1 waits for data for 6 s, each of its two workers meanwhile does this.
fn two_workers(cpus: u32, did: impl Fn(u32) -> Vec<Record>) -> Report {
    let mut records =
        vec![ran((1, 1), 10, 4_000, STEP), waited(1, 4_010, 6_000, OffCpuReason::Poll, WAITS)];
    records.extend([2, 3].into_iter().flat_map(did));
    trained(Some(cpus), 2, records)
}

/// The first advice, if it is about waits.
fn first(report: &Report) -> Option<&Advice> {
    report.advice.first().filter(|advice| advice.id.is_of_waits())
}

#[track_caller]
fn assert_action(report: &Report, id: AdviceId, action: &str) {
    let advice = first(report).map(|advice| (advice.id, advice.action.as_str()));
    assert_eq!(advice, Some((id, action)), "{:?}", report.advice);
}

#[test]
fn busy_workers_ask_for_more_where_there_are_cpus() {
    let busy = |worker| vec![ran((worker, worker), 4_010, 6_000, LOADS)];
    assert_action(
        &two_workers(16, busy),
        AdviceId::FasterData,
        "More workers (5 instead of 2), or make dataset.py:9 in decode faster: each worker runs there for \
         100 % of the 6.00 s that training waits for data.",
    );
    assert_action(
        &two_workers(4, busy),
        AdviceId::FasterData,
        "More workers (4 instead of 2 on 4 CPUs), or make dataset.py:9 in decode faster: each worker runs \
         there for 100 % of the 6.00 s that training waits for data.",
    );
    assert_action(
        &two_workers(2, busy),
        AdviceId::FasterData,
        "Make dataset.py:9 in decode faster, or use more CPUs; more workers do not help: 2 workers and \
         training run on 2 CPUs.",
    );
}

#[test]
fn workers_that_wait_for_a_cpu_ask_for_no_more() {
    let report = two_workers(16, |worker| {
        vec![
            ran((worker, worker), 4_010, 3_000, LOADS),
            waited(worker, 7_010, 3_000, OffCpuReason::Cpu, LOADS),
        ]
    });
    assert_action(
        &report,
        AdviceId::FasterData,
        "Make dataset.py:9 in decode faster, or use more CPUs; more workers do not help: each worker waits \
         for a CPU for 50.0 % of the 6.00 s that training waits for data.",
    );
}

#[test]
fn what_workers_wait_for_is_named() {
    let report =
        two_workers(16, |worker| vec![waited(worker, 4_010, 6_000, OffCpuReason::Disk, LOADS)]);
    assert_action(
        &report,
        AdviceId::FasterData,
        "Cache what dataset.py:9 in decode reads, or use faster storage: each worker is waiting for the \
         disk there for 100 % of the 6.00 s that training waits for data.",
    );
    // A connection leaves the CPUs free.
    let report =
        two_workers(2, |worker| vec![waited(worker, 4_010, 6_000, OffCpuReason::Pipe, LOADS)]);
    assert_action(
        &report,
        AdviceId::FasterData,
        "More workers (5 instead of 2), or wait less at dataset.py:9 in decode: each worker is waiting for a \
         pipe or socket there for 100 % of the 6.00 s that training waits for data.",
    );
}

#[test]
fn one_busy_worker_of_several_shares_nothing() {
    let report = two_workers(16, |worker| match worker {
        2 => vec![ran((2, 2), 4_010, 5_000, LOADS)],
        _ => vec![waited(worker, 4_010, 6_000, OffCpuReason::Pipe, WAITS)],
    });
    assert_action(
        &report,
        AdviceId::FasterData,
        "Make dataset.py:9 in decode faster: each worker runs there for 41.7 % of the 6.00 s that training \
         waits for data.",
    );
}

#[test]
fn nothing_is_advised_where_the_cause_is_not_seen() {
    let idle = |worker| vec![waited(worker, 4_010, 6_000, OffCpuReason::Pipe, WAITS)];
    let report = two_workers(16, idle);
    assert!(first(&report).is_none() && report.waits_for_data(), "{:?}", report.advice);
    let report = two_workers(16, |_| Vec::new());
    assert!(first(&report).is_none() && report.waits_for_data(), "{:?}", report.advice);
    // A tenth is not reached.
    let little =
        vec![waited(1, 4_010, 900, OffCpuReason::Poll, WAITS), ran((2, 2), 4_010, 900, LOADS)];
    let report = trained(Some(16), 1, little);
    assert!(first(&report).is_none() && !report.waits_for_data(), "{:?}", report.advice);
}

#[test]
fn without_workers_the_line_that_loads_is_named() {
    let loads = || {
        vec![
            ran((1, 1), 10, 4_000, STEP),
            ran((1, 1), 4_010, 5_000, FETCHES),
            waited(1, 9_010, 1_000, OffCpuReason::Disk, FETCHES),
        ]
    };
    assert_action(
        &trained(Some(16), 0, loads()),
        AdviceId::FasterData,
        "Load in 2 workers (DataLoader), or make dataset.py:9 in decode faster: training's main thread loads \
         its data itself, 6.00 s, 6.00 s of it there.",
    );
    assert_action(
        &trained(Some(1), 0, loads()),
        AdviceId::FasterData,
        "Make dataset.py:9 in decode faster: training's main thread loads its data itself, 6.00 s, 6.00 s of \
         it there.",
    );
    let thread =
        vec![waited(1, 4_010, 6_000, OffCpuReason::Lock, WAITS), ran((1, 7), 4_010, 5_000, LOADS)];
    assert_action(
        &trained(Some(16), 0, thread),
        AdviceId::FasterData,
        "Make dataset.py:9 in decode faster, or run it in worker processes: another thread runs it for \
         83.3 % of the 6.00 s that training waits for data.",
    );
}

#[test]
fn a_thread_that_has_the_gil_is_named() {
    let report = trained(
        Some(16),
        0,
        vec![waited(1, 4_010, 3_000, OffCpuReason::Gil, STEP), ran((1, 7), 4_010, 3_000, LOADS)],
    );
    assert_action(
        &report,
        AdviceId::FreeGil,
        "Run dataset.py:9 in decode in another process: another thread runs it for 100 % of the 3.00 s that \
         training waits for the GIL.",
    );
}

/// Process 1 waits for a lock at this place 20 times, 100 ms each; thread 7 does this before each release, after it
/// slept with the lock for 80 ms; thread 8 sleeps all the time, 30 ms at once.
fn waits_for_locks(place: u32) -> Report {
    let waited_by =
        |tid, at_ms, for_ms, reason, stack| match waited(1, at_ms, for_ms, reason, stack) {
            Record::OffCpu(off) => Record::OffCpu(OffCpu { tid, ..off }),
            other => other,
        };
    let mut did = vec![frame(30, None, "/usr/lib/python3.12/threading.py", "join", 1147)];
    for wait in 0..20 {
        let at_ms = 2_000 + wait * 200;
        did.push(waited_by(7, at_ms + 10, 85, OffCpuReason::Sleep, LOADS));
        did.push(waited(1, at_ms, 100, OffCpuReason::Lock, place));
    }
    did.extend((0..200).map(|at| waited_by(8, 2_000 + at * 31, 30, OffCpuReason::Sleep, WAITS)));
    trained(Some(2), 0, did)
}

#[test]
fn the_thread_that_has_a_lock_is_named() {
    assert_action(
        &waits_for_locks(STEP),
        AdviceId::FreeLock,
        "Hold the lock for less time at dataset.py:9 in decode: another thread is sleeping there for 85.0 % of the \
         2.00 s that training waits for it at train.py:41 in step.",
    );
    // A thread that is joined holds no lock back.
    let joins = waits_for_locks(30);
    assert!(first(&joins).is_none(), "{:?}", joins.advice);
}

#[test]
fn training_without_a_cpu_is_seen() {
    let waits_for = |reason| {
        let wait = waited(1, 4_010, 3_000, reason, STEP);
        trained(Some(2), 0, vec![ran((1, 1), 10, 4_000, STEP), wait]).waits_for_cpu()
    };
    assert!(waits_for(OffCpuReason::Cpu) && !waits_for(OffCpuReason::Disk));
}

/// A worker's stack has the frames of the trainer that forked it.
#[test]
fn a_forked_worker_that_waits_for_a_connection_has_work() {
    let forked = vec![
        frame(20, Some(WAITS), "/usr/lib/python3.12/multiprocessing/popen_fork.py", "_launch", 71),
        frame(21, Some(20), "/srv/dataset.py", "request", 5),
        ran((1, 1), 10, 4_000, STEP),
        waited(1, 4_010, 6_000, OffCpuReason::Poll, WAITS),
        waited(2, 4_010, 6_000, OffCpuReason::Poll, 21),
    ];
    let report = trained(Some(2), 1, forked);
    let trainer = report.cpu.iter().find(|cpu| cpu.pid == 1).expect("it was sampled");
    let main = trainer.main_thread.as_ref().expect("times off the CPU");
    assert!(!main.workers.as_ref().expect("a child").off_cpu[0].for_data, "{main:?}");
    assert!(
        first(&report).expect("it waits").action.contains("input (poll)"),
        "{:?}",
        report.advice
    );
}
