//! Torch tier: PyTorch recorded in-process by an ordinary user: a loader's workers, and four ranks
//! of torchrun, against `gc.get_stats()` of each.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::path::{Path, PathBuf};
use std::process::Output;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::Trace;
use test_kit::recording::user::OrdinaryUser;
use test_kit::{interpreters, recording};

/// Runs the script as `python SCRIPT` would, and writes what the interpreter counted from its start
/// to its end.
const RUNNER: &str = "
import gc, json, os, runpy, sys, time
base, since_ns = gc.get_stats(), time.monotonic_ns()
script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(script)
if __name__ == '__main__':
    runpy.run_path(script, run_name='__main__')
    gc.set_threshold(1 << 30, 1 << 30, 1 << 30)
    until_ns = time.monotonic_ns()
    with open('truths/%d.json' % os.getpid(), 'w') as file:
        json.dump({'pid': os.getpid(), 'since_ns': since_ns, 'until_ns': until_ns,
                   'base': base, 'stats': gc.get_stats()}, file)
";

/// Records a command line of torch's Python as an ordinary user.
fn record(user: &OrdinaryUser, python: &Path, arguments: &[&str]) -> Output {
    let venv = python.ancestors().nth(2).unwrap();
    let examples = recording::scripts().join("../../examples").canonicalize().unwrap();
    let mut command = user.command(&[venv, &examples], &user.file("bin/gctrace"));
    command
        .args(["--mode", "inject", "-o", "trace.json", "--"])
        .arg(python)
        .args(arguments)
        .env("OMP_NUM_THREADS", "1");
    command.output_in_time().unwrap()
}

fn prepare(test: &str) -> Option<(OrdinaryUser, PathBuf, String)> {
    let (python, user) = (interpreters::torch(test)?, OrdinaryUser::for_test(test)?);
    std::fs::write(user.file("runner.py"), RUNNER).unwrap();
    let truths = user.file("truths");
    user.command(&[], Path::new("mkdir")).arg(truths).status_in_time().unwrap();
    let script = recording::scripts().join("../../examples/train_torch.py");
    let script = script.canonicalize().unwrap().to_str().unwrap().to_owned();
    Some((user, python, script))
}

/// Asserts that each process that wrote its truth has that number of pauses; returns their sum.
fn compare(trace: &Trace, user: &OrdinaryUser) -> usize {
    trace.assert_nothing_lost();
    let truths = recording::truths(&user.file("truths"));
    for truth in &truths {
        let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
        let time = |name: &str| truth[name].as_u64().unwrap();
        let life = time("since_ns")..time("until_ns");
        let pauses = pauses.iter().filter(|pause| life.contains(&pause.start_ns));
        let counted = recording::collections_since_base(truth);
        assert_eq!(recording::by_generation(pauses), counted, "{truth}");
        assert!(counted[&2] > 0, "importing torch alone collects all generations");
    }
    truths.len()
}

/// The program's output contains nothing from the library; a missing CUPTI is reported at most
/// once.
fn is_quiet(output: &Output) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!printed.contains("ld.so"), "{printed}");
    assert!(printed.matches("CUPTI").count() <= 1, "{printed}");
}

#[test]
fn a_loader_with_workers() {
    let test = "a_loader_with_workers";
    let Some((user, python, script)) = prepare(test) else {
        return;
    };
    let line = ["runner.py", &script, "--steps", "20", "--workers", "2"];
    let output = record(&user, &python, &line);
    assert!(output.status.success(), "{output:?}");
    is_quiet(&output);
    let trace = Trace::read(&user.file("trace.json"));
    assert_eq!(compare(&trace, &user), 1);
    let processes = trace.named("gctrace_process");
    let children = processes.iter().filter(|(_, args)| args["origin"] == "child");
    assert!(children.count() >= 2, "the loader's workers: {processes:?}");
}

#[test]
fn four_ranks_of_torchrun() {
    let test = "four_ranks_of_torchrun";
    let Some((user, python, script)) = prepare(test) else {
        return;
    };
    let line = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "4",
        "runner.py",
        &script,
        "--steps",
        "5",
    ];
    let output = record(&user, &python, &line);
    assert!(output.status.success(), "{output:?}");
    is_quiet(&output);
    let trace = Trace::read(&user.file("trace.json"));
    assert_eq!(compare(&trace, &user), 4);
    let processes = trace.named("gctrace_process");
    let mut ranks: Vec<u64> =
        processes.iter().filter_map(|(_, args)| args["rank"].as_u64()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    assert_eq!(ranks, [0, 1, 2, 3]);
}
