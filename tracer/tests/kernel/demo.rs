//! Kernel tier: `gctrace demo`.

use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::Trace;

#[test]
fn the_demonstration_records_and_explains() {
    if !recording::privileged("the_demonstration_records_and_explains") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(recording::binary())
        .args(["demo", "--steps", "80", "--auto"])
        .current_dir(place.path())
        .env_remove("SUDO_UID")
        .env("TMPDIR", place.path())
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("is simulated"), "{printed}");
    assert!(printed.contains("80 steps in"), "{printed}");
    assert!(printed.contains("Do this"), "{printed}");
    assert!(printed.contains("8000 steps in"), "{printed}");
    // Whether a gain is proven depends on the machine.
    let found = std::fs::read(place.path().join("demo-auto.json")).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&found).unwrap();
    let events = &found["processes"][0]["events"];
    assert_eq!(events[0]["decision"], "explore", "{found}");
    let full = recording::gctrace(&["analyze", "--full", "demo.json"], place.path());
    let full = String::from_utf8(full.stdout).unwrap();
    assert!(full.contains("gctrace simulated GPU"), "{full}");
    let trace = Trace::read(&place.path().join("demo.json"));
    assert!(trace.pauses().len() > 40);
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(place.path().join("train_simgpu.py").exists());
}
