//! What holds up a loop: the verdict and the advice, from the records of turns and waits.

use super::turns::{HANDLER, LOOP, PID, WAIT, frame, off_cpu, turns};
use gctrace_analysis::report::{AdviceId, TurnPart};
use gctrace_analysis::words;
use gctrace_event::{CpuSamples, LoopPlace, OffCpu, OffCpuReason, Record, Turn, Turns, WORK_CALL};
use test_kit::reports::{MS, START, end, pause, process, report};

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
    // A change in the standard library is none; a package in site-packages may be the program.
    assert_eq!(on_loop(OffCpuReason::Sleep, "/usr/lib/python3.12/asyncio/events.py"), None);
    let package = "/usr/lib/python3.12/site-packages/engine/core.py";
    assert!(on_loop(OffCpuReason::Sleep, package).is_some());
    // A pool's work may wait by design: the advice names the line.
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
