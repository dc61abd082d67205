//! What the parts of the GPU bundle compute; the bundle itself is tried by tests/gpu_bundle.sh.

mod common;

use common::limit::WithTimeout as _;
use std::process::Command;

#[test]
fn the_parts_tell_agreement_from_difference() {
    let test = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/python/test_gpu_bundle.py"
    );
    let output = match Command::new("python3").arg(test).output_in_time() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped the_parts_tell_agreement_from_difference: python3: {error}");
            return;
        }
    };
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    assert!(report.contains("Ran 13 tests"), "{report}");
}
