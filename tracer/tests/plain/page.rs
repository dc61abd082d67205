//! `gctrace report`: the page, and what it does in a browser. Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_kit::limit::WithTimeout as _;

/// Exit code of the script without a browser.
const NO_BROWSER: i32 = 77;
/// Runs if any name is taken for HTML, or ends the script that it is data of.
const HOSTILE: &str = "</script></title><img src=x onerror='window.hit=1'><script>window.hit=1</script>\"'&<b><b>\u{202e}";

/// One pause: start, length, generation, stack, objects freed; times in µs.
type PauseOf = (u64, u64, u8, u32, u64);

/// A trace of a process with five frames, each called by the one before.
fn trace(place: &Path, name: &str, command: &str, pauses: &[PauseOf], more: &[String]) -> PathBuf {
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let mut lines = vec![
        format!(
            r#"{{"ph":"M","name":"gctrace_header","pid":0,"tid":0,"ts":0,"args":{{"format":"gctrace.trace/1","started_ns":0,"command":["python",{}]}}}}"#,
            quoted(command)
        ),
        r#"{"ph":"M","name":"gctrace_process","pid":7,"tid":7,"ts":0.000,"args":{"origin":"launched","command":["python"]}}"#.to_owned(),
    ];
    for id in 1..=5 {
        let parent = if id > 1 { format!(r#""parent":{},"#, id - 1) } else { String::new() };
        let function = quoted(&format!("f{id} {}", if command == HOSTILE { HOSTILE } else { "" }));
        let file = quoted(&format!("/a/{}.py", if command == HOSTILE { HOSTILE } else { "train" }));
        lines.push(format!(
            r#"{{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{{"id":{id},{parent}"function":{function},"file":{file},"line":{id}}}}}"#
        ));
    }
    lines.extend(more.iter().cloned());
    let mut text = format!("{{\"traceEvents\":[\n{}", lines.join(",\n"));
    for (start, length, generation, stack, freed) in pauses {
        let written = write!(
            text,
            ",\n{{\"ph\":\"X\",\"cat\":\"gc\",\"name\":\"gc gen{generation}\",\"pid\":7,\"tid\":7,\"ts\":{start}.000,\"dur\":{length}.000,\"sf\":{stack},\"args\":{{\"generation\":{generation},\"reason\":\"automatic\",\"collected\":{freed}}}}}"
        );
        written.unwrap();
    }
    let path = place.join(name);
    std::fs::write(&path, text + "\n]}\n").unwrap();
    path
}

/// 30 young ones, 5 of generation 1, and two full ones, the second the longest.
fn ordinary() -> Vec<PauseOf> {
    let mut pauses: Vec<PauseOf> = (0..30).map(|n| (n * 100_000, 40 + n, 0, 5, 7)).collect();
    pauses.extend((0..5).map(|n| (n * 500_000 + 50_000, 2000 + n, 1, 4, 300)));
    pauses.extend([(1_210_000, 60_000, 2, 3, 1000), (2_510_000, 87_600, 2, 2, 1234)]);
    pauses.sort_unstable();
    pauses
}

fn gctrace(place: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace"));
    command.args(arguments).current_dir(place).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    command.output_in_time().unwrap()
}

/// What gctrace printed without an error.
fn done(place: &Path, arguments: &[&str]) -> String {
    let output = gctrace(place, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// What a browser shows of a page; `None` without one.
fn seen(test: &str, page: &Path, function: &str) -> Option<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/python/page.py");
    let mut command = Command::new("python3");
    let output = command.arg(script).arg(page).arg(function).output_in_time().unwrap();
    if output.status.code() == Some(NO_BROWSER) {
        println!("skipped {test}: there is no Chromium here");
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["problems"], serde_json::json!([]), "console of {}", page.display());
    assert_eq!(seen["nameless"], serde_json::json!([]), "without an accessible name");
    assert_eq!((&seen["foreign"], &seen["scripts"]), (&0.into(), &2.into()));
    assert_eq!(seen["hit"], Value::Null, "a name ran");
    assert_eq!(seen["width"], 360, "wider than a narrow window");
    assert_ne!(seen["themes"][0], seen["themes"][1]);
    assert_eq!((&seen["printed"], &seen["controls"]), (&true.into(), &0.into()), "on paper");
    Some(seen)
}

/// The JSON of a page, and its text around it.
fn parts(page: &str) -> (Value, String) {
    let (before, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    let (data, after) = rest.split_once("</script>").unwrap();
    (serde_json::from_str(data).unwrap(), format!("{before}{after}"))
}

fn starts(seen: &Value, with: &str) {
    let text = seen.as_str().unwrap_or_default();
    assert!(text.starts_with(with), "{seen} does not start with {with}");
}

#[test]
fn a_page_is_zoomed_filtered_and_searched() {
    let place = tempfile::tempdir().unwrap();
    trace(place.path(), "run.json", "train.py", &ordinary(), &[]);
    let printed = done(place.path(), &["report", "run.json"]);
    assert!(printed.contains("wrote run.html: open it in a browser"), "{printed}");
    let test = "page::a_page_is_zoomed_filtered_and_searched";
    let Some(seen) = seen(test, &place.path().join("run.html"), "f4") else {
        return;
    };
    // The figures are the report's.
    let report: Value =
        serde_json::from_str(&done(place.path(), &["analyze", "--format", "json", "run.json"]))
            .unwrap();
    let plain = |text: &Value| text.as_str().unwrap().replace('\u{a0}', " ");
    assert_eq!(plain(&seen["verdict"]), report["verdict"]["sentence"]);
    assert_eq!(seen["title"], "gctrace: python train.py");
    let timeline = &seen["timeline"];
    starts(
        &timeline["longest"],
        "Generation 2, 87.6\u{a0}ms at 2.51\u{a0}s, automatic, freed 1,234 objects",
    );
    assert_eq!(timeline["stack"], serde_json::json!(["train.py:2  f2 ", "train.py:1  f1 "]));
    // Two lengths before it to three after its start.
    assert_eq!(timeline["zoomed"], "2.33\u{a0}s – 2.77\u{a0}s after the start");
    let whole = "0 – 2.90\u{a0}s after the start";
    assert_eq!((&timeline["whole"], &timeline["keys"]["0"]), (&whole.into(), &whole.into()));
    let keys: Vec<&str> =
        ["-", "+", "ArrowLeft"].map(|key| timeline["keys"][key].as_str().unwrap()).to_vec();
    assert!(keys.iter().all(|span| *span != whole && *span != timeline["zoomed"]), "{keys:?}");
    // After the longest no other is as long as a millisecond.
    starts(&timeline["keys"]["n"], "Generation 2, 87.6\u{a0}ms");
    assert!(timeline["pixels"].as_u64() > Some(1000), "{timeline}");
    assert_eq!(timeline["filtered"], 0, "pixels of a generation that is not shown");
    starts(&timeline["other"], "Generation 1, 2.00\u{a0}ms at 2.05\u{a0}s");
    // f4 and what it calls: 5 of generation 1, and the young ones.
    starts(&seen["flame"], "159\u{a0}ms in 37 pauses");
    assert_eq!(seen["found"], 1);
    let matching = 30 * 40 + 435 + 5 * 2000 + 10;
    let all = matching + 147_600;
    let share = format!("{:.2}\u{a0}% of the time", f64::from(matching) / f64::from(all) * 100.0);
    starts(&seen["share"], &share);
    assert_eq!(seen["sorted"], "ascending");
}

#[test]
fn hostile_names_run_nothing() {
    let place = tempfile::tempdir().unwrap();
    let kind = serde_json::json!({"ph": "M", "name": "gctrace_object_kind", "pid": 7, "tid": 0, "args": {"id": 1, "type": HOSTILE}});
    let garbage = r#"{"ph":"M","name":"gctrace_garbage","pid":7,"tid":7,"ts":2510001.000,"args":{"objects":9,"kinds":[{"kind":1,"objects":9,"bytes":99}]}}"#;
    let more = [kind.to_string(), garbage.to_owned()];
    let path = trace(place.path(), "a.json", HOSTILE, &ordinary(), &more);
    let hostile = place.path().join("<b onclick=alert(1)>$(id).json");
    std::fs::rename(path, &hostile).unwrap();
    done(place.path(), &["report", hostile.to_str().unwrap(), "-o", "x.html"]);
    let page = std::fs::read_to_string(place.path().join("x.html")).unwrap();
    let (data, around) = parts(&page);
    assert!(data.to_string().contains("onerror"), "the names are there");
    assert!(around.contains("Content-Security-Policy") && around.contains("default-src 'none'"));
    for part in ["<img", "<b onclick", "window.hit=1<", "\u{202e}"] {
        assert!(!around.contains(part), "{part}");
    }
    if let Some(seen) =
        seen("page::hostile_names_run_nothing", &place.path().join("x.html"), "onerror")
    {
        let text = seen["text"].as_str().unwrap();
        assert!(text.contains("<img src=x onerror=") && text.contains(r"\u{202e}"), "{text}");
        let kinds = seen["sections"].as_array().unwrap();
        assert!(kinds.contains(&"freed".into()), "{kinds:?}");
        assert!(seen["found"].as_u64() > Some(1), "{seen}");
    }
}

#[test]
fn layers_are_tiles_as_large_as_their_memory() {
    let place = tempfile::tempdir().unwrap();
    let table = |step: u64, saved: Option<u64>| {
        let rows = serde_json::json!([
            {"path": HOSTILE, "type_name": "Linear", "calls": 1, "made": saved.map(|mib| serde_json::json!({"saved": mib << 20})),
             "held": {"weights": 1 << 20, "gradients": 1 << 20, "optimizer": 2 << 20}},
            {"path": "b", "type_name": "Embedding", "calls": 1, "held": {"weights": 1 << 20}, "made": {}},
        ]);
        let args = serde_json::json!({"step": step, "every": 1, "saved_bytes": saved.map(|mib| mib << 20), "cost_ns": 5, "rows": rows});
        let ts = 1_000_000 + step * 1000;
        serde_json::json!({"ph": "M", "name": "gctrace_layers", "pid": 7, "tid": 7, "ts": ts, "args": args})
            .to_string()
    };
    trace(
        place.path(),
        "run.json",
        "train.py",
        &ordinary(),
        &[table(2, Some(4)), table(3, Some(2))],
    );
    done(place.path(), &["report", "run.json"]);
    let test = "page::layers_are_tiles_as_large_as_their_memory";
    let Some(seen) = seen(test, &place.path().join("run.html"), "f4") else {
        return;
    };
    let tiles = seen["tiles"].as_array().unwrap();
    assert_eq!(tiles.len(), 2, "{tiles:?}");
    let areas = [0, 1].map(|tile| tiles[tile][1].as_f64().unwrap());
    // Of the step with the most, 8 MiB and 1 MiB.
    assert!((areas[0] / areas[1] - 8.0).abs() < 0.01, "{areas:?}");
    let plain = tiles[1][0].as_str().unwrap().replace('\u{a0}', " ");
    starts(&plain.into(), "b Embedding\n1 MiB, 11.1 %\nweights 1 MiB");
    assert!(seen["text"].as_str().unwrap().contains("Step 2, as its backward pass began."));
    // What is unknown is not 0.
    let unknown = [2, 3].map(|step| table(step, None));
    trace(place.path(), "unknown.json", "train.py", &ordinary(), &unknown);
    done(place.path(), &["report", "unknown.json"]);
    let Some(seen) = self::seen(test, &place.path().join("unknown.html"), "f4") else {
        return;
    };
    assert!(seen["text"].as_str().unwrap().contains("saved for backward (unknown)"));
}

/// Ten minutes of 417 pauses a second: 2 MB, drawn and used like any other.
#[test]
fn a_quarter_of_a_million_pauses() {
    let place = tempfile::tempdir().unwrap();
    let mut state = 1u64;
    let mut random = |most: u64| {
        // Knuth's MMIX generator.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let pauses: Vec<PauseOf> = (0..250_000)
        .map(|n| {
            let generation = if n % 1000 == 999 { 2 } else { u8::from(n % 10 == 9) };
            let length = [20 + random(60), 300 + random(700), 20_000 + random(80_000)];
            let stack = 1 + random(5) as u32;
            (
                n * 2400 + random(1000),
                length[usize::from(generation)] / 10,
                generation,
                stack,
                random(300),
            )
        })
        .collect();
    trace(place.path(), "big.json", "train.py", &pauses, &[]);
    done(place.path(), &["report", "big.json"]);
    let page = place.path().join("big.html");
    let size = page.metadata().unwrap().len();
    assert!(size <= 2_000_000, "{size} bytes");
    let Some(seen) = seen("page::a_quarter_of_a_million_pauses", &page, "f5") else {
        return;
    };
    let text = seen["text"].as_str().unwrap();
    assert!(text.contains("250,000") && !text.contains("are drawn one by one"), "{size}");
    let longest = pauses.iter().map(|pause| pause.1).max().unwrap() as f64 / 1000.0;
    let shown = if longest < 9.995 { format!("{longest:.2}") } else { format!("{longest:.1}") };
    starts(&seen["timeline"]["longest"], &format!("Generation 2, {shown}\u{a0}ms"));
    assert_eq!(seen["timeline"]["filtered"], 0);
    assert!(seen["timeline"]["pixels"].as_u64() > Some(1000));
}

/// A section without data is absent.
#[test]
fn nothing_is_shown_of_what_was_not_recorded() {
    let place = tempfile::tempdir().unwrap();
    trace(place.path(), "quiet.json", "train.py", &[], &[]);
    done(place.path(), &["analyze", "quiet.json", "-o", "quiet.html"]);
    let page = std::fs::read_to_string(place.path().join("quiet.html")).unwrap();
    let sections: Vec<&str> =
        page.split("<section id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(sections, ["verdict", "advice", "recording"], "{page}");
    seen("page::nothing_is_shown_of_what_was_not_recorded", &place.path().join("quiet.html"), "f");
}

/// The time of the walk through the garbage is no part of a pause, as in the report.
#[test]
fn a_pause_is_as_long_as_in_the_report() {
    let place = tempfile::tempdir().unwrap();
    let garbage = r#"{"ph":"M","name":"gctrace_garbage","pid":7,"tid":7,"ts":1000100.000,"args":{"objects":0,"kinds":[],"cost_ns":25000000}}"#;
    trace(
        place.path(),
        "walk.json",
        "train.py",
        &[(1_000_000, 60_000, 2, 1, 5)],
        &[garbage.to_owned()],
    );
    done(place.path(), &["report", "walk.json"]);
    let test = "page::a_pause_is_as_long_as_in_the_report";
    if let Some(seen) = seen(test, &place.path().join("walk.html"), "f") {
        starts(&seen["timeline"]["longest"], "Generation 2, 35.0\u{a0}ms");
    }
}

#[test]
fn before_and_after_are_one_page() {
    let place = tempfile::tempdir().unwrap();
    let trace = |name, pauses: &[PauseOf]| trace(place.path(), name, "train.py", pauses, &[]);
    trace("before.json", &ordinary());
    trace("after.json", &ordinary()[..20]);
    let printed = done(place.path(), &["compare", "before.json", "after.json", "-o", "c.html"]);
    assert!(printed.contains("What changed"), "{printed}");
    let page = place.path().join("c.html");
    let (data, around) = parts(&std::fs::read_to_string(&page).unwrap());
    assert_eq!(data.as_array().unwrap().len(), 2);
    assert!(around.contains("id=\"before\"") && around.contains("id=\"after\""));
    if let Some(seen) = seen("page::before_and_after_are_one_page", &page, "f4") {
        starts(&seen["timeline"]["longest"], "Generation 2, 87.6\u{a0}ms");
    }
    let wrong = gctrace(place.path(), &["compare", "before.json", "after.json", "-o", "c.json"]);
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(!wrong.status.success() && error.contains("ends in .html"), "{error}");
}

#[test]
fn pages_are_not_overwritten_without_force() {
    let place = tempfile::tempdir().unwrap();
    trace(place.path(), "run.json", "train.py", &ordinary(), &[]);
    std::fs::write(place.path().join("run.html"), "mine").unwrap();
    for arguments in [&["report", "run.json"][..], &["analyze", "run.json", "-o", "run.html"]] {
        let refused = gctrace(place.path(), arguments);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && error.contains("--force"), "{error}");
        assert_eq!(std::fs::read_to_string(place.path().join("run.html")).unwrap(), "mine");
    }
    done(place.path(), &["report", "run.json", "--force"]);
    assert!(std::fs::read_to_string(place.path().join("run.html")).unwrap().contains("<section"));
}

/// What opens the browser gets a whole path: such a name alone would be an address, or an option.
#[test]
fn a_page_is_opened_as_a_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().unwrap();
    let opener = place.path().join("xdg-open");
    std::fs::write(
        &opener,
        "#!/bin/sh\nprintf '%s\\n' \"$#\" \"$@\" > opened.new; mv opened.new opened\n",
    )
    .unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["mailto:x", "-x"] {
        trace(place.path(), &format!("{name}.json"), "train.py", &ordinary(), &[]);
        let path = format!("{}:/usr/bin:/bin", place.path().display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace"));
        command.args(["report", "--", &format!("{name}.json")]).current_dir(place.path());
        command.env("DISPLAY", ":0").env("PATH", path).env_remove("SUDO_UID");
        let output = command.output_in_time().unwrap();
        assert!(output.status.success(), "{output:?}");
        let opened = place.path().join("opened");
        test_kit::recording::wait_until("the page is opened", || opened.exists());
        let page = std::fs::canonicalize(place.path()).unwrap().join(format!("{name}.html"));
        assert_eq!(std::fs::read_to_string(&opened).unwrap(), format!("1\n{}\n", page.display()));
        std::fs::remove_file(opened).unwrap();
    }
}
