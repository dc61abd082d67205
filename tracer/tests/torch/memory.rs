//! Torch tier: calls of `empty_cache()`, snapshots of device memory and numbers of epochs, of a PyTorch without a GPU.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::path::Path;
use std::process::Output;
use test_kit::limit::WithTimeout as _;
use test_kit::{interpreters, recording};

/// Records a script of `tests/python` in a folder.
fn recorded(
    python: &Path,
    options: &[&str],
    script: &str,
    arguments: &[&str],
    place: &Path,
) -> Output {
    let script = recording::scripts().join(script);
    let mut line = vec!["record", "--mode", "inject"];
    line.extend(options);
    line.extend(["--", python.to_str().unwrap(), script.to_str().unwrap()]);
    line.extend(arguments);
    let output = recording::gctrace(&line, place);
    assert!(output.status.success(), "{output:?}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// PyTorch's own function; what it gives back is unknown without a GPU.
#[test]
fn empty_cache_of_pytorch_itself() {
    let test = "empty_cache_of_pytorch_itself";
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("program.py");
    let program = "import torch\n\ndef serve():\n    return torch._C._cuda_emptyCache()\n\n\
                   print([serve() for _ in range(5)])\n";
    std::fs::write(&script, program).unwrap();
    let line = ["record", "--mode", "inject", "--", python.to_str().unwrap()];
    let output =
        recording::gctrace(&[&line[..], &[script.to_str().unwrap()]].concat(), place.path());
    assert_eq!(text(&output.stdout).trim(), "[None, None, None, None, None]", "{output:?}");
    let json = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let sites = report["processes"][0]["cleanup"]["sites"].as_array().unwrap();
    let site = sites.iter().find(|site| site["call"] == "empty_cache").unwrap();
    assert_eq!((&site["location"]["line"], &site["calls"]), (&4.into(), &5.into()), "{site}");
    assert_eq!((&site["verdict"], &site["device_bytes"]), (&"unknown".into(), &().into()));
}

/// Written at the end, and where the file was moved away; a pickle that PyTorch's viewer reads.
#[test]
fn snapshots_of_device_memory() {
    let test = "snapshots_of_device_memory";
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let options = ["--layers", "2", "--memory-history", "m-%r.pickle"];
    let output = recorded(&python, &options, "torch_history.py", &["m-0.pickle"], place.path());
    let printed = text(&output.stdout);
    let history = "history {'max_entries': 100000, 'stacks': 'python'}";
    assert_eq!(printed.lines().collect::<Vec<_>>(), [history, "done"], "{output:?}");
    for name in ["m-0.pickle", "m-0.pickle.0", "m-0.pickle.1"] {
        let keys = "import pickle, sys; print(sorted(pickle.load(open(sys.argv[1], 'rb')))[:3])";
        let mut viewer = std::process::Command::new(&python);
        let read =
            viewer.args(["-c", keys, name]).current_dir(place.path()).output_in_time().unwrap();
        let keys = text(&read.stdout);
        assert!(
            keys.contains("allocator_settings") && keys.contains("device_traces"),
            "{name}: {read:?}"
        );
    }
    assert!(!place.path().join("m-0.pickle.part").exists());
}

/// The state as memory ran out stays: what follows does not replace it.
#[test]
fn a_snapshot_as_memory_runs_out() {
    let test = "a_snapshot_as_memory_runs_out";
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let options = ["--memory-history", "m.pickle"];
    let output =
        recorded(&python, &options, "torch_history.py", &["elsewhere", "full"], place.path());
    assert!(text(&output.stdout).contains("observers 1"), "{output:?}");
    assert!(place.path().join("m.pickle").exists());
}

#[test]
fn without_a_gpu_there_is_no_history() {
    let test = "without_a_gpu_there_is_no_history";
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let options = ["--memory-history", "m.pickle"];
    let output =
        recorded(&python, &options, "torch_history.py", &["m.pickle", "none"], place.path());
    assert_eq!(text(&output.stdout).trim(), "done");
    let why =
        "there is no history of device memory (--memory-history): the program has used no GPU";
    assert!(text(&output.stderr).contains(why), "{output:?}");
    assert!(!place.path().join("m.pickle").exists());
}

/// As a variable of the program's module has them, where the interpreter shows it.
#[test]
fn steps_have_their_epochs() {
    let test = "steps_have_their_epochs";
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let options = ["--layers", "1"];
    recorded(&python, &options, "torch_history.py", &["x", "none"], place.path());
    let csv = recording::gctrace(&["export", "--by", "layer", "trace.json"], place.path());
    let csv = text(&csv.stdout);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("iteration,epoch,rank,pid,layer,type,shape,device,kind,bytes"));
    let version = std::process::Command::new(&python)
        .args(["-c", "import sys; print(sys.version_info >= (3, 11))"])
        .output_in_time()
        .unwrap();
    let is_shown = text(&version.stdout).trim() == "True";
    let epoch_of = |step: u64| is_shown.then_some(u64::from(step > 10));
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let step: u64 = cells[0].parse().unwrap();
        assert_eq!(cells[1].parse().ok(), epoch_of(step), "{line}");
    }
    let json = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let points = report["processes"][0]["layers"]["over_time"].as_array().unwrap();
    assert!(points.len() > 10, "{points:?}");
    for point in points {
        let step = point["step"].as_u64().unwrap();
        assert_eq!(point["epoch"].as_u64(), epoch_of(step), "{point}");
    }
}
