//! Torch tier: an ordinary PyTorch training script, unmodified; its collections against
//! `gc.get_stats()` at its end, and its workers followed.

use std::path::Path;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

/// Runs the script as `python SCRIPT` would, and writes what the interpreter counted to
/// `truth.json` when it is done; after that automatic collection is disabled.
const RUNNER: &str = "
import gc, json, os, runpy, sys
script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(script)
if __name__ == '__main__':
    runpy.run_path(script, run_name='__main__')
    gc.set_threshold(1 << 30, 1 << 30, 1 << 30)
    with open('truth.json', 'w') as file:
        json.dump({'pid': os.getpid(), 'stats': gc.get_stats()}, file)
";

#[test]
fn a_training_script_is_counted_exactly() {
    let test = "a_training_script_is_counted_exactly";
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("runner.py"), RUNNER).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/train_torch.py")
        .canonicalize()
        .unwrap();
    let line = [
        "--",
        python.to_str().unwrap(),
        "runner.py",
        script.to_str().unwrap(),
        "--steps",
        "20",
        "--workers",
        "2",
    ];
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    let truth = recording::json(&place.path().join("truth.json"));
    let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
    let running = pauses.iter().filter(|pause| pause.reason != "shutdown");
    assert_eq!(recording::by_generation(running), recording::stats(&truth, "collections"));
    assert!(
        recording::by_generation(&pauses)[&2] > 0,
        "importing torch alone collects all generations"
    );
    let children =
        trace.named("gctrace_process").iter().filter(|(_, args)| args["origin"] == "child").count();
    assert!(children >= 2, "the loader's workers are followed: {children}");
}
