//! Loops and pools of a process, from the records of their turns.

use gctrace_analysis::report::TrainingMark;
use gctrace_analysis::words::samples::no_loop_in_short;
use gctrace_event::{
    Frame, LoopPlace, OffCpu, OffCpuReason, ProcessExit, Record, THREAD_CALL, Turn, Turns,
    WORK_CALL,
};
use test_kit::reports::{MS, START, end, pause, process, report};

pub(super) const PID: u32 = 7;
pub(super) const LOOP: u32 = 1;
/// The handler calls `Queue.get`, which calls `Condition.wait`.
pub(super) const HANDLER: u32 = 2;
const GET: u32 = 3;
pub(super) const WAIT: u32 = 4;

pub(super) fn frame(id: u32, parent: Option<u32>, file: &str, function: &str) -> Record {
    let (file, function) = (file.to_owned(), function.to_owned());
    Record::Frame(Frame { id, parent, file, function, line: Some(id) })
}

pub(super) fn turns(tid: u32, call: &str, stack: u32) -> Record {
    Record::Turns(Turns {
        pid: PID,
        tid,
        at_ns: START,
        until_ns: START + 1000 * MS,
        place: LoopPlace { call: call.to_owned(), argument: stack },
        turns: 15,
        total_ns: 300 * MS,
        longest_ns: 90 * MS,
        waits: 15,
        waited_ns: 700 * MS,
        lengths: vec![(500, 14), (1200, 1)],
        stack: Some(stack),
        ..Turns::default()
    })
}

/// A thread for each request, started by the server; threads that native code starts, and ones that live as long as the
/// program, are no requests.
#[test]
fn each_thread_that_is_started_for_a_request_is_a_turn() {
    let Record::Turns(lives) = turns(PID, THREAD_CALL, HANDLER) else { unreachable!() };
    let threading = "/usr/lib/python3.12/threading.py";
    for (file, total_ns, found) in
        [(threading, 900 * MS, 1), ("/app/blas.py", 900 * MS, 0), (threading, 30_000 * MS, 0)]
    {
        let lives = Turns { turns: 30, lengths: vec![(100, 30)], total_ns, ..lives.clone() };
        let turn = Turn {
            pid: PID,
            tid: 31,
            start_ns: START + 400 * MS,
            end_ns: START + 490 * MS,
            place: lives.place.clone(),
            waits: vec![(OffCpuReason::Sleep, 80 * MS)],
            ..Turn::default()
        };
        let records = vec![
            process(PID, 0, "generational"),
            frame(LOOP, None, "/app/serve.py", "main"),
            frame(HANDLER, Some(LOOP), file, "Thread.start"),
            Record::Turns(lives),
            Record::Turn(turn),
        ];
        let report = report(records, Some(end(1000)));
        assert_eq!(report.loops.len(), found, "{file} {total_ns}");
        if let [of] = report.loops.as_slice() {
            assert_eq!((of.turns, of.longest[0].length_ns), (30, 90 * MS));
            assert_eq!(of.line.as_ref().map(|line| line.function.as_str()), Some("main"));
            assert_eq!(of.figures.lag_p99_ns, None, "each request has a thread of its own");
        }
    }
}

/// Who writes a log in the background is no service.
#[test]
fn a_thread_that_does_little_is_no_service() {
    let Record::Turns(busy) = turns(8, WORK_CALL, HANDLER) else { unreachable!() };
    for (total_ns, is_service) in [(300 * MS, true), (9 * MS, false)] {
        let turns = Turns { turns: 30, lengths: vec![(100, 30)], total_ns, ..busy.clone() };
        let frames = frame(HANDLER, None, "/usr/lib/python3.12/queue.py", "Queue.get");
        let records = vec![process(PID, 0, "generational"), frames, Record::Turns(turns)];
        let report = report(records, Some(end(1000)));
        assert_eq!(report.loops.len(), 1);
        assert_eq!(report.service_loop().is_some(), is_service);
    }
}

/// Two threads that wait for work at one line are one pool; a loop of the same process stays apart.
#[test]
fn threads_that_take_work_at_one_line_are_a_pool() {
    let library = "/usr/lib/python3.12/";
    let turn = Turn {
        pid: PID,
        tid: 9,
        start_ns: START + 400 * MS,
        end_ns: START + 490 * MS,
        place: LoopPlace { call: WORK_CALL.to_owned(), argument: WAIT },
        waits: vec![(OffCpuReason::Sleep, 80 * MS)],
        ..Turn::default()
    };
    let report = report(
        vec![
            process(PID, 0, "generational"),
            frame(LOOP, None, "/app/serve.py", "main"),
            frame(HANDLER, None, "/app/serve.py", "handle"),
            frame(GET, Some(HANDLER), &format!("{library}queue.py"), "Queue.get"),
            frame(WAIT, Some(GET), &format!("{library}threading.py"), "Condition.wait"),
            Record::Pause(pause(PID, 100, 120)),
            turns(PID, "epoll_wait", LOOP),
            turns(PID, "epoll_wait", LOOP),
            turns(8, WORK_CALL, WAIT),
            turns(9, WORK_CALL, WAIT),
            Record::Turn(turn),
        ],
        Some(end(1000)),
    );
    let [service, pool] = report.loops.as_slice() else { panic!("{:?}", report.loops) };
    assert_eq!((service.call.as_str(), service.threads, service.turns), ("epoll_wait", 1, 30));
    assert_eq!((pool.call.as_str(), pool.threads, pool.turns), (WORK_CALL, 2, 30));
    assert_eq!(pool.line.as_ref().map(|line| line.function.as_str()), Some("handle"));
    assert_eq!(pool.longest.len(), 1);
    assert_eq!(pool.longest[0].length_ns, 90 * MS);
    assert!(service.figures.lag_p99_ns.is_some());
    assert_eq!(pool.figures.lag_p99_ns, None, "any free thread takes what arrives");
}

/// A wait for a queue in a handler holds up the loop; one at the loop itself, which more frames do not lead to, is idle.
#[test]
fn a_queue_that_a_handler_waits_for_holds_up_the_loop() {
    const SELECT: u32 = 5;
    for (waits_in, length_ms) in [(HANDLER, 90), (LOOP, 50)] {
        let turn = Turn {
            pid: PID,
            tid: PID,
            start_ns: START + 400 * MS,
            end_ns: START + 490 * MS,
            place: LoopPlace { call: "epoll_wait".to_owned(), argument: SELECT },
            waits: vec![(OffCpuReason::Lock, 40 * MS)],
            ..Turn::default()
        };
        let wait = OffCpu {
            pid: PID,
            tid: PID,
            at_ns: START + 440 * MS,
            reason: OffCpuReason::Lock,
            times: vec![(0, 40 * MS)],
            stack: Some(GET),
            ..OffCpu::default()
        };
        let report = report(
            vec![
                process(PID, 0, "generational"),
                frame(LOOP, None, "/app/serve.py", "main"),
                frame(
                    SELECT,
                    Some(LOOP),
                    "/usr/lib/python3.12/selectors.py",
                    "EpollSelector.select",
                ),
                frame(9, Some(LOOP), "/app/serve.py", "step"),
                frame(HANDLER, Some(9), "/app/serve.py", "handle"),
                frame(GET, Some(waits_in), "/usr/lib/python3.12/queue.py", "Queue.get"),
                turns(PID, "epoll_wait", SELECT),
                turns(PID, "epoll_wait", SELECT),
                Record::OffCpu(wait),
                Record::Turn(turn),
            ],
            Some(end(1000)),
        );
        assert_eq!(report.loops[0].longest[0].length_ns, length_ms * MS, "in {waits_in}");
    }
}

/// The busiest of several loops comes first, a ticker of the main thread after it.
#[test]
fn a_service_in_another_thread_is_found() {
    let Record::Turns(service) = turns(8, "epoll_wait", HANDLER) else { unreachable!() };
    let service = Turns { turns: 30, lengths: vec![(100, 30)], ..service };
    let ticker = Turns { tid: PID, total_ns: MS, waited_ns: 999 * MS, ..service.clone() };
    let idle = Turns { tid: 9, ..ticker.clone() };
    let records = vec![
        process(PID, 0, "generational"),
        frame(HANDLER, None, "/app/serve.py", "serve"),
        Record::Turns(ticker),
        Record::Turns(idle),
        Record::Turns(service),
    ];
    let report = report(records, Some(end(1000)));
    let tids: Vec<u32> = report.loops.iter().map(|of| of.tid).collect();
    assert_eq!(tids, [8, PID], "the idle one of another thread is left out");
}

/// A thread for each connection, which reads its requests.
#[test]
fn threads_that_read_their_connections_are_one_unit() {
    let records = vec![
        process(PID, 0, "generational"),
        frame(LOOP, None, "/app/serve.py", "main"),
        frame(HANDLER, None, "/app/serve.py", "handle"),
        turns(PID, "accept4", LOOP),
        turns(PID, "accept4", LOOP),
        turns(8, "recvfrom", HANDLER),
        turns(9, "recvfrom", HANDLER),
    ];
    let report = report(records, Some(end(1000)));
    let [accepts, reads] = report.loops.as_slice() else { panic!("{:?}", report.loops) };
    assert_eq!((accepts.call.as_str(), accepts.threads), ("accept4", 1));
    assert_eq!((reads.call.as_str(), reads.threads, reads.turns), ("recvfrom", 2, 30));
    assert_eq!(reads.turns_per_s.map(f64::round), Some(30.0));
}

/// Who waits for a reply while the other process collects waits for it, once with two threads; who is idle and gets a
/// request later does not.
#[test]
fn only_waits_that_collections_took_most_of_are_for_them() {
    let wait = |tid: u32, from_ms: u64, length_ms: u64| {
        Record::OffCpu(OffCpu {
            pid: PID,
            tid,
            at_ns: START + from_ms * MS,
            reason: OffCpuReason::Poll,
            times: vec![(0, length_ms * MS)],
            woken_by: Some(70),
            ..OffCpu::default()
        })
    };
    let records = vec![
        process(PID, 0, "generational"),
        process(70, 0, "generational"),
        Record::Pause(pause(70, 100, 180)),
        Record::Pause(pause(70, 400, 480)),
        wait(PID, 95, 90),
        wait(8, 96, 89),
        wait(PID, 200, 700),
    ];
    let report = report(records, Some(end(1000)));
    let [found] = report.waits_for_processes.as_slice() else {
        panic!("{:?}", report.waits_for_processes)
    };
    assert_eq!((found.waits, found.in_collections_ns), (1, 80 * MS));
    assert_eq!((found.longest_ns, found.longest_in_collection_ns), (90 * MS, 80 * MS));
}

pub(super) fn off_cpu(at_ms: u64, for_ms: u64, reason: OffCpuReason, stack: u32) -> Record {
    Record::OffCpu(OffCpu {
        pid: PID,
        tid: PID,
        at_ns: START + at_ms * MS,
        reason,
        times: vec![(0, for_ms * MS)],
        woken_by: None,
        in_pause: false,
        stack: Some(stack),
    })
}

/// What an engine loads before it reads its first message is start-up, as what a service loads.
#[test]
fn start_up_ends_with_the_first_message() {
    let Record::Turns(reads) = turns(PID, "read", LOOP) else { unreachable!() };
    let reads = Turns { turns: 30, lengths: vec![(100, 30)], waited_ns: 200 * MS, ..reads };
    let records = vec![
        process(PID, 0, "generational"),
        frame(LOOP, None, "/app/engine.py", "core"),
        Record::Pause(pause(PID, 100, 400)),
        Record::Pause(pause(PID, 700, 710)),
        Record::Turns(reads),
    ];
    let phases = report(records, Some(end(1000))).phases.unwrap();
    assert_eq!(phases.training_by, TrainingMark::Loop);
    assert_eq!((phases.start_up.pauses.count, phases.training.pauses.count), (1, 1));
}

/// What the report says instead of a loop, of a main thread that waits at this line for so many milliseconds of 6 s.
fn no_loop(reason: OffCpuReason, for_ms: u64, more: Vec<Record>) -> Option<String> {
    let mut records = vec![
        process(PID, 0, "generational"),
        Record::Pause(pause(PID, 1, 2)),
        frame(LOOP, None, "/app/serve.py", "main"),
        off_cpu(10, for_ms, reason, LOOP),
    ];
    records.extend(more);
    no_loop_in_short(&report(records, Some(end(6000))))
}

#[test]
fn a_main_thread_that_waits_without_a_loop_is_named() {
    let named = "No loop found: the main thread spends 75.0 % of its time waiting for a pipe or socket at serve.py:1 in main \
                 (1 wait, a loop takes 20).";
    assert_eq!(no_loop(OffCpuReason::Pipe, 4500, Vec::new()).as_deref(), Some(named));
    assert!(no_loop(OffCpuReason::Sleep, 4500, Vec::new()).is_some());
    // It computes, or is late for a CPU.
    assert_eq!(no_loop(OffCpuReason::Pipe, 2900, Vec::new()), None);
    assert_eq!(no_loop(OffCpuReason::Cpu, 4500, Vec::new()), None);
    // A service does not end by itself.
    let ended = |code, signal| {
        Record::ProcessExit(ProcessExit { pid: PID, at_ns: START + 6000 * MS, code, signal })
    };
    assert_eq!(no_loop(OffCpuReason::Pipe, 4500, vec![ended(Some(0), None)]), None);
    assert!(no_loop(OffCpuReason::Pipe, 4500, vec![ended(None, Some(15))]).is_some());
    let early = ProcessExit { at_ns: START + 4900 * MS, pid: PID, code: None, signal: Some(9) };
    assert_eq!(no_loop(OffCpuReason::Pipe, 4500, vec![Record::ProcessExit(early)]), None);
    // a loop of another thread
    let Record::Turns(of_other) = turns(8, "epoll_wait", LOOP) else { unreachable!() };
    let of_other = Turns { turns: 30, lengths: vec![(100, 30)], total_ns: 6000 * MS, ..of_other };
    assert_eq!(no_loop(OffCpuReason::Pipe, 4500, vec![Record::Turns(of_other)]), None);
}
