//! Whether memory grows: the section and the first screen.

use super::checked;
use super::first_screen::screen;
use gctrace_analysis::report::Report;
use gctrace_event::{AliveLines, Frame, Pressure, Record};
use test_kit::reports::{self, MS, START};

/// A service of an hour that keeps 100 texts of 300 bytes a second of one line.
fn growing_service() -> Report {
    const PID: u32 = 100;
    const EACH_MS: u64 = 20_000;
    let mut records = vec![
        reports::process(PID, 0, "generational"),
        Record::Frame(Frame {
            id: 1,
            parent: None,
            function: "remember".into(),
            file: "/srv/serve.py".into(),
            line: Some(41),
        }),
    ];
    for at_ms in (0..3_600_000).step_by(EACH_MS as usize) {
        let kept = at_ms / 10;
        let at_ns = START + at_ms * MS;
        let mut full = reports::pause(PID, at_ms, at_ms + 40);
        full.generation = 2;
        full.heap_objects = Some(300_000);
        records.push(Record::Pause(full));
        records.push(Record::AliveLines(AliveLines {
            pid: PID,
            at_ns: at_ns + 41 * MS,
            lines: vec![(1, kept, kept * 352)],
        }));
        records.push(Record::Pressure(Pressure {
            pid: PID,
            since_ns: at_ns,
            at_ns: at_ns + 50 * MS,
            resident_bytes: Some((1 << 30) + kept * 360),
            ..Pressure::default()
        }));
    }
    reports::report(records, Some(reports::end(3_600_000)))
}

#[test]
fn what_grows_has_its_line_of_birth() {
    let report = growing_service();
    let short = screen(&report).split_whitespace().collect::<Vec<_>>().join(" ");
    let grows = "Its resident memory keeps growing: 124 MiB per hour (inferred). Its fastest line of birth: \
                 /srv/serve.py:41 in remember.";
    assert!(short.contains(grows), "{short}");
    let whole = checked(&report);
    let text = whole.split_whitespace().collect::<Vec<_>>().join(" ");
    let born = "Born and alive, per hour, of a sample of all allocations: /srv/serve.py:41 in remember \
                (+360,000 objects and 121 MiB).";
    assert!(text.contains(born), "{text}");
    // In 80 columns no figure is cut.
    let heads: Vec<&str> = whole.lines().filter(|line| line.contains("95 %  ")).collect();
    assert!(!heads.is_empty() && heads.iter().all(|head| head.ends_with(" after")), "{text}");
    // Texts are no objects of the collector, but Python's.
    assert!(!text.contains("outside Python"), "{text}");
}
