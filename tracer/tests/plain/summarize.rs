//! `gctrace summarize`: which summaries there are in the end, and what kills leave behind. Needs no
//! privileges.

use crate::traces;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use test_kit::interpreters::root;
use test_kit::limit::WithTimeout as _;
use traces::{Folder, rank, traces};

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

/// Killed after it gave a summary its name, gctrace leaves the files of earlier tries.
#[test]
fn what_killed_runs_left_beside_a_complete_summary_is_removed() {
    let folder = Folder::new();
    folder.add("rank0.json", rank(0));
    folder.add("rank1.json", rank(1));
    folder.summarize("rank0.json rank1.json -o sums");
    let whole = folder.files("sums");
    folder.add("sums/.rank0.json.gcsum-aB3xyz", "half");
    folder.add("sums/.rank2.json.gcsum-aB3xyz", "of a trace that is not summarized here");
    assert!(folder.summarize("rank0.json rank1.json -o sums").contains("0 new, 2 complete before"));
    std::fs::remove_file(folder.path("sums/.rank2.json.gcsum-aB3xyz")).unwrap();
    assert!(folder.files("sums") == whole, "{:?}", folder.files("sums").keys());
}

#[test]
fn a_rerun_makes_only_what_is_missing_or_outdated_and_says_so() {
    let folder = Folder::new();
    for number in 0..3 {
        folder.add(&format!("rank{number}.json"), rank(number));
    }
    let all = "rank0.json rank1.json rank2.json -o sums";
    assert!(folder.summarize(all).contains("sums: 3 new, 0 complete before, 0 failed"));
    assert!(folder.summarize(all).contains("sums: 0 new, 3 complete before, 0 failed"));
    let before = folder.files("sums");
    // A source that changed, one summary that lost its end, one of another gctrace.
    folder.add("rank0.json", rank(9));
    folder.add("sums/rank1.json.gcsum", &before["rank1.json.gcsum"][..600]);
    let other = br#"{"schema":"gctrace.summary/13","gctrace":"9.9.9"}"#;
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
        let words: Vec<&str> =
            std::iter::once("summarize").chain(words.split_whitespace()).collect();
        let outcome = folder.gctrace(&words);
        assert_eq!(outcome.code, Some(1), "{words:?}: {}", outcome.err);
        assert!(outcome.err.contains(part), "{words:?}: {}", outcome.err);
    }
    let kept = std::fs::read_to_string(folder.path("taken/rank0.json.gcsum")).unwrap();
    assert_eq!(kept, "a text of the user");
    assert_eq!(folder.files("sums").len(), 1);
}

/// Recording writes a summary of its own, and the exit code stays the command's.
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
        let mut words = vec!["record", "--mode", "inject", "-o", "own.json.zst"];
        words.extend(["--summary", directory, "--", program, "-c", script]);
        folder.gctrace(&words)
    };
    let outcome = record("own");
    assert_eq!(outcome.code, Some(7), "{}", outcome.err);
    assert!(outcome.err.contains("own: 1 new"), "{}", outcome.err);
    let (trace, summary) = (folder.report("own.json.zst"), folder.report("own"));
    assert_eq!((trace.code, trace.out), (summary.code, summary.out));
    // A file is in the way: the trace is there all the same.
    folder.add("file", "");
    let outcome = record("file");
    assert_eq!(outcome.code, Some(7), "{}", outcome.err);
    assert!(outcome.err.contains("file"), "{}", outcome.err);
    assert_eq!(folder.report("own.json.zst").code, Some(0));
    let refused = folder.gctrace(&["record", "-o", "-", "--summary", "s", "--", program]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
}

/// The driver in the wheel, on files and on a bucket. The first task's gctrace kills the worker that started it.
#[test]
fn ray_reports_on_files_and_buckets_though_a_worker_is_killed() {
    let test = "ray_reports_on_files_and_buckets_though_a_worker_is_killed";
    let named = std::env::var_os("GCTRACE_RAY_PYTHON").filter(|path| !path.is_empty());
    let python = named.map_or_else(|| root().join(".venv-ray/bin/python"), PathBuf::from);
    if !python.exists() {
        println!(
            "skipped {test}: no Ray at {}; scripts/venv.sh ray makes it, GCTRACE_RAY_PYTHON names it",
            python.display()
        );
        return;
    }
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
    let place = folder.0.path().display();
    folder.add(
        "packages/bin/gctrace",
        format!(
            "#!/bin/sh\nif [ \"$1\" = summarize ]; then\n  echo \"$*\" >> {place}/started\n  \
             if mkdir {place}/killed; then kill -9 $PPID; exit 1; fi\nfi\nexec {} \"$@\"\n",
            env!("CARGO_BIN_EXE_gctrace")
        ),
    );
    let program = folder.path("packages/bin/gctrace");
    std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new(python)
        .arg(root().join("tests/python/ray_summaries.py"))
        .arg(folder.path("packages"))
        .args(&names)
        .current_dir(folder.0.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output_in_time()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{errors}", String::from_utf8_lossy(&output.stdout));
    folder.summarize(&format!("{} -o whole", names.join(" ")));
    assert!(folder.files("sums") == folder.files("whole"));
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).unwrap();
    let expected = folder.report("whole").out;
    assert!(read("local.json") == expected);
    let of_bucket = read("bucket.json");
    assert!(of_bucket.contains("s3://bucket/job 42%/rank5.json"));
    assert!(of_bucket.replace("s3://bucket/job 42%/", "") == expected);
}

/// A FIFO has no writer, /dev/zero no end: neither is read, wherever a file is expected.
#[test]
fn what_is_no_file_is_not_read() {
    let folder = Folder::new();
    folder.add("rank0.json", rank(0));
    folder.summarize("rank0.json -o summaries");
    let place = folder.path("summaries");
    let fifo = Command::new("mkfifo").arg(place.join("rank1.gcsum")).status_in_time().unwrap();
    assert!(fifo.success());
    let outcome = folder.gctrace(&["analyze", "summaries"]);
    assert!(outcome.err.contains("rank1.gcsum: is no summary"), "{}", outcome.err);
    for arguments in [
        ["summarize", "/dev/zero", "-o", "zero"].as_slice(),
        &["analyze", "/dev/zero"],
        &["export", "/dev/zero", "-o", "zero.svg"],
    ] {
        let outcome = folder.gctrace(arguments);
        assert_eq!(outcome.code, Some(1), "{arguments:?}: {}", outcome.err);
        assert!(outcome.err.contains("/dev/zero"), "{}", outcome.err);
    }
}

#[test]
fn what_analyze_refuses_has_no_summary() {
    let folder = Folder::new();
    folder.add("rank0.json", rank(0));
    folder.add("empty.json", r#"{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"add","pid":9,"tid":9,"ts":1,"dur":2}]}"#);
    let refused = folder.gctrace(&["analyze", "empty.json"]);
    let alone = folder.gctrace(&["summarize", "empty.json", "-o", "sums"]);
    let both = folder.gctrace(&["summarize", "empty.json", "rank0.json", "-o", "sums"]);
    let why = "none of which is a usable garbage collection or a GPU operation";
    for (outcome, code) in [(&refused, 1), (&alone, 1), (&both, 1)] {
        assert_eq!(outcome.code, Some(code), "{}", outcome.err);
        assert!(outcome.err.contains(why), "{}", outcome.err);
    }
    let names: Vec<String> = folder.files("sums").into_keys().collect();
    assert_eq!(names, ["rank0.json.gcsum"]);
}
