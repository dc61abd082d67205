//! The comparison that scripts/gpu-check.sh makes on a real GPU, on made-up inputs; and that it says so
//! where there is none.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

#[path = "../../tests/limit.rs"]
mod limit;

use limit::InTime as _;
use std::path::Path;
use std::process::Command;

fn checkout() -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    folder.canonicalize().unwrap()
}

#[test]
fn the_comparison_tells_agreement_from_difference() {
    let test = checkout().join("tests/python/test_gpu_check.py");
    let output = match Command::new("python3").arg(test).output_in_time() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped the_comparison_tells_agreement_from_difference: python3: {error}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("Ran 8 tests") && !said.contains("skipped"),
        "{said}"
    );
}

#[test]
fn without_a_gpu_nothing_is_checked() {
    if Command::new("nvidia-smi").output_in_time().is_ok() {
        println!("skipped without_a_gpu_nothing_is_checked: nvidia-smi is here");
        return;
    }
    let output = Command::new("bash")
        .arg(checkout().join("scripts/gpu-check.sh"))
        .output_in_time()
        .expect("bash runs");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no NVIDIA GPU here"), "{said}");
}
