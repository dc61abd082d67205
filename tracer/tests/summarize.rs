//! `gctrace summarize`: reports on summaries are those on the traces, and what kills leave behind.
//! Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::Process;
use gctrace_event::Record;
use gctrace_event::TraceHeader;
use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use test_kit::interpreters::root;
use test_kit::limit::WithTimeout as _;
use test_kit::records;

struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

/// A folder with traces, in which gctrace runs.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn add(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace"));
        command.args(arguments).current_dir(self.0.path());
        for set in ["ID", "COUNT", "MIN", "MAX", "STEP"] {
            command.env_remove(format!("SLURM_ARRAY_TASK_{set}"));
        }
        command.env_remove("JOB_COMPLETION_INDEX");
        command
    }

    fn gctrace(&self, arguments: &[&str]) -> Outcome {
        let output = self.command(arguments).output_in_time().unwrap();
        Outcome {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs `gctrace summarize` on the words, which must succeed.
    fn summarize(&self, words: &str) -> String {
        let words: Vec<&str> = std::iter::once("summarize")
            .chain(words.split_whitespace())
            .collect();
        let outcome = self.gctrace(&words);
        assert_eq!(outcome.code, Some(0), "{words:?}: {}", outcome.err);
        outcome.err
    }

    /// The JSON report.
    fn report(&self, words: &str) -> Outcome {
        let words: Vec<&str> = ["analyze", "--json"]
            .into_iter()
            .chain(words.split_whitespace())
            .collect();
        self.gctrace(&words)
    }

    /// Name and content of every file in a directory.
    fn files(&self, directory: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.path(directory))
            .into_iter()
            .flatten();
        let files = entries.map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        });
        files.collect()
    }
}

/// A gctrace trace of one rank with some pauses in stacks, other processes and a note.
fn rank(rank: u32) -> Vec<u8> {
    let header = TraceHeader {
        rank: Some(rank),
        ..records::header()
    };
    let mut all = vec![
        Record::Process(Process {
            pid: 77,
            rank: Some(rank),
            command: vec!["python".to_owned(), "train.py".to_owned()],
            ..Process::default()
        }),
        records::frame(1, None),
        records::frame(2, Some(1)),
    ];
    all.extend((0..200 + u64::from(rank)).map(|n| records::pause_in(n, 2)));
    records::written(&header, &all, &records::end("exited"))
}

/// Traces of all kinds, by name: real ones of the PyTorch profiler, gctrace's, damaged and cut ones.
fn traces(folder: &Folder) -> Vec<String> {
    let real = root().join("analysis/tests/data/kineto");
    let mut names = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| {
        folder.add(name, bytes);
        names.push(name.to_owned());
    };
    for name in ["sampled_rank0.json.gz", "sampled_rank1.json.gz"] {
        add(
            &format!("real/{name}"),
            std::fs::read(real.join(name)).unwrap(),
        );
    }
    for number in 0..4 {
        add(&format!("own/rank{number}.json"), rank(number));
    }
    let whole = rank(4);
    add("own/cut.json", whole[..whole.len() / 2].to_vec());
    let mut damaged = rank(5);
    let middle = damaged.len() / 2;
    damaged[middle..middle + 40].fill(b'{');
    add("own/damaged.json", damaged);
    add(
        "other/spans.json",
        br#"[{"ph":"X","name":"f","pid":1,"tid":1,"ts":5,"dur":70},
            {"ph":"X","cat":"gc","name":"gc gen2","pid":1,"tid":1,"ts":10,"dur":2.5},
            {"ph":"X","cat":"gc","name":"gc gen1","pid":"x","tid":1,"ts":10,"dur":2.5},
            {"ph":"i","name":"end","pid":2,"ts":900}]"#
            .to_vec(),
    );
    names
}

/// The message for every failure, without those that only summaries have.
fn messages(outcome: &Outcome) -> Vec<&str> {
    let lines = outcome.err.lines();
    lines
        .filter(|line| !line.contains("no trace and no summary"))
        .collect()
}

#[test]
fn a_report_on_summaries_is_that_on_the_traces() {
    let folder = Folder::new();
    let names = traces(&folder);
    // Each alone, all of a kind, and everything; the names sort like the summaries.
    let mut sets: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
    for kind in ["real/", "own/rank", ""] {
        let mut set: Vec<String> = names.clone();
        set.retain(|name| name.starts_with(kind));
        set.sort();
        sets.push(set);
    }
    for (at, set) in sets.iter().enumerate() {
        let set = set.join(" ");
        folder.summarize(&format!("{set} -o sums{at}"));
        let traces = folder.report(&set);
        let summaries = folder.report(&format!("sums{at}"));
        let without = |out: &str| {
            let mut report: serde_json::Value = serde_json::from_str(out).unwrap();
            let unreadable = report["missing"]["unreadable"].as_array_mut().unwrap();
            unreadable.retain(|line| !line.as_str().unwrap().contains("no trace and no summary"));
            report
        };
        assert_eq!(without(&traces.out), without(&summaries.out), "{set}");
        assert_eq!(messages(&traces), messages(&summaries), "{set}");
    }
}

/// Truth is the tables of the traces, to the byte; `tables.rs` compares those with other programs.
#[cfg(feature = "parquet")]
#[test]
fn tables_of_summaries_are_those_of_the_traces() {
    let folder = Folder::new();
    let mut names = traces(&folder);
    names.sort();
    folder.summarize(&format!("{} -o sums", names.join(" ")));
    let export = |words: &str, output: &str| {
        let words = ["export", "--format", "parquet", "-o", output]
            .into_iter()
            .chain(words.split_whitespace());
        let outcome = folder.gctrace(&words.collect::<Vec<_>>());
        (outcome, folder.files(output))
    };
    let whole = names.join(" ");
    let (of_traces, tables) = export(&whole, "of-traces");
    assert!(tables.len() == 9 && tables.values().all(|bytes| !bytes.is_empty()));
    // A directory, and every other one as its trace; the names sort like the summaries.
    let mixed = names.iter().enumerate().map(|(at, name)| match at % 2 {
        0 => name.clone(),
        _ => format!("sums/{}.gcsum", name.replace('/', "%2F")),
    });
    let mixed = mixed.collect::<Vec<_>>().join(" ");
    for (words, output) in [("sums", "of-summaries"), (&mixed, "of-both")] {
        let (outcome, found) = export(words, output);
        assert_eq!(outcome.code, of_traces.code, "{words}: {}", outcome.err);
        assert_eq!(messages(&outcome), messages(&of_traces), "{words}");
        assert!(found == tables, "{words}");
    }
    // Tables of some ranks are no error, but it is said which.
    let (some, found) = export("sums/own%2Frank1.json.gcsum", "of-one");
    assert_eq!((some.code, found.len()), (Some(0), 9), "{}", some.err);
    assert!(
        some.err
            .contains("rank 0 (of 2 or more): no trace and no summary")
    );
}

/// As a trace and its summary, also under another name, and as two summaries; in both orders.
#[test]
fn a_trace_that_is_given_again_does_not_count() {
    let folder = Folder::new();
    for number in 0..2 {
        folder.add(&format!("rank{number}.json"), rank(number));
    }
    folder.add("copy.json", rank(1));
    folder.summarize("rank0.json rank1.json -o sums");
    folder.summarize("copy.json -o others");
    let once = folder.report("rank0.json rank1.json");
    for (first, again) in [
        ("rank1.json", "sums/rank1.json.gcsum"),
        ("sums/rank1.json.gcsum", "copy.json"),
        ("sums/rank1.json.gcsum", "others/copy.json.gcsum"),
    ] {
        for (first, again) in [(first, again), (again, first)] {
            let outcome = folder.report(&format!("rank0.json {first} {again}"));
            let expected = format!("{again}: is the same trace as {first}: name one of them");
            assert_eq!(outcome.code, Some(1), "{}", outcome.err);
            assert!(outcome.err.contains(&expected), "{}", outcome.err);
            let totals = |out: &str| {
                let report: serde_json::Value = serde_json::from_str(out).unwrap();
                report["totals"].clone()
            };
            assert_eq!(totals(&outcome.out), totals(&once.out), "{first} {again}");
            if cfg!(feature = "parquet") {
                let words = ["export", "--format", "parquet", "-o", "t", "--force"];
                let outcome = folder.gctrace(&[&words[..], &[first, again]].concat());
                assert_eq!(outcome.code, Some(1), "{}", outcome.err);
                assert!(outcome.err.contains(&expected), "{}", outcome.err);
            }
        }
    }
}

/// The command in the message makes it right, wherever it is run.
#[test]
fn a_summary_of_a_trace_that_changed_is_refused() {
    let folder = Folder::new();
    folder.add("job/rank 0.json", rank(0));
    let summarize = folder
        .command(&["summarize", "rank 0.json", "-o", "made/sums"])
        .current_dir(folder.path("job"))
        .output_in_time();
    assert!(summarize.unwrap().status.success());
    let sum = "job/made/sums/rank 0.json.gcsum";
    // Somewhere else, and where no trace is near, it is of a trace that may have another name by now.
    folder.add("rank 0.json", rank(7));
    folder.add(
        "far/away/from/all/x.gcsum",
        std::fs::read(folder.path(sum)).unwrap(),
    );
    let analyze = |path: &str| folder.gctrace(&["analyze", "--json", path]);
    let before = analyze(sum);
    assert_eq!(before.code, Some(0), "{}", before.err);
    assert_eq!(analyze("far/away/from/all").out, before.out);

    let changed = [rank(0), b"\n".to_vec()].concat();
    folder.add("job/rank 0.json", &changed);
    let outcome = analyze("job/made/sums");
    assert_eq!(
        (outcome.code, &*outcome.out),
        (Some(1), ""),
        "{}",
        outcome.err
    );
    let expected = format!("(was {} bytes, is {}): ", rank(0).len(), changed.len());
    let (problem, command) = outcome.err.split_once(&expected).unwrap();
    assert!(
        problem.contains(&format!("rank 0.json: has changed since {sum}")),
        "{problem}"
    );
    let (directory, command) = command.trim().split_once(" && gctrace ").unwrap();
    assert_eq!(command, "summarize 'rank 0.json' -o made/sums");
    let script = format!(
        "{directory} && exec '{}' {command}",
        env!("CARGO_BIN_EXE_gctrace")
    );
    let output = Command::new("sh").arg("-c").arg(script).output_in_time();
    assert!(output.unwrap().status.success());
    let after = analyze(sum);
    assert_eq!((after.code, after.out), (Some(0), before.out));
}

#[test]
fn traces_and_summaries_can_be_mixed() {
    let folder = Folder::new();
    for number in 0..4 {
        folder.add(&format!("rank{number}.json"), rank(number));
    }
    folder.summarize("rank1.json rank2.json -o sums");
    let traces = folder.report("rank0.json rank1.json rank2.json rank3.json");
    let mixed = folder.report("rank0.json sums rank3.json");
    assert_eq!(traces.code, Some(0), "{}", traces.err);
    assert_eq!((mixed.code, mixed.err), (Some(0), String::new()));
    assert_eq!(traces.out, mixed.out);
}

#[test]
fn a_killed_run_is_finished_by_the_next_with_the_same_bytes() {
    let folder = Folder::new();
    let mut names = traces(&folder);
    for number in 6..12 {
        let name = format!("own/rank{number}.json");
        folder.add(&name, rank(number));
        names.push(name);
    }
    let set = names.join(" ");
    let started = std::time::Instant::now();
    folder.summarize(&format!("{set} -o whole --jobs 1"));
    let took = started.elapsed();
    let whole = folder.files("whole");
    assert_eq!(whole.len(), names.len());
    let arguments = format!("summarize {set} -o killed --jobs 1");
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let mut cut_short = 0;
    for kills in 1..=20u32 {
        let mut child = folder.command(&arguments).spawn().unwrap();
        // Times of the whole run, in no order.
        let part = f64::from(kills * 8 % 21) / 21.0;
        std::thread::sleep(took.mul_f64(part).min(Duration::from_secs(20)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        cut_short += u32::from(!status.success());
        // What is there under its name is complete.
        for (name, bytes) in folder.files("killed") {
            if let Some(expected) = whole.get(&name) {
                assert!(bytes == *expected, "{name} after kill {kills}");
            }
        }
        if kills % 4 == 0 {
            folder.summarize(&format!("{set} -o killed"));
            assert!(folder.files("killed") == whole, "after kill {kills}");
            std::fs::remove_dir_all(folder.path("killed")).unwrap();
        }
    }
    assert!(cut_short > 0, "no run was killed while it ran");
}

#[test]
fn a_rerun_makes_only_what_is_missing_or_outdated_and_says_so() {
    let folder = Folder::new();
    for number in 0..3 {
        folder.add(&format!("rank{number}.json"), rank(number));
    }
    let all = "rank0.json rank1.json rank2.json -o sums";
    assert!(
        folder
            .summarize(all)
            .contains("sums: 3 new, 0 complete before, 0 failed")
    );
    assert!(
        folder
            .summarize(all)
            .contains("sums: 0 new, 3 complete before, 0 failed")
    );
    let before = folder.files("sums");
    // A source that changed, one summary that lost its end, one of another gctrace.
    folder.add("rank0.json", rank(9));
    folder.add("sums/rank1.json.gcsum", &before["rank1.json.gcsum"][..600]);
    let other = br#"{"schema":"gctrace.summary/9","gctrace":"9.9.9"}"#;
    folder.add("sums/rank2.json.gcsum", [&other[..], b"\n"].concat());
    let output = folder.summarize(all);
    for part in [
        "rank0.json: has changed since it was summarized",
        "rank1.json.gcsum: is no complete summary",
        "rank2.json.gcsum: is of gctrace 9.9.9",
        "sums: 3 new",
    ] {
        assert!(output.contains(part), "{part:?} is not in: {output}");
    }
    let after = folder.files("sums");
    assert_ne!(before["rank0.json.gcsum"], after["rank0.json.gcsum"]);
    assert!(before["rank1.json.gcsum"] == after["rank1.json.gcsum"]);
    assert!(before["rank2.json.gcsum"] == after["rank2.json.gcsum"]);
}

#[test]
fn what_is_missing_is_named() {
    let folder = Folder::new();
    for number in 0..6 {
        folder.add(&format!("rank{number}.json"), rank(number));
    }
    folder.summarize("rank0.json rank1.json rank2.json rank4.json rank5.json -o sums");
    let sums = folder.files("sums");
    let cut = &sums["rank1.json.gcsum"];
    folder.add("sums/rank1.json.gcsum", &cut[..cut.len() - 7]);
    let mut flipped = sums["rank2.json.gcsum"].clone();
    *flipped.last_mut().unwrap() ^= 1;
    folder.add("sums/rank2.json.gcsum", flipped);
    let mut other = br#"{"schema":"gctrace.summary/1","gctrace":"9.9.9"}"#.to_vec();
    other.push(b'\n');
    other.extend(b"a body of another kind");
    folder.add("sums/rank4.json.gcsum", other);
    // A copy under another name, too.
    folder.add("sums/copy.gcsum", &sums["rank0.json.gcsum"]);
    let outcome = folder.report("sums");
    assert_eq!(outcome.code, Some(1), "{}", outcome.err);
    let report: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    let unreadable = report["missing"]["unreadable"].to_string();
    for part in [
        "rank1.json.gcsum: is no complete summary",
        "rank2.json.gcsum: is no complete summary",
        "rank4.json.gcsum: is a summary (gctrace.summary/1) of gctrace 9.9.9",
        "rank0.json.gcsum: is the same trace as sums/copy.gcsum: name one of them",
        "ranks 1, 2, 3, 4 (of 6 or more)",
    ] {
        assert!(
            outcome.err.contains(part),
            "{part:?} is not in: {}",
            outcome.err
        );
        assert!(
            unreadable.contains(part),
            "{part:?} is not in: {unreadable}"
        );
    }
    assert_eq!(report["traces"].as_array().unwrap().len(), 2);
}

#[test]
fn shards_are_all_traces_once() {
    let folder = Folder::new();
    let names: Vec<String> = (0..7).map(|number| format!("rank{number}.json")).collect();
    for (name, number) in names.iter().zip(0..) {
        folder.add(name, rank(number));
    }
    let forward = names.join(" ");
    let backward: Vec<String> = names.iter().rev().cloned().collect();
    let backward = backward.join(" ");
    folder.summarize(&format!("{forward} -o whole"));
    for shard in 0..3 {
        // The order in which a shell lists the files does not matter.
        let set = if shard == 1 { &backward } else { &forward };
        let said = folder.summarize(&format!("{set} -o parts --shard {shard}/3"));
        assert!(said.contains(", 0 complete before"), "{said}");
    }
    assert!(folder.files("parts") == folder.files("whole"));
    // As Slurm sets them for `--array=1-7:3`, and Kubernetes for an indexed job.
    for id in [1, 4, 7] {
        let arguments = format!("summarize {forward} -o slurm --shard auto");
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let output = folder
            .command(&arguments)
            .env("SLURM_ARRAY_TASK_ID", id.to_string())
            .env("SLURM_ARRAY_TASK_COUNT", "3")
            .env("SLURM_ARRAY_TASK_MIN", "1")
            .env("SLURM_ARRAY_TASK_MAX", "7")
            .env("SLURM_ARRAY_TASK_STEP", "3")
            .output_in_time()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert!(folder.files("slurm") == folder.files("whole"));
    for index in 0..2 {
        let arguments = format!("summarize {forward} -o indexed --shard auto/2");
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let mut command = folder.command(&arguments);
        command.env("JOB_COMPLETION_INDEX", index.to_string());
        assert!(command.output_in_time().unwrap().status.success());
    }
    assert!(folder.files("indexed") == folder.files("whole"));
    let outcome = folder.gctrace(&["summarize", "rank0.json", "-o", "x", "--shard", "auto"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.err);
    assert!(!folder.path("x").exists());
}

#[test]
fn what_cannot_be_summarized_is_an_error() {
    let folder = Folder::new();
    folder.add("rank0.json", rank(0));
    folder.summarize("rank0.json -o sums");
    folder.add("taken/rank0.json.gcsum", "a text of the user");
    for (words, part) in [
        ("missing.json -o sums", "missing.json: cannot be read"),
        ("sums/rank0.json.gcsum -o sums", "is a summary already"),
        ("- -o sums", "standard input"),
        ("sums -o sums", "is a directory"),
        ("rank0.json -o taken", "exists and is no summary"),
        ("rank0.json -o rank0.json", "rank0.json"),
    ] {
        let words: Vec<&str> = std::iter::once("summarize")
            .chain(words.split_whitespace())
            .collect();
        let outcome = folder.gctrace(&words);
        assert_eq!(outcome.code, Some(1), "{words:?}: {}", outcome.err);
        assert!(outcome.err.contains(part), "{words:?}: {}", outcome.err);
    }
    let kept = std::fs::read_to_string(folder.path("taken/rank0.json.gcsum")).unwrap();
    assert_eq!(kept, "a text of the user");
    assert_eq!(folder.files("sums").len(), 1);
}

/// The trace is no part of gctrace's own: nothing but the summary is left of it.
#[test]
fn traces_are_not_needed_after_their_summary() {
    let folder = Folder::new();
    folder.add("rank0.json", rank(0));
    folder.summarize("rank0.json -o sums");
    let before = folder.report("sums");
    std::fs::remove_file(folder.path("rank0.json")).unwrap();
    let after = folder.report("sums");
    assert_eq!((before.code, before.out), (after.code, after.out));
    assert!(Path::new(&folder.path("sums/rank0.json.gcsum")).exists());
}

/// Recording writes a summary of its own, and the exit code stays that of the command.
#[test]
fn a_recording_summarizes_its_trace() {
    let test = "a_recording_summarizes_its_trace";
    let Some(python) = test_kit::interpreters::python(test, "pyenv-3.12") else {
        return;
    };
    let folder = Folder::new();
    let program = python.path.to_str().unwrap();
    let script = "import gc, sys; gc.collect(); sys.exit(7)";
    let record = |directory: &str| {
        let mut words = vec!["record", "--mode", "inject", "-o", "own.json.gz"];
        words.extend(["--summary", directory, "--", program, "-c", script]);
        folder.gctrace(&words)
    };
    let outcome = record("own");
    assert_eq!(outcome.code, Some(7), "{}", outcome.err);
    assert!(outcome.err.contains("own: 1 new"), "{}", outcome.err);
    let (trace, summary) = (folder.report("own.json.gz"), folder.report("own"));
    assert_eq!((trace.code, trace.out), (summary.code, summary.out));
    // A file is in the way: the trace is there all the same.
    folder.add("file", "");
    let outcome = record("file");
    assert_eq!(outcome.code, Some(7), "{}", outcome.err);
    assert!(outcome.err.contains("file"), "{}", outcome.err);
    assert_eq!(folder.report("own.json.gz").code, Some(0));
    let refused = folder.gctrace(&["record", "-o", "-", "--summary", "s", "--", program]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
}

/// The driver in the wheel. The first task's gctrace kills the worker that started it.
#[test]
fn ray_makes_all_summaries_though_a_worker_is_killed() {
    let test = "ray_makes_all_summaries_though_a_worker_is_killed";
    let python = std::env::var_os("GCTRACE_RAY_PYTHON").filter(|path| !path.is_empty());
    let Some(python) = python else {
        println!("skipped {test}: GCTRACE_RAY_PYTHON is not set");
        return;
    };
    let folder = Folder::new();
    let names: Vec<String> = (0..6).map(|number| format!("rank{number}.json")).collect();
    for (name, number) in names.iter().zip(0..) {
        folder.add(name, rank(number));
    }
    // As `pip install --target` leaves it.
    let package = root().join("packaging/python/src/gctrace");
    for name in ["__init__.py", "on_ray.py"] {
        let text = std::fs::read(package.join(name)).unwrap();
        folder.add(&format!("packages/gctrace/{name}"), text);
    }
    let real = env!("CARGO_BIN_EXE_gctrace");
    folder.add(
        "packages/bin/gctrace",
        format!(
            "#!/bin/sh\necho \"$2\" >> ../started\nif mkdir ../killed; then kill -9 $PPID; exit 1; fi\n\
             exec {real} \"$@\"\n"
        )
        .replace("../", &format!("{}/", folder.0.path().display())),
    );
    let program = folder.path("packages/bin/gctrace");
    std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new(python)
        .arg(root().join("tests/python/ray_summaries.py"))
        .arg(folder.path("packages"))
        .arg("sums")
        .args(&names)
        .current_dir(folder.0.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    assert!(
        printed.contains("sums: summaries of 6 traces, 0 failed"),
        "{printed}"
    );
    assert!(folder.path("killed").exists(), "no worker was killed");
    let started = std::fs::read_to_string(folder.path("started")).unwrap();
    assert_eq!(started.lines().count(), names.len() + 1, "{started}");
    folder.summarize(&format!("{} -o whole", names.join(" ")));
    assert!(folder.files("sums") == folder.files("whole"));
}
