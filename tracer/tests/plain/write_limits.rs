//! A trace that cannot be written completely: the command is unharmed, the trace readable, and the
//! loss reported. Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use test_kit::recording;

/// Collections in batches that fit into the rings, and one such batch right before the end: written
/// after it.
const COLLECT: &str = "import gc, time
for _ in range(12):
    for n in range(400): gc.collect(0)
    time.sleep(0.06)
for n in range(1200): gc.collect(0)
open('ended', 'w')
raise SystemExit(7)";

/// With a file size limit, in KiB, for gctrace; the command has no limit, or the library could not
/// create its rings.
fn record(place: &Path, limit: u32, name: &str) -> Output {
    let script = "ulimit -S -f \"$1\"; shift; exec \"$@\"";
    Command::new("bash")
        .args(["-c", script, "bash", &limit.to_string()])
        .arg(recording::binary())
        .args(["--mode", "inject", "-o", name, "--", "sh", "-c"])
        .args([r#"ulimit -S -f unlimited; exec python3 -c "$0""#, COLLECT])
        .current_dir(place)
        .output()
        .unwrap()
}

#[test]
fn at_every_limit_the_command_is_unharmed_and_losses_are_reported() {
    let mut limited = 0;
    for (limit, name) in [
        (130, "t.json"),
        (200, "t.json"),
        (700, "t.json"),
        (1200, "t.json"),
        (20_000, "t.json"),
        (132, "t.json.gz"),
        (160, "t.json.gz"),
        (132, "t.json.zst"),
        (160, "t.json.zst"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let output = record(place.path(), limit, name);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let case = format!("{limit} KiB, {name}: {printed}");
        assert_eq!(output.status.code(), Some(7), "{case}");
        assert!(place.path().join("ended").exists(), "{case}");
        let mut file = place.path().join(name);
        let program = match file.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Some("gzip"),
            Some("zst") => Some("zstd"),
            _ => None,
        };
        if let Some(program) = program {
            let plain = Command::new(program).arg("-dc").arg(&file).output().unwrap();
            assert!(plain.status.success(), "{case}");
            file = place.path().join("plain.json");
            fs::write(&file, plain.stdout).unwrap();
        }
        let trace = recording::Trace::read(&file);
        let end = &trace.named("gctrace_end")[0].1;
        let pauses = trace.pauses().len() as u64;
        let lost = end["lost"].as_object().unwrap();
        let lost: u64 = lost.values().filter_map(serde_json::Value::as_u64).sum();
        let report = Command::new(recording::binary())
            .args(["analyze", "--full", name])
            .current_dir(place.path())
            .output()
            .unwrap();
        assert!(report.status.success(), "{case}");
        let report = String::from_utf8_lossy(&report.stdout).into_owned();
        if pauses < 6000 {
            limited += 1;
            let why = end["why"].as_str().unwrap();
            assert!(why.contains("could not be written any more"), "{why} {case}");
            assert!(printed.contains("ulimit -f"), "{case}");
            let unexamined = &end["processes"]["unexamined"];
            let is_said = lost > 0 || unexamined.as_object().is_some_and(|all| !all.is_empty());
            assert!(is_said, "{end} {case}");
            for untrue in ["Nothing was lost", "No event was lost"] {
                let complete = report.contains(untrue) && lost == 0 && unexamined.is_null();
                assert!(!complete, "{case}\n{report}");
            }
        } else {
            assert_eq!(lost, 0, "{end} {case}");
        }
    }
    assert!(limited >= 3, "only {limited} were limited");
}

#[test]
fn too_low_a_limit_is_reported_before_the_command_starts() {
    let place = tempfile::tempdir().unwrap();
    let output = record(place.path(), 10, "t.json");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("ulimit -f: 10 KiB"), "{printed}");
    assert!(printed.contains("nothing was recorded"), "{printed}");
    assert!(!printed.contains("Free some space"), "{printed}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{printed}");
}
