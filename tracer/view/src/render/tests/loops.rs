//! The first screen of a service.

use super::reports::{MS, START, end, pause, process, report};
use crate::document::{self, Style};
use crate::render::first_screen;
use gctrace_event::{Frame, LoopPlace, Record, Turn, Turns};

/// A process with this command, and a loop with a turn that a collection takes.
fn with_loop(pid: u32, role: &str, call: &str, collected_ms: u64) -> Vec<Record> {
    let Record::Process(started) = process(pid, 0, "generational") else { unreachable!() };
    let command = ["python", "/app/engine.py", role].map(str::to_owned);
    let frame = Frame {
        id: pid,
        parent: None,
        file: "/app/engine.py".to_owned(),
        function: role.to_owned(),
        line: Some(pid),
    };
    let place = LoopPlace { call: call.to_owned(), argument: pid };
    let turns = Turns {
        pid,
        tid: pid,
        at_ns: START,
        until_ns: START + 1000 * MS,
        place: place.clone(),
        turns: 30,
        total_ns: 300 * MS,
        longest_ns: collected_ms * MS,
        waits: 30,
        waited_ns: 700 * MS,
        lengths: vec![(500, 30)],
        stack: Some(pid),
        ..Turns::default()
    };
    let turn = Turn {
        pid,
        tid: pid,
        start_ns: START + 500 * MS,
        end_ns: START + (500 + collected_ms) * MS,
        place,
        in_pauses_ns: collected_ms * MS,
        ..Turn::default()
    };
    vec![
        Record::Process(gctrace_event::Process { command: command.into(), ..started }),
        Record::Frame(frame),
        Record::Pause(pause(pid, 500, 500 + collected_ms)),
        Record::Turns(turns),
        Record::Turn(turn),
    ]
}

/// An engine whose API server waits for it, and which reads messages: its loop is shown beside the server's, with the
/// role of each.
#[test]
fn the_loop_of_the_judged_process_is_shown() {
    let mut records = with_loop(7, "api", "epoll_wait", 5);
    records.extend(with_loop(70, "core", "read", 80));
    let report = report(records, Some(end(1000)));
    let sections = first_screen(&report, &["t.json".to_owned()], Style::OF_FILES);
    let text = document::text(&sections, Style::OF_FILES);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "of process 70 (engine.py core), the worst of 2",
        "The loop of process 7 (engine.py api, epoll_wait at engine.py:7 in api)",
        "Between messages of process 70 (engine.py core, read at engine.py:70 in core)",
        "Its longest turn, 80.0 ms at 500 ms: 80.0 ms in a collection.",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
