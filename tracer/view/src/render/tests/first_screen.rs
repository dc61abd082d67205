//! The first screen and the verdict at the end of a recording.

use super::{PROBES, Trace, report, training, without_escapes};
use crate::document;
use crate::document::{Style, WIDTH};
use crate::render::first_screen::LINES;
use crate::render::{first_screen, verdict_lines};
use gctrace_analysis::report::Report;

/// The first screen, after checks that apply to every one.
pub(super) fn screen(report: &Report) -> String {
    let traces = ["trace.json".to_owned()];
    let shown = |style| document::text(&first_screen(report, &traces, style), style);
    let text = shown(Style::OF_FILES);
    assert!(text.lines().count() <= LINES, "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "too wide: {line}");
        assert_eq!(line, line.trim_end(), "blanks at the end: {line:?}");
    }
    let colored = shown(Style::COLORED);
    assert_eq!(without_escapes(&colored), text);
    assert!(verdict_lines(report).len() <= 5, "{:?}", verdict_lines(report));
    text
}

#[test]
fn a_training_without_known_steps() {
    let report = report(&[("trace.json", training())]);
    insta::assert_snapshot!(screen(&report) + "\n" + &verdict_lines(&report).join("\n"));
}

#[test]
fn steps_after_a_warm_up() {
    let mut trace =
        Trace::new().python(4242).pause(4242, 100.0, 400.0, 2, r#""reason":"automatic""#);
    let starts = [1000.0, 1900.0].into_iter().chain((0..20).map(|n| 2000.0 + f64::from(n) * 50.0));
    for (n, at_ms) in starts.enumerate() {
        trace = trace.backward(4242, at_ms);
        if n % 4 == 3 {
            trace = trace.pause(4242, at_ms + 10.0, 1.0 + n as f64, 1, r#""reason":"automatic""#);
        }
    }
    let trace = trace.pause(4242, 3500.0, 60.0, 2, r#""reason":"shutdown""#).end(4000, PROBES);
    insta::assert_snapshot!(screen(&report(&[("trace.json", trace.json())])));
}

#[test]
fn nothing_to_change() {
    let trace = Trace::new()
        .python(4242)
        .pause(4242, 10.0, 0.5, 0, r#""reason":"automatic","collected":3"#)
        .end(10_000, PROBES);
    insta::assert_snapshot!(screen(&report(&[("trace.json", trace.json())])));
}

/// What a program of a few ms shows says nothing of a longer run, whatever its share.
#[test]
fn a_run_that_is_too_short_to_judge() {
    let trace = Trace::new()
        .python(4242)
        .pause(4242, 7.0, 0.8, 2, r#""reason":"manual","collected":3"#)
        .end(10, PROBES);
    let report = report(&[("trace.json", trace.json())]);
    let text = screen(&report) + "\n" + &verdict_lines(&report).join("\n");
    assert!(!text.contains("is a problem") && !text.contains("saves"), "{text}");
    insta::assert_snapshot!(text);
    let without =
        Trace::new().python(1).pause(1, 1.0, 0.8, 0, r#""reason":"automatic""#).end(10, PROBES);
    let without = super::report(&[("trace.json", without.json())]);
    let sentence = &without.verdict.sentence;
    assert!(sentence.contains("too short"), "{sentence}");
    let none = Trace::new().python(1).end(10, PROBES);
    let none = super::report(&[("trace.json", none.json())]);
    assert!(!none.verdict.sentence.contains("too short"), "{}", none.verdict.sentence);
}

#[test]
fn no_collection() {
    let trace = Trace::new().process(1, "").end(1000, "");
    insta::assert_snapshot!(screen(&report(&[("trace.json", trace.json())])));
}

/// A process of 10 s with a pause of 200 ms, 2 s after its start and every 500 ms from then on, in a
/// stack: `stack` has its innermost frame by the time in ms. Frames: 1 `train.py:11`, which imports
/// torch (4); 5 `train.py:50`, which calls torchtitan (6).
fn with_stacks(stack: impl Fn(u32) -> u32) -> Report {
    let file = "/v/lib/python3.12/site-packages";
    let frames = [
        (1, "null", "/home/me/train.py".to_owned(), 11),
        (2, "1", "<frozen importlib._bootstrap>".to_owned(), 1178),
        (3, "2", "<frozen importlib._bootstrap_external>".to_owned(), 940),
        (4, "3", format!("{file}/torch/__init__.py"), 30),
        (5, "null", "/home/me/train.py".to_owned(), 50),
        (6, "5", format!("{file}/torchtitan/components/loss.py"), 7),
    ];
    let mut trace = Trace::new().python(1);
    for (id, parent, file, line) in frames {
        trace = trace.line(&format!(
            r#"{{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{{"id":{id},"parent":{parent},"function":"f","file":"{file}","line":{line}}}}}"#
        ));
    }
    for at_ms in (2_000..9_500).step_by(500) {
        let (ts, frame) = (5_000 + at_ms, stack(at_ms));
        trace = trace.line(&format!(
            r#"{{"ph":"X","cat":"gc","name":"gc","pid":1,"tid":1,"ts":{ts}000.000,"dur":200000.000,"sf":{frame},"args":{{"generation":2,"reason":"automatic","collected":0}}}}"#
        ));
    }
    report(&[("trace.json", trace.end(10_000, PROBES).json())])
}

#[test]
fn a_program_that_only_imports_has_a_problem_at_start_up_alone() {
    let report = with_stacks(|_| 4);
    assert_eq!(report.verdict.level, gctrace_analysis::report::Level::Heavy);
    assert!(report.verdict.sentence.contains("at start-up"), "{}", report.verdict.sentence);
    insta::assert_snapshot!(screen(&report));
    let lines = report.lines.unwrap();
    let line = &lines.own[0];
    assert_eq!((line.location.line, line.imports.as_deref()), (Some(11), Some("torch")));
    let frames: Vec<Option<u32>> = lines.stacks[0].frames.iter().map(|frame| frame.line).collect();
    assert_eq!(frames, [Some(30), Some(11)], "without the import system");
}

#[test]
fn the_lines_are_those_of_training_and_name_imports_in_it() {
    let imported_first = screen(&with_stacks(|at_ms| if at_ms < 5_000 { 4 } else { 6 }));
    assert!(!imported_first.contains("import torch"), "{imported_first}");
    let late = |at_ms| if at_ms == 7_000 { 4 } else { 6 };
    insta::assert_snapshot!(screen(&with_stacks(late)));
}

fn run(host: &str, started_unix_ns: u64) -> String {
    let trace = Trace::new().python(1).pause(1, 10.0, 5.0, 2, r#""reason":"automatic""#);
    let started = format!(r#""started_unix_ns":{started_unix_ns}"#);
    let json = trace.end(1000, PROBES).json();
    assert!(json.contains(r#""started_unix_ns":"#), "{json}");
    let start = json.find(r#""started_unix_ns":"#).unwrap();
    let end = start + json[start..].find([',', '}']).unwrap();
    let json = json[..start].to_owned() + &started + &json[end..];
    json.replace(r#""host":"box""#, &format!(r#""host":"{host}""#))
}

#[test]
fn separate_runs_have_no_common_verdict() {
    let day = 86_400_000_000_000;
    let report = report(&[("a.json", run("a", day)), ("b.json", run("b", 2 * day))]);
    let sentence = &report.verdict.sentence;
    assert!(sentence.contains("2 separate runs"), "{sentence}");
    assert!(!screen(&report).contains("Do this"));
}

#[test]
fn traces_of_one_run_overlap_in_time() {
    let day = 86_400_000_000_000;
    let report = report(&[("a.json", run("a", day)), ("b.json", run("b", day + 500_000_000))]);
    assert_eq!(report.runs, 1);
    assert_ne!(report.verdict.level, gctrace_analysis::report::Level::Unknown);
}
