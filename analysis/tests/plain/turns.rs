//! Loops and pools of a process, from the records of their turns.

use gctrace_analysis::report::{AdviceId, TrainingMark, TurnPart};
use gctrace_analysis::words;
use gctrace_analysis::words::samples::no_loop_in_short;
use gctrace_event::{
    CpuSamples, Frame, LoopPlace, OffCpu, OffCpuReason, ProcessExit, Record, THREAD_CALL, Turn,
    Turns, WORK_CALL,
};
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

fn off_cpu(at_ms: u64, for_ms: u64, reason: OffCpuReason, stack: u32) -> Record {
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

/// A loop, or a pool, whose longest turn is of 80 ms with this cause at a line; of a thread that executes another line.
fn advised_on(call: &str, cause: OffCpuReason, file: &str) -> Option<String> {
    let place = LoopPlace { call: call.to_owned(), argument: HANDLER };
    let Record::Turns(counted) = turns(PID, call, HANDLER) else { unreachable!() };
    let lengths = vec![(100, 29), (1200, 1)];
    let counted = Turns { turns: 30, place: place.clone(), lengths, ..counted };
    let turn = Turn {
        pid: PID,
        tid: PID,
        start_ns: START + 100 * MS,
        end_ns: START + 190 * MS,
        place,
        waits: vec![(cause, 80 * MS)],
        ..Turn::default()
    };
    let samples = CpuSamples {
        pid: PID,
        tid: 9,
        at_ns: START + 100 * MS,
        until_ns: START + 180 * MS,
        count: 8,
        file: None,
        in_pause: false,
        stack: Some(11),
    };
    let records = vec![
        process(PID, 0, "generational"),
        frame(LOOP, None, "/app/serve.py", "main"),
        frame(HANDLER, Some(LOOP), "/usr/lib/python3.12/queue.py", "Queue.get"),
        frame(WAIT, None, file, "wait"),
        frame(11, None, "/app/serve.py", "sort"),
        Record::Turns(counted),
        Record::Turn(turn),
        off_cpu(105, 80, cause, WAIT),
        Record::CpuSamples(samples),
        Record::Pause(pause(PID, 1, 2)),
    ];
    let advice = report(records, Some(end(1000))).advice.into_iter();
    let mut advice = advice.filter(|one| one.id == AdviceId::FreeLoop);
    advice.next().map(|one| one.action)
}

#[test]
fn each_cause_of_a_long_turn_has_its_change() {
    const APP: &str = "/app/serve.py";
    let part = "88.9 % of its longest turns (up to 90.0 ms), apart from collections,";
    let on_loop = |cause, file| advised_on("epoll_wait", cause, file);
    let sleeps =
        format!("do not wait in the loop at serve.py:4 in wait: {part} goes into sleeping there");
    assert_eq!(on_loop(OffCpuReason::Sleep, APP), Some(sleeps));
    let gil = "is waiting for the GIL while another thread executes that line";
    let gil = format!("run serve.py:11 in sort in another process: {part} {gil}");
    assert_eq!(on_loop(OffCpuReason::Gil, APP), Some(gil));
    let no_cpu = format!("give it more CPUs, or run less beside it: {part} is waiting for a CPU");
    assert_eq!(on_loop(OffCpuReason::Cpu, APP), Some(no_cpu));
    // Nobody changes the standard library; an installed package may be the program.
    assert_eq!(on_loop(OffCpuReason::Sleep, "/usr/lib/python3.12/asyncio/events.py"), None);
    let package = "/usr/lib/python3.12/site-packages/engine/core.py";
    assert!(on_loop(OffCpuReason::Sleep, package).is_some());
    // Work that threads take from a queue may wait; who knows for how long is told where.
    let part = "88.9 % of the threads' longest turns (up to 90.0 ms), apart from collections,";
    let in_pool = format!("wait less at serve.py:4 in wait: {part} goes into sleeping there");
    assert_eq!(advised_on(WORK_CALL, OffCpuReason::Sleep, APP), Some(in_pool));
    assert_eq!(advised_on(WORK_CALL, OffCpuReason::Cpu, APP), None);
}

/// The collections of the process whose loop is held up are judged, though another process spends more time in them;
/// unless the loop waits for that one.
#[test]
fn the_process_that_requests_wait_for_is_judged() {
    for (waits_for_it, judged) in [(false, PID), (true, 70)] {
        let mut records = waiting_loop(300);
        records.extend(sleeping(100, &[(21, 300)]));
        records.push(process(70, 0, "generational"));
        records.push(Record::Pause(pause(PID, 500, 515)));
        records.extend([600, 700, 800].map(|at_ms| Record::Pause(pause(70, at_ms, at_ms + 60))));
        if waits_for_it {
            records.push(Record::OffCpu(OffCpu {
                pid: PID,
                tid: PID,
                at_ns: START + 600 * MS,
                reason: OffCpuReason::Pipe,
                times: vec![(0, 60 * MS)],
                woken_by: Some(70),
                ..OffCpu::default()
            }));
        }
        let report = report(records, Some(end(1000)));
        assert_eq!(report.phases.as_ref().map(|phases| phases.pid), Some(judged));
    }
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

#[test]
fn a_loop_without_time_for_more_is_said() {
    let sentence = |total_ms: u64| {
        let Record::Turns(turns) = turns(PID, "epoll_wait", LOOP) else { unreachable!() };
        let (total_ns, waited_ns) = (total_ms * MS, (1000 - total_ms) * MS);
        let lengths = vec![(500, 30)];
        let longest_ns = 40 * MS;
        let turns = Turns { turns: 30, total_ns, waited_ns, lengths, longest_ns, ..turns };
        let frame = frame(LOOP, None, "/app/serve.py", "main");
        let records = vec![process(PID, 0, "generational"), frame, Record::Turns(turns)];
        words::turns::sentence(&report(records, Some(end(1000))))
    };
    let full = "The loop is busy 95.0 % of the time, so that requests queue up.";
    assert!(sentence(950).is_some_and(|said| said.ends_with(full)));
    assert!(sentence(500).is_none_or(|said| !said.contains("busy")));
}

/// A loop whose longest turn takes so many milliseconds.
fn waiting_loop(longest_ms: u64) -> Vec<Record> {
    let mut records = vec![
        process(PID, 0, "generational"),
        Record::Pause(pause(PID, 1, 2)),
        frame(LOOP, None, "/app/serve.py", "main"),
    ];
    let Record::Turns(turns) = turns(PID, "epoll_wait", LOOP) else { unreachable!() };
    records.push(Record::Turns(Turns {
        turns: 30,
        lengths: vec![(100, 30)],
        longest_ns: longest_ms * MS,
        ..turns
    }));
    for (id, function) in [(21, "a"), (22, "b"), (23, "c"), (24, "d")] {
        records.push(frame(id, Some(LOOP), "/app/serve.py", function));
    }
    records
}

/// A turn of the loop that sleeps at these lines, for so many milliseconds each.
fn sleeping(at_ms: u64, sleeps: &[(u32, u64)]) -> Vec<Record> {
    let for_ms: u64 = sleeps.iter().map(|(_, ms)| ms).sum();
    let turn = Turn {
        pid: PID,
        tid: PID,
        start_ns: START + at_ms * MS,
        end_ns: START + (at_ms + for_ms) * MS,
        place: LoopPlace { call: "epoll_wait".to_owned(), argument: LOOP },
        waits: vec![(OffCpuReason::Sleep, for_ms * MS)],
        ..Turn::default()
    };
    let mut records = vec![Record::Turn(turn)];
    let mut at_ms = at_ms;
    for (stack, ms) in sleeps {
        records.push(off_cpu(at_ms, *ms, OffCpuReason::Sleep, *stack));
        at_ms += ms;
    }
    records
}

/// The advice on such turns, one after the other.
fn advised(turns: &[&[(u32, u64)]]) -> Option<String> {
    let length_ms = |sleeps: &[(u32, u64)]| -> u64 { sleeps.iter().map(|(_, ms)| ms).sum() };
    let longest_ms = turns.iter().map(|sleeps| length_ms(sleeps)).max();
    let mut records = waiting_loop(longest_ms.unwrap_or(0));
    let mut at_ms = 10;
    for sleeps in turns {
        records.extend(sleeping(at_ms, sleeps));
        at_ms += length_ms(sleeps) + 10;
    }
    let report = report(records, Some(end(1000)));
    let advice = report.advice.into_iter().find(|one| one.id == AdviceId::FreeLoop);
    advice.map(|one| one.action)
}

#[test]
fn equal_causes_are_named_together() {
    let of = |causes: [&[(u32, u64)]; 3]| advised(&causes);
    let first = "do not wait in the loop at serve.py:21 in a";
    let both = "; as long: sleeping at serve.py:22 in b, sleeping at serve.py:23 in c (alone, this leaves turns of";
    // each in a turn of its own, and all in each
    let alone = of([&[(21, 31)], &[(22, 30)], &[(23, 29)]]);
    let share = "34.4 % of its longest turns (up to 31.0 ms), apart from collections, goes into sleeping there";
    assert_eq!(alone, Some(format!("{first}: {share}{both} 30.0 ms)")));
    let together = of([&[(21, 31), (22, 30), (23, 29)]; 3]);
    assert!(together.is_some_and(|action| action.ends_with(&format!("{both} 59.0 ms)"))));
    // What is shorter does not hold it as long.
    let one = of([&[(21, 50)], &[(22, 30)], &[(23, 29)]]);
    let action = one.filter(|action| action.starts_with(first));
    assert!(action.is_some_and(|action| !action.contains("as long")));
    let two = of([&[(21, 31)], &[(22, 30)], &[(23, 9)]]);
    let expected = "; as long: sleeping at serve.py:22 in b (alone, this leaves turns of 30.0 ms)";
    assert!(two.is_some_and(|action| action.ends_with(expected)));
    // Of equal ones that of the longest turn comes first, though another one has more time.
    let four: [&[(u32, u64)]; 6] =
        [&[(22, 30)], &[(22, 28)], &[(21, 31)], &[(21, 24)], &[(23, 29)], &[(24, 28)]];
    let action = advised(&four).filter(|action| action.starts_with(first));
    assert!(action.is_some_and(|action| action.contains("in c, 1 more (alone")));
}

/// Ten turns are listed; the eleventh is as long by another cause.
#[test]
fn an_equal_cause_behind_the_listed_turns_is_named() {
    let mut turns: Vec<&[(u32, u64)]> = vec![&[(21, 31)]; 12];
    turns.push(&[(22, 30)]);
    let named = "; as long: sleeping at serve.py:22 in b (alone, this leaves turns of 30.0 ms)";
    let action = advised(&turns).unwrap_or_default();
    assert!(action.ends_with(named), "{action}");
}

/// Each line that a turn waited at has its time; beyond three, the rest has no line.
#[test]
fn the_parts_of_a_turn_are_by_line() {
    let mut records = waiting_loop(100);
    records.extend(sleeping(10, &[(21, 40), (22, 30), (23, 20), (24, 10)]));
    let report = report(records, Some(end(1000)));
    let parts = report.loops[0].longest[0].parts.iter();
    let function = |part: &TurnPart| part.line.as_ref().map(|line| line.function.clone());
    let parts: Vec<_> = parts.map(|part| (function(part), part.time_ns / MS)).collect();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(parts, [(named("a"), 40), (named("b"), 30), (named("c"), 20), (None, 10)]);
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
