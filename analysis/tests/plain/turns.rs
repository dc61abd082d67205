//! Loops and pools of a process, from the records of their turns.

use gctrace_event::{Frame, LoopPlace, OffCpuReason, Record, THREAD_CALL, Turn, Turns, WORK_CALL};
use test_kit::reports::{MS, START, end, pause, process, report};

const PID: u32 = 7;
const LOOP: u32 = 1;
/// The handler calls `Queue.get`, which calls `Condition.wait`.
const HANDLER: u32 = 2;
const GET: u32 = 3;
const WAIT: u32 = 4;

fn frame(id: u32, parent: Option<u32>, file: &str, function: &str) -> Record {
    let (file, function) = (file.to_owned(), function.to_owned());
    Record::Frame(Frame { id, parent, file, function, line: Some(id) })
}

fn turns(tid: u32, call: &str, stack: u32) -> Record {
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
