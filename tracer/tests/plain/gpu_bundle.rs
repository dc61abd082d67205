//! The parsing and comparisons of the GPU bundle's parts; tests/gpu_bundle.sh tries the bundle
//! itself.

use std::process::Command;
use test_kit::limit::WithTimeout as _;

#[test]
fn the_parts_detect_differences() {
    let test = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/python/test_gpu_bundle.py");
    let output = match Command::new("python3").arg(test).output_in_time() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped the_parts_detect_differences: python3: {error}");
            return;
        }
    };
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    assert!(report.contains("Ran 13 tests"), "{report}");
}
