//! `gctrace compare`: exit codes, change log, JSON, and runs recorded in-process; and the limits of
//! `gctrace analyze --fail-if`. Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

const STEPS: u64 = 100;

struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

/// A working directory.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A trace of the PyTorch profiler: steps of about this length, each with a pause.
    fn trace(&self, name: &str, step_us: u64, pause_us: u64) -> &'static str {
        let mut text = r#"{"traceEvents":["#.to_owned();
        let mut at_us = 1_000;
        for number in 0..STEPS {
            // Noise that is the same in every trace would not do: it depends on the length.
            let length_us = step_us + number * step_us % 17;
            write!(
                text,
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{number}","pid":1,"tid":1,"ts":{at_us},"dur":{length_us}}},
{{"ph":"X","cat":"gc","name":"gc gen0","pid":1,"tid":1,"ts":{},"dur":{pause_us},"args":{{"generation":0,"reason":"automatic","collected":1}}}},"#,
                at_us + 10
            )
            .unwrap();
            at_us += length_us;
        }
        text.pop();
        text.push_str("]}");
        std::fs::write(self.path(name), text).unwrap();
        name.to_owned().leak()
    }

    fn run(&self, words: &[&str]) -> Outcome {
        let mut command = Command::new(recording::binary());
        let output = command.args(words).current_dir(self.0.path()).output_in_time().unwrap();
        Outcome {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn compare(&self, words: &[&str]) -> Outcome {
        self.run(&[&["compare"], words].concat())
    }
}

#[test]
fn exit_codes() {
    let place = Place::new();
    let slow = place.trace("slow.json", 1_300, 300);
    let fast = place.trace("fast.json", 1_000, 50);
    std::fs::write(place.path("damaged.json"), "{\"traceEvents\":[").unwrap();
    let limit = "step_time>2%";
    let several = |name: &str, step_us: u64, pause_us: u64| {
        [0, 1].map(|run| place.trace(&format!("{name}{run}.json"), step_us + run, pause_us))
    };
    let ([s, t], [f, g]) = (several("slow", 1_300, 300), several("fast", 1_000, 50));
    for (words, code) in [
        (vec![slow, fast], 0),
        (vec!["--fail-if", limit, s, t, "--", f, g], 0),
        (vec!["--fail-if", "step_time>0%", s, t, "--", t, s], 0),
        (vec!["--fail-if", "step_time>50%", f, g, "--", s, t], 0),
        (vec!["--fail-if", limit, f, g, "--", s, t], 3),
        (vec!["--fail-if", "gc_share>+1%", f, g, "--", s, t], 3),
        (vec!["--fail-if", "longest>10%", f, g, "--", s, t], 3),
        (vec!["--fail-if", "longest>+1ms", f, g, "--", s, t], 0),
        // These traces have no replay: a check that cannot fail is worse than none.
        (vec!["--fail-if", "gpu_cost>+1%", f, g, "--", g, f], 3),
        // One run on a side fails no limit, and passes none.
        (vec![fast, slow], 0),
        (vec![fast, slow, "--fail-if", limit], 2),
        (vec![slow, fast, "--fail-if", limit], 2),
        (vec![slow, fast, "--fail-if", "gpu_cost>+1%"], 2),
        (vec!["--fail-if", limit, f, g, "--", slow], 2),
        (vec!["--fail-if", limit, fast, "--", s, t], 2),
        (vec![fast, "missing.json"], 1),
        (vec![fast, "--", "missing.json.gz"], 1),
        (vec![fast, "damaged.json"], 1),
        (vec![fast, fast, "--", slow], 1),
        (vec![fast], 2),
        (vec![fast, slow, slow], 2),
        (vec![fast, slow, "--fail-if", "gc_share>1%"], 2),
        // The options of a trace of another tool are unknown.
        (vec![fast, "--", "python3", "-c", "pass"], 1),
    ] {
        let outcome = place.compare(&words);
        assert_eq!(outcome.code, Some(code), "{words:?}: {}", outcome.err);
    }
}

#[test]
fn limits_of_one_run() {
    let place = Place::new();
    let slow = place.trace("slow.json", 1_300, 300);
    std::fs::write(place.path("none.json"), r#"{"traceEvents":[]}"#).unwrap();
    for (words, code) in [
        (&[slow][..], 0),
        (&[slow, "--fail-if", "gc_share>25%"], 0),
        (&[slow, "--fail-if", "gc_share>22%"], 3),
        (&[slow, "--fail-if", "longest>1ms"], 0),
        (&[slow, "--fail-if", "longest>200us"], 3),
        (&[slow, "--fail-if", "gc_share>25%", "--fail-if", "longest>200us"], 3),
        (&[slow, "none.json"], 1),
        (&["none.json", "--fail-if", "gc_share>2%"], 1),
        (&[slow, "--fail-if", "step_time>2%"], 2),
    ] {
        let outcome = place.run(&[&["analyze"], words].concat());
        assert_eq!(outcome.code, Some(code), "{words:?}: {}", outcome.err);
        assert_eq!(code == 3, outcome.err.contains("limit exceeded"), "{}", outcome.err);
    }
}

#[test]
fn the_text_has_changes_verdict_and_figures() {
    let place = Place::new();
    let slow = place.trace("slow.json", 1_300, 300);
    let fast = place.trace("fast.json", 1_000, 50);
    let (other_slow, other_fast) =
        (place.trace("slow2.json", 1_300, 301), place.trace("fast2.json", 1_000, 51));
    let (slow, fast) = ([slow, other_slow], [fast, other_fast]);
    let compared = |before: [&str; 2], after: [&str; 2]| {
        place.compare(&[&before[..], &["--"], &after[..]].concat()).out
    };
    let text = compared(slow, fast);
    assert!(text.contains("Faster: GC 23.0 % -> 5.01 % of training"), "{text}");
    for part in ["step time", "GC share of training", "gen 0 pauses per step", "95 % interval"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 40, "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    let back = compared(fast, slow);
    assert!(back.contains("Slower: GC 5.01 % -> 23.0 % of training"), "{back}");
}

#[test]
fn one_run_on_a_side_has_figures_and_no_verdict() {
    let place = Place::new();
    let slow = place.trace("slow.json", 1_300, 300);
    let fast = place.trace("fast.json", 1_000, 50);
    for (pair, figures) in [
        ([slow, fast], "GC 22.9 % -> 4.96 % of training"),
        ([fast, slow], "GC 4.96 % -> 22.9 % of training"),
        ([fast, fast], "GC 4.96 % -> 4.96 % of training"),
    ] {
        let compared = place.compare(&[&pair[..], &["--log", "log.md"]].concat());
        let json = place.compare(&[&pair[..], &["--format", "json"]].concat()).out;
        let log = std::fs::read_to_string(place.path("log.md")).unwrap();
        let words = compared.out.split_whitespace().collect::<Vec<_>>().join(" ");
        for output in [&words, &json, &log] {
            assert!(output.contains(figures), "{output}");
            let why = "The noise between runs is unknown, so there is no verdict";
            let times = |part: &str| output.matches(part).count();
            assert_eq!(times(why), times("One run on a side: "), "once in each: {output}");
            let judges = ["faster", "slower", "less garbage", "more garbage", "no difference"];
            let lower = output.to_lowercase();
            assert!(judges.iter().all(|word| !lower.contains(word)), "{output}");
        }
        assert!(!words.contains("95 %"), "{words}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["verdict"]["outcome"], "unknown");
        for figure in json["figures"].as_array().unwrap() {
            assert!(figure["p"].is_null() && figure["difference"]["low"].is_null(), "{figure}");
        }
    }
}

#[test]
fn a_change_log_grows_and_other_files_are_refused() {
    let place = Place::new();
    let slow = place.trace("slow.json", 1_300, 300);
    let fast = place.trace("fast.json", 1_000, 50);
    for pair in [[slow, fast], [fast, slow]] {
        let outcome = place.compare(&[&pair[..], &["--log", "log.md"]].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    }
    let log = std::fs::read_to_string(place.path("log.md")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 6, "{log}");
    assert!(lines[0].starts_with("# Performance log"), "{log}");
    assert!(lines[4].contains("-23 %") && lines[5].contains("+30 %"), "{log}");
    let columns = |line: &str| line.matches('|').count();
    assert!(lines[3..].iter().all(|line| columns(line) == columns(lines[2])), "{log}");
    std::fs::write(place.path("notes.md"), "# Notes\n").unwrap();
    let refused = place.compare(&[slow, fast, "--log", "notes.md"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("notes.md") && refused.out.is_empty(), "{}", refused.err);
    assert_eq!(std::fs::read_to_string(place.path("notes.md")).unwrap(), "# Notes\n");
}

/// The program of `examples/`, with another first threshold.
fn train(threshold: u32) -> [String; 3] {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/train.py");
    let code = format!(
        "import gc, runpy, sys; gc.set_threshold({threshold}, 10, 10); \
         sys.argv = ['train.py', '--steps', '60']; runpy.run_path({program:?}, run_name='__main__')"
    );
    ["python3".to_owned(), "-c".to_owned(), code]
}

#[test]
fn a_command_is_recorded_and_compared_with_the_run_before() {
    let place = Place::new();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        let name = ["-c", "user.name=a", "-c", "user.email=a@b"];
        command.args(name).args(words).current_dir(place.0.path());
        assert!(command.output_in_time().unwrap().status.success(), "{words:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    let before = train(700);
    let words: Vec<&str> = before.iter().map(String::as_str).collect();
    let record = ["--mode", "inject", "-o", "before.json", "--"];
    let recorded = place.run(&[&record, &words[..]].concat());
    assert_eq!(recorded.code, Some(0), "{}", recorded.err);
    git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    let after = train(7_000);
    let words: Vec<&str> = after.iter().map(String::as_str).collect();
    let compared = place.compare(&[&["before.json", "--"], &words[..]].concat());
    assert_eq!(compared.code, Some(0), "{}", compared.err);
    assert!(compared.err.contains("gctrace analyze before-after.json"), "{}", compared.err);
    for part in ["thresholds: 700, 10, 10 -> 7000, 10, 10", "git commit: "] {
        assert!(compared.out.contains(part), "{part}: {}", compared.out);
    }
    let json = place.compare(&["before.json", "before-after.json", "--format", "json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "gctrace.comparison/1");
    let figures = json["figures"].as_array().unwrap();
    let young = figures
        .iter()
        .find(|figure| figure["figure"] == "pauses" && figure["generation"] == 0)
        .unwrap();
    // A tenfold threshold: fewer collections per second, although a step takes less time.
    let change = young["change_ratio"]["value"].as_f64().unwrap();
    assert!(change < 0.0, "{young}");
    let failed = place.compare(&["before.json", "--", "python3", "-c", "raise SystemExit(7)"]);
    assert_eq!(failed.code, Some(7), "{}", failed.err);
    assert!(failed.out.is_empty() && failed.err.contains("not compared"), "{}", failed.err);
}

#[test]
fn a_command_is_recorded_with_settings() {
    let place = Place::new();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/train.py");
    let words = ["python3", program.to_str().unwrap(), "--steps", "60"];
    let record = ["--mode", "inject", "-o", "before.json", "--"];
    assert_eq!(place.run(&[&record, &words[..]].concat()).code, Some(0));
    let setting = ["before.json", "--gc", "threshold=5000,10,10", "--"];
    let compared = place.compare(&[&setting, &words[..]].concat());
    assert_eq!(compared.code, Some(0), "{}", compared.err);
    let both = format!("{}{}", compared.out, compared.err);
    assert!(both.contains("threshold=5000,10,10: "), "{both}");
    assert!(both.contains(" -> 5000, 10, 10"), "{both}");
    let no_command = place.compare(&["before.json", "before-after.json", "--gc", "threshold=5000"]);
    assert_eq!(no_command.code, Some(1));
    assert!(no_command.err.contains("put one after --"), "{}", no_command.err);
}
