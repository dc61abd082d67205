//! `gctrace apply --from`: what the report on a trace advises is applied where the program has a point for it.

use crate::apply::{TestDir, errors, printed};
use gctrace_event::{NamedMarker, Pause, Record, StepMark};
use serde_json::Value;
use std::fs;
use std::process::Command;
use test_kit::interpreters::any_python;
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;
use test_kit::{recording, records, reports};

/// 400 steps of 10 ms; every tenth has a full collection of 5 ms, which frees nothing of a large heap.
fn trained() -> Vec<Record> {
    let mut records = vec![reports::process(100, 0, "generational")];
    for at in 0..400 {
        let full = at % 10 == 4;
        let pause = reports::pause(100, at * 10 + 2, at * 10 + if full { 7 } else { 3 });
        records.push(Record::Pause(Pause {
            generation: if full { 2 } else { 0 },
            collected: Some(0),
            oldest_objects: full.then_some(300_000),
            ..pause
        }));
        records.push(Record::Step(StepMark {
            pid: 100,
            tid: 100,
            marker: NamedMarker::Optimizer("SGD".to_owned()),
            start_ns: reports::START + at * 10 * reports::MS,
            end_ns: reports::START + at * 10 * reports::MS,
            cpu_ns: None,
        }));
    }
    records
}

#[test]
fn settings_of_an_advice_are_applied() {
    let place = TestDir::new();
    let training = "for i in range(60): step()\nprint(gc.get_threshold(), gc.isenabled(), gc.get_freeze_count() > 1000)";
    let script = place.path().join("train.py");
    fs::write(&script, format!("{OPTIMIZER}{training}")).unwrap();
    let default = Command::new(any_python()).arg(&script).output_in_time().unwrap();
    let default = printed(&default);
    // Not recorded: on a busy machine one recording of so short a program may not tell what to do.
    let trace = place.path().join("t.json");
    fs::write(trace, records::written(&reports::header(), &trained(), &reports::end(4_000)))
        .unwrap();
    let report = Command::new(recording::binary())
        .args(["analyze", "--format", "json", "t.json"])
        .current_dir(place.path())
        .output_in_time()
        .unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let advice = report["advice"].as_array().unwrap();
    let changes = |one: &Value| one["settings"].is_string();
    let number = advice.iter().position(changes).unwrap() + 1;
    let number = number.to_string();
    // Without a number it is the first that changes only settings.
    let applied = place
        .gctrace(&["--from", "t.json", "--"])
        .arg(any_python())
        .arg(&script)
        .output_in_time()
        .unwrap();
    let text = errors(&applied);
    assert!(applied.status.success(), "{text}");
    assert!(text.contains(&format!("advice {number} of t.json: --gc ")), "{text}");
    assert_ne!(printed(&applied), default, "{text}");
    // The same setting is what `gctrace advice` names.
    let advice = Command::new(recording::binary())
        .args(["advice", "t.json", &number])
        .current_dir(place.path())
        .output_in_time()
        .unwrap();
    let setting = text.split("--gc ").nth(1).unwrap().lines().next().unwrap();
    let line = format!("gctrace apply --gc {setting} -- ");
    assert!(printed(&advice).contains(&line), "{}", printed(&advice));
    let numbered = ["--from", "t.json", "--advice", &number, "--", "true"];
    let numbered = { place.gctrace(&numbered) }.output_in_time().unwrap();
    assert!(errors(&numbered).contains(&format!("advice {number} of t.json: --gc {setting}")));
    let none = place.gctrace(&["--from", "t.json", "--advice", "99", "--", "true"]);
    let none = { none }.output_in_time().unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(errors(&none).contains("there is no advice 99"));
}

/// A program without steps that frees nothing: 200 pauses of 20 ms in 6 s.
fn computed() -> Vec<Record> {
    let mut records = vec![reports::process(100, 0, "generational")];
    records.extend((0..200).map(|at| {
        let pause = reports::pause(100, at * 30 + 5, at * 30 + 25);
        Record::Pause(Pause { collected: Some(0), generation: u8::from(at % 10 == 9) * 2, ..pause })
    }));
    records.push(reports::exit(100, 6_000));
    records
}

/// What is advised to a program without steps is applied where it has a point for it: at the start.
#[test]
fn settings_of_a_program_without_steps_are_applied_at_its_start() {
    let place = TestDir::new();
    let trace = place.path().join("t.json");
    fs::write(trace, records::written(&reports::header(), &computed(), &reports::end(6_000)))
        .unwrap();
    let gctrace = |arguments: &[&str]| {
        let mut command = Command::new(recording::binary());
        let output = command.args(arguments).current_dir(place.path()).output_in_time().unwrap();
        assert!(output.status.success(), "{output:?}");
        printed(&output)
    };
    let report: Value =
        serde_json::from_str(&gctrace(&["analyze", "--format", "json", "t.json"])).unwrap();
    let advice = report["advice"].as_array().unwrap();
    let number = advice.iter().position(|one| one["id"] == "disable").unwrap() + 1;
    let number = number.to_string();
    assert!(gctrace(&["analyze", "t.json"]).contains("gctrace apply --gc disable@start -- "));
    assert!(
        gctrace(&["advice", "t.json", &number]).contains("gctrace apply --gc disable@start -- ")
    );
    let script = "import gc; print(gc.isenabled())";
    let applied = place
        .gctrace(&["--from", "t.json", "--advice", &number, "--"])
        .arg(any_python())
        .args(["-c", script])
        .output_in_time()
        .unwrap();
    assert!(applied.status.success(), "{}", errors(&applied));
    assert_eq!(printed(&applied), "False\n");
}
