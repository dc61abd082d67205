//! Snapshots of the text for small traces, and its agreement with the JSON.

mod cause;
mod causes;
mod first_screen;
mod garbage;
mod gpu_work;
mod gpus;
mod leaks;
mod loops;
mod modes;
mod ranks;
mod words;

use super::full;
use crate::document;
use crate::document::{Style, WIDTH};
use crate::print::clean;
use gctrace_analysis::Analysis;
use gctrace_analysis::report::Report;
use gctrace_event::read::{EventReader, TraceCompletion, TraceInput, TraceReader};
use std::io::Cursor;
use test_kit::reports;

fn full_text(report: &Report, style: Style) -> String {
    document::text(&full(report), style)
}

/// Builds a trace like a recording; times are in milliseconds after its start.
struct Trace {
    lines: Vec<String>,
}

impl Trace {
    fn new() -> Self {
        let header = concat!(
            r#"{"ph":"M","name":"gctrace_header","pid":0,"tid":0,"ts":5000000.000,"args":{"format":"#,
            r#""gctrace.trace/1","gctrace":"0.1.0","command":["python","train.py"],"host":"box","#,
            r#""kernel":"6.18","cpus":8,"started_ns":5000000000,"#,
            r#""started_unix_ns":1700000000000000000,"min_pause_ns":0,"follow":true}}"#
        );
        Self { lines: vec![header.to_owned()] }
    }

    /// Sets the mode of the recording.
    fn mode(mut self, mode: &str) -> Self {
        for line in &mut self.lines {
            *line = line.replace(r#""follow":true"#, &format!(r#""follow":true,"mode":"{mode}""#));
        }
        self
    }

    fn process(mut self, pid: u32, extra: &str) -> Self {
        self.lines.push(format!(
            r#"{{"ph":"M","name":"gctrace_process","pid":{pid},"tid":{pid},"ts":5000000.000,"args":{{"origin":"launched","command":["/usr/bin/python3","train.py","--epochs","3"]{extra}}}}}"#
        ));
        self
    }

    fn python(self, pid: u32) -> Self {
        self.process(
            pid,
            r#","interpreter":{"file":"/usr/bin/python3","version":"3.12.1","free_threaded":false,"collector":"generational","found_by":"symbol table"}"#,
        )
        .line(&format!(
            r#"{{"ph":"M","name":"gctrace_settings","pid":{pid},"tid":{pid},"ts":5000000.000,"args":{{"enabled":true,"thresholds":[700,10,10]}}}}"#
        ))
        .line(&format!(
            r#"{{"ph":"M","name":"thread_name","pid":{pid},"tid":{pid},"args":{{"name":"MainThread"}}}}"#
        ))
    }

    fn pause(self, pid: u32, at_ms: f64, length_ms: f64, generation: u8, args: &str) -> Self {
        let ts = 5_000_000.0 + at_ms * 1000.0;
        self.line(&format!(
            r#"{{"ph":"X","cat":"gc","name":"gc gen{generation}","pid":{pid},"tid":{pid},"ts":{ts:.3},"dur":{:.3},"args":{{"generation":{generation},{args}}}}}"#,
            length_ms * 1000.0
        ))
    }

    fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    fn end(self, at_ms: u64, args: &str) -> Self {
        let ts = 5_000_000 + at_ms * 1000;
        let processes = if args.contains("processes") {
            ""
        } else {
            r#","processes":{"python":1,"other":0,"unexamined":{}}"#
        };
        self.line(&format!(
            r#"{{"ph":"M","name":"gctrace_end","pid":0,"tid":0,"ts":{ts}.000,"args":{{"ended_ns":0,"why":"the command ended","exit_code":0{processes}{args}}}}}"#
        ))
    }

    fn json(&self) -> String {
        format!("{{\"traceEvents\":[{}\n]}}\n", self.lines.join(",\n"))
    }
}

fn report(traces: &[(&str, String)]) -> Report {
    let mut analysis = Analysis::default();
    for (name, json) in traces {
        let input = TraceInput::new(name, Cursor::new(json.clone().into_bytes())).unwrap();
        let reader = TraceReader::new(EventReader::new(input));
        reports::read(&mut analysis, name, reader).unwrap();
    }
    super::report(&mut analysis)
}

/// The text, after checks that apply to every report.
fn plain(traces: &[(&str, String)]) -> String {
    checked(&report(traces))
}

fn checked(report: &Report) -> String {
    let text = full_text(report, Style::OF_FILES);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "too wide: {line}");
        assert_eq!(line, line.trim_end(), "blanks at the end: {line:?}");
    }
    let colored = full_text(report, Style::COLORED);
    assert_ne!(colored, text);
    assert_eq!(without_escapes(&colored), text);
    text
}

fn without_escapes(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').unwrap().1)
}

const PROBES: &str = r#","probes":[{"probe":"gc entry","hits":9,"ns_per_hit":640.0,"ns_per_hit_range":[320.0,1280.0]},{"probe":"gc return","hits":9,"ns_per_hit":480.0},{"probe":"program stopped","hits":1,"ns_per_hit":31000000.0}],"cpu_ns":1000000"#;

/// Full collections that grow with the heap and free nothing, with young ones in between.
fn training() -> String {
    let mut trace = Trace::new().python(4242);
    for n in 0..6u32 {
        let at = f64::from(n) * 1000.0;
        let objects = 1_000_000 + n * 500_000;
        trace = trace
            .pause(4242, at + 1.0, 0.8, 0, r#""reason":"automatic","collected":120"#)
            .pause(4242, at + 200.0, 2.5, 1, r#""reason":"automatic","collected":0"#)
            .pause(
                4242,
                at + 500.0,
                f64::from(objects) / 10_000.0,
                2,
                &format!(
                    r#""reason":"automatic","collected":0,"uncollectable":0,"cpu_ns":120000000,"oldest_objects":{objects}"#
                ),
            );
    }
    trace
        .pause(
            4242,
            6500.0,
            250.0,
            2,
            r#""reason":"manual","collected":17,"oldest_objects":4000000"#,
        )
        .pause(4242, 6900.0, 20.0, 2, r#""reason":"shutdown","collected":50000"#)
        .end(7000, PROBES)
        .json()
}

#[test]
fn a_training_with_growing_pauses() {
    insta::assert_snapshot!(plain(&[("trace.json", training())]));
}

#[test]
fn nothing_to_worry_about() {
    let trace = Trace::new()
        .python(4242)
        .pause(4242, 10.0, 0.5, 0, r#""reason":"automatic","collected":3"#)
        .end(10_000, PROBES);
    insta::assert_snapshot!(plain(&[("trace.json", trace.json())]));
}

#[test]
fn no_collection_at_all() {
    let trace = Trace::new().process(1, "").end(1000, "");
    insta::assert_snapshot!(plain(&[("trace.json", trace.json())]));
}

/// "Nothing was lost" is reported only if every process was examined.
#[test]
fn what_is_missing_is_said() {
    let rendered = |processes: &str| {
        let end = format!(r#","processes":{processes}"#);
        let trace = Trace::new().process(1, "").end(1000, &end);
        plain(&[("trace.json", trace.json())]).replace("\n  ", " ")
    };
    let complete = rendered(r#"{"python":0,"other":1,"unexamined":{}}"#);
    assert!(complete.contains("No garbage collection ran"), "{complete}");
    assert!(complete.contains("Nothing was lost."), "{complete}");
    let inject = rendered(r#"{"python":0,"unexamined":{}}"#);
    assert!(inject.contains("No event was lost."), "{inject}");
    let doubtful =
        rendered(r#"{"python":0,"other":1,"unexamined":{"ended before being examined":3}}"#);
    assert!(
        doubtful.contains("3 processes ended before being examined: the figures exclude"),
        "{doubtful}"
    );
    let old = rendered("null");
    assert!(old.contains("No loss is recorded."), "{old}");
    for text in [inject, doubtful, old] {
        assert!(!text.contains("Nothing was lost"), "{text}");
        assert!(!text.contains("No garbage collection ran"), "{text}");
    }
}

#[test]
fn free_threaded() {
    let args =
        r#""reason":"automatic","collected":10,"stop_the_world_ns":40000000,"heap_objects":500000"#;
    let trace = Trace::new()
        .process(
            7,
            r#","interpreter":{"version":"3.14.3t","free_threaded":true,"collector":"free-threaded"}"#,
        )
        .pause(7, 10.0, 60.0, 0, args)
        .pause(7, 200.0, 60.0, 0, args)
        .pause(7, 400.0, 60.0, 0, args)
        .end(1000, PROBES);
    insta::assert_snapshot!(plain(&[("trace.json", trace.json())]));
}

#[test]
fn several_traces_with_much_missing() {
    let whole = Trace::new()
        .python(10)
        .pause(10, 10.0, 30.0, 2, r#""reason":"manual","collected":0"#)
        .line(r#"{"ph":"i","s":"p","cat":"gctrace","name":"gctrace_note","pid":10,"tid":10,"ts":5000001.000,"args":{"message":"USDT probes used"}}"#)
        .end(
            1000,
            r#","lost":{"ring buffer full":12},"omitted":{"count":5,"total_ns":1000000},"omitted_others":{"called":{"count":7,"total_ns":2000000},"samples":{"count":9,"total_ns":0},"layers":{"count":1,"total_ns":0},"note":{"count":2,"total_ns":0}}"#,
        );
    let mut cut = Trace::new()
        .python(11)
        .pause(11, 10.0, 50.0, 2, r#""reason":"automatic","collected":"x""#)
        .pause(11, 100.0, 5.0, 0, r#""reason":"automatic","unfinished":true"#)
        .pause(11, 200.0, 5.0, 0, r#""reason":"automatic""#)
        .json();
    cut.truncate(cut.len() - 20);
    let foreign = r#"[{"ph":"X","cat":"python_function","name":"Python GC","pid":3,"tid":4,"ts":1,"dur":5000},
        {"ph":"X","name":"work","pid":3,"tid":3,"ts":0,"dur":100000}]"#;
    insta::assert_snapshot!(plain(&[
        ("rank0.json", whole.json()),
        ("rank1.json", cut),
        ("torch.json", foreign.to_owned()),
    ]));
}

/// A trace in which everything that a program can name has this name, with pauses of every kind that
/// reports and advice mention.
fn named(name: &str) -> String {
    let name = serde_json::to_string(name).unwrap();
    let mut trace = Trace::new()
        .line(&format!(
            r#"{{"ph":"M","name":"gctrace_header","pid":0,"tid":0,"ts":5000000.000,"args":{{"format":"gctrace.trace/1","gctrace":{name},"command":[{name},{name}],"host":{name},"kernel":{name},"cpus":8,"started_ns":5000000000,"started_unix_ns":1700000000000000000,"min_pause_ns":0,"follow":true}}}}"#
        ))
        .python(10)
        .process(11, &format!(r#","interpreter":{{"file":{name},"version":{name},"free_threaded":false,"collector":{name},"found_by":{name}}}"#))
        .line(&format!(r#"{{"ph":"M","name":"thread_name","pid":10,"tid":12,"args":{{"name":{name}}}}}"#))
        .line(&format!(r#"{{"ph":"M","name":"process_name","pid":11,"tid":11,"args":{{"name":{name}}}}}"#))
        .line(&format!(r#"{{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{{"id":1,"function":{name},"file":{name},"line":9}}}}"#))
        .line(&format!(r#"{{"ph":"i","s":"p","cat":"gctrace","name":"gctrace_note","pid":10,"tid":10,"ts":5000001.000,"args":{{"message":{name}}}}}"#));
    for (n, reason) in ["automatic", "manual", "shutdown"].into_iter().enumerate() {
        for generation in 0..3 {
            let ts = 5_000_000 + n * 900_000 + generation * 200_000;
            for (pid, tid) in [(10, 10), (10, 12), (11, 11)] {
                trace = trace.line(&format!(
                    r#"{{"ph":"X","cat":"gc","name":"gc gen{generation}","pid":{pid},"tid":{tid},"ts":{ts}.000,"dur":90000.000,"sf":1,"args":{{"generation":{generation},"reason":"{reason}","collected":0,"oldest_objects":99990}}}}"#
                ));
            }
        }
    }
    let lost = format!(r#","lost":{{{name}:1}}"#);
    trace.end(3000, &lost).json()
}

/// Escaping on output does not suffice: a newline in a name could forge a line.
#[test]
fn names_in_a_trace_cannot_forge_lines() {
    let json = named("x\nFORGED");
    let report = report(&[("t\nFORGED.json", json)]);
    let text = full_text(&report, Style::OF_FILES);
    assert!(text.contains(r"x\nFORGED"), "{text}");
    assert!(text.contains("calls come from"), "advice names the line: {text}");
    let begins = |line: &str| line.trim_start().starts_with("FORGED");
    // In a paragraph, newlines count as spaces.
    let tables = text.split("What to do next").next().unwrap();
    assert!(!tables.lines().skip(3).any(begins), "{text}");
}

proptest::proptest! {
    #[test]
    fn names_in_a_trace_cannot_steer_the_terminal(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
        text in proptest::prelude::any::<String>(),
    ) {
        let name = format!("{text}\x1b]0;x\u{7}\u{9b}\u{202e}\n{}", String::from_utf8_lossy(&bytes));
        let report = report(&[(&name, named(&name))]);
        for style in [Style::OF_FILES, Style::COLORED] {
            let text = full_text(&report, style);
            proptest::prop_assert_eq!(&clean::text(&text), &text);
        }
        let plain = full_text(&report, Style::OF_FILES);
        proptest::prop_assert!(!plain.contains(|char| char != '\n' && clean::is_harmful(char)));
        let advice = report.advice.iter().any(|advice| advice.why.contains(name.split('\n').next().unwrap()));
        proptest::prop_assert!(advice, "the name is in the advice");
    }
}

#[test]
fn json_says_what_the_text_says() {
    let report = report(&[("trace.json", training())]);
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["schema"], "gctrace.report/3");
    assert_eq!(json["totals"]["pauses"]["count"], 20);
    let text = full_text(&report, Style::OF_FILES);
    let sentence = json["verdict"]["sentence"].as_str().unwrap();
    let unwrapped = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unwrapped.starts_with(sentence));
    for advice in json["advice"].as_array().unwrap() {
        assert!(unwrapped.contains(advice["action"].as_str().unwrap()));
    }
}

#[test]
fn an_analysis_without_traces_has_a_report() {
    let mut analysis = Analysis::default();
    analysis.end_trace(TraceCompletion::default(), None);
    assert!(!full_text(&super::report(&mut analysis), Style::OF_FILES).is_empty());
}
