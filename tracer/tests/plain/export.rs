//! `gctrace export`. Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_kit::limit::WithTimeout as _;

const US: u64 = 1000;

/// A process: pid, and pauses as generation, length in µs and stack.
type Process<'a> = (u32, &'a [(u8, u64, Option<u32>)]);

fn trace(directory: &Path, name: &str, processes: &[Process<'_>]) -> PathBuf {
    let mut lines = vec![
        r#"{"ph":"M","name":"gctrace_header","pid":0,"tid":0,"ts":0,"args":{"format":"gctrace.trace/1","started_ns":0}}"#.to_owned(),
        frame(1, None, "train.py", "<module>", 9),
        frame(2, Some(1), "train.py", "a;b c", 5),
        frame(3, Some(2), "/usr/lib/python3.12/json/decoder.py", "decode", 40),
    ];
    for (pid, pauses) in processes {
        lines.push(format!(
            r#"{{"ph":"M","name":"gctrace_process","pid":{pid},"tid":{pid},"ts":0.000,"args":{{"origin":"launched","command":["python","train.py"]}}}}"#
        ));
        for (n, (generation, us, stack)) in pauses.iter().enumerate() {
            let sf = stack.map_or(String::new(), |stack| format!(r#","sf":{stack}"#));
            lines.push(format!(
                r#"{{"ph":"X","cat":"gc","name":"gc gen{generation}","pid":{pid},"tid":{pid},"ts":{n}000.000,"dur":{us}.000{sf},"args":{{"generation":{generation},"reason":"automatic"}}}}"#
            ));
        }
    }
    let path = directory.join(name);
    let text = format!("{{\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"));
    std::fs::write(&path, text).unwrap();
    path
}

fn frame(id: u32, parent: Option<u32>, file: &str, function: &str, line: u32) -> String {
    let parent = parent.map_or(String::new(), |parent| format!(r#""parent":{parent},"#));
    format!(
        r#"{{"ph":"M","name":"gctrace_frame","pid":0,"tid":0,"args":{{"id":{id},{parent}"function":"{function}","file":"{file}","line":{line}}}}}"#
    )
}

const PAUSES: [(u8, u64, Option<u32>); 5] =
    [(0, 100, Some(3)), (2, 900, Some(3)), (0, 50, Some(2)), (1, 7, Some(1)), (2, 3000, None)];

fn export(path: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gctrace"))
        .arg("export")
        .arg(path)
        .args(options)
        .output_in_time()
        .unwrap()
}

fn printed(path: &Path, options: &[&str]) -> String {
    let output = export(path, options);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert_eq!(error, "");
    String::from_utf8(output.stdout).unwrap()
}

/// The sum of the weights of collapsed lines.
fn sum(collapsed: &str) -> u64 {
    let weights = collapsed.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    weights.map(|weight| weight.parse::<u64>().unwrap()).sum()
}

#[test]
fn collapsed_stacks_hold_all_time_with_a_stack() {
    let place = tempfile::tempdir().unwrap();
    let path = trace(place.path(), "t.json", &[(7, &PAUSES)]);
    let lines = printed(&path, &["--format", "collapsed"]);
    let expected = "\
<module> (train.py:9) 7000
<module> (train.py:9);a:b c (train.py:5) 50000
<module> (train.py:9);a:b c (train.py:5);decode (/usr/lib/python3.12/json/decoder.py:40) 1000000
";
    assert_eq!(lines, expected);
    assert_eq!(sum(&lines), 1057 * US);
    let full = printed(&path, &["--format", "collapsed", "--generation", "2"]);
    assert_eq!(sum(&full), 900 * US);
    assert_eq!(full.lines().count(), 1);
    let counts = printed(&path, &["--format", "collapsed", "--by", "count"]);
    assert_eq!(sum(&counts), 4);
}

#[test]
fn several_processes_and_traces_have_a_frame_each() {
    let place = tempfile::tempdir().unwrap();
    let one = trace(place.path(), "a.json", &[(7, &PAUSES), (8, &PAUSES)]);
    let lines = printed(&one, &["--format", "collapsed"]);
    assert_eq!(sum(&lines), 2 * 1057 * US);
    let of = |root: &str| lines.lines().filter(|line| line.starts_with(root)).count();
    assert_eq!(of("python train.py (7);<module>"), 3);
    assert_eq!(of("python train.py (8);<module>"), 3);
    let two = trace(place.path(), "b.json", &[(7, &PAUSES)]);
    let two = two.to_str().unwrap();
    let lines = printed(&one, &[two, "--format", "collapsed"]);
    assert_eq!(sum(&lines), 3 * 1057 * US);
    assert!(lines.contains("\n#2 python train.py (7);<module>"), "{lines}");
}

/// Checks the requirements of speedscope's schema.
#[test]
fn speedscope() {
    let place = tempfile::tempdir().unwrap();
    let path = trace(place.path(), "t.json", &[(7, &PAUSES), (8, &PAUSES[..1])]);
    let out = place.path().join("o.json");
    let nothing = printed(&path, &["--format", "speedscope", "-o", out.to_str().unwrap()]);
    assert_eq!(nothing, "");
    let json: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(json["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = json["shared"]["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 3);
    assert!(frames.iter().all(|frame| frame["name"].is_string()));
    let profiles = json["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 2);
    for (profile, total) in profiles.iter().zip([1057 * US, 100 * US]) {
        assert_eq!(profile["type"], "sampled");
        assert_eq!(profile["unit"], "nanoseconds");
        assert!(profile["name"].is_string());
        let samples = profile["samples"].as_array().unwrap();
        let weights = profile["weights"].as_array().unwrap();
        assert_eq!(samples.len(), weights.len());
        let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
        assert_eq!(sum, total);
        assert_eq!(profile["startValue"], 0);
        assert_eq!(profile["endValue"], total);
        let indices = samples.iter().flat_map(|sample| sample.as_array().unwrap());
        for index in indices {
            assert!(index.as_u64().unwrap() < frames.len() as u64);
        }
    }
    // The outermost frame comes first.
    let sample = &profiles[0]["samples"][2];
    let name = |n: usize| &frames[usize::try_from(sample[n].as_u64().unwrap()).unwrap()]["name"];
    assert_eq!(
        (name(0), name(2)),
        (&"<module> (train.py:9)".into(), &"decode (decoder.py:40)".into())
    );
}

#[test]
fn svg_is_well_formed_and_names_the_frames() {
    let place = tempfile::tempdir().unwrap();
    let path = trace(place.path(), "t.json", &[(7, &PAUSES)]);
    let svg = printed(&path, &[]);
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("&lt;module&gt; (train.py:9) (1,057 µs, 100.00%)"));
    assert!(svg.contains("time by triggering stack"));
    let svg = printed(&path, &["--by", "count", "--generation", "0"]);
    assert!(svg.contains("&lt;module&gt; (train.py:9) (2 pauses, 100.00%)"));
    let python =
        "import sys, xml.dom.minidom; xml.dom.minidom.parseString(sys.stdin.buffer.read())";
    let checked =
        Command::new("python3").args(["-c", python]).stdin(std::process::Stdio::piped()).spawn();
    let Ok(mut child) = checked else {
        eprintln!("not checked as XML: there is no python3 here");
        return;
    };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), svg.as_bytes()).unwrap();
    assert!(child.status_in_time().unwrap().success());
}

/// Asserts exit code 1, no standard output, and a message that contains all `parts`.
fn refused(path: &Path, options: &[&str], needles: &[&str]) {
    let output = export(path, options);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let error = String::from_utf8(output.stderr).unwrap();
    for part in needles {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn without_stacks() {
    let place = tempfile::tempdir().unwrap();
    let path = trace(place.path(), "t.json", &[(7, &PAUSES[4..])]);
    refused(&path, &[], &["no stack in", "t.json", "--stack-depth 0", "sudo gctrace"]);
    let path = trace(place.path(), "t.json", &[(7, &PAUSES[2..3])]);
    refused(&path, &["--generation", "2"], &["no collection of generation 2 has a stack"]);
    for by in ["--by=cpu", "--by=layer"] {
        refused(&path, &["--generation=0", by], &["omit --generation"]);
    }
    refused(&place.path().join("none.json"), &[], &["No such file"]);
    refused(
        &path,
        &["-o", "/nonexistent/o.svg"],
        &["cannot create /nonexistent/o.svg", "No such file"],
    );
}

#[test]
fn nothing_is_overwritten_without_force() {
    let place = tempfile::tempdir().unwrap();
    let path = trace(place.path(), "t.json", &[(7, &PAUSES)]);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    let out = place.path().join("mine.txt");
    std::fs::write(&out, "mine").unwrap();
    let name = out.to_str().unwrap();
    refused(&path, &["-o", name], &["mine.txt: exists", "--force"]);
    assert_eq!(read("mine.txt"), "mine");
    let forced = export(&path, &["-o", name, "--force"]);
    assert!(forced.status.success(), "{forced:?}");
    assert!(read("mine.txt").contains("<module>"), "collapsed, by its name");
    let before = read("t.json");
    let itself = ["-o", path.to_str().unwrap(), "--force"];
    refused(&path, &itself, &["is the trace itself"]);
    assert_eq!(read("t.json"), before);
    let names = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(names, 2, "nothing is left behind");
}

/// Numbers as the script of the page reads them, by Python.
fn unpacked(text: &str) -> Vec<u64> {
    let script = "import base64, gzip, sys\n\
                  number, shift = 0, 0\n\
                  for byte in gzip.decompress(base64.b64decode(sys.argv[1])):\n \
                    number |= (byte & 127) << shift; shift += 7\n \
                    if byte < 128: print(number); number, shift = 0, 0";
    let mut python = Command::new("python3");
    let output = python.args(["-c", script, text]).output_in_time().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| line.parse().unwrap()).collect()
}

/// Two ranks of three steps, as the PyTorch profiler writes them.
#[test]
fn steps_of_ranks_are_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let mut traces = Vec::new();
    for rank in 0..2 {
        let step = |n: u64, from: u64, us: u64| {
            format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{n}","pid":7,"tid":7,"ts":{from}.000,"dur":{us}.000,"args":{{}}}}"#
            )
        };
        let pause = r#"{"ph":"X","cat":"python_function","name":"Python GC","pid":7,"tid":7,"ts":1500.000,"dur":200.000,"args":{"generation":2,"collected":0}}"#;
        let steps = [
            step(5, 0, 1000),
            step(6, 1000, 1000 + 700 * rank),
            step(7, 4000, 900),
            pause.to_owned(),
        ];
        let path = directory.path().join(format!("rank{rank}.json"));
        let text = format!(
            r#"{{"schemaVersion":1,"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":2}},"traceEvents":[{}]}}"#,
            steps.join(",")
        );
        std::fs::write(&path, text).unwrap();
        traces.push(path);
    }
    let page = directory.path().join("steps.html");
    let (second, page) = (traces[1].to_str().unwrap(), page.to_str().unwrap());
    let first = traces[0].to_str().unwrap();
    let mut report = Command::new(env!("CARGO_BIN_EXE_gctrace"));
    let output = report.args(["report", first, second, "-o", page]).output_in_time().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(page).unwrap();
    let data = page.split(r#"<script type="application/json" id="data">"#).nth(1).unwrap();
    let data: Value = serde_json::from_str(data.split("</script>").next().unwrap()).unwrap();
    let heat = &data[0]["heat"];
    assert_eq!(heat["rows"], serde_json::json!(["rank 0", "rank 1"]));
    assert_eq!(heat["columns"], serde_json::json!(["5", "6", "7"]));
    let [name, lengths] = [0, 1].map(|part| heat["figures"][0][part].as_str().unwrap());
    assert_eq!(name, "Length of the step");
    // One more than the microseconds: 0 is no step.
    assert_eq!(unpacked(lengths), [1001, 1001, 901, 1001, 1701, 901]);

    let refused = export(&traces[0], &["-o", "steps.html"]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("gctrace report"), "{error}");
    assert!(!refused.status.success() && refused.stdout.is_empty());
}
