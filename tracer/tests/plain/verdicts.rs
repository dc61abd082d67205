//! What following the first advice brings, in six of the programs of `tests/verdict` whose remedies
//! were measured.

use std::process::Command;
use test_kit::{interpreters, recording};

#[test]
fn the_first_advice_saves_what_was_measured() {
    let test = "the_first_advice_saves_what_was_measured";
    let Some(python) = interpreters::python(test, "system-3.11") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let folder = interpreters::root().join("tests/verdict");
    // Remedies that were not measured yet are added to the copy.
    let truth = place.path().join("truth.csv");
    std::fs::copy(folder.join("truth.csv"), &truth).unwrap();
    let output = Command::new(&python.path)
        .arg(folder.join("matrix.py"))
        .args(["--few", "--repeat", "1", "--gctrace", recording::binary(), "--truth"])
        .arg(&truth)
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
}
