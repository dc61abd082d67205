//! Torch tier: `--alloc` on a training step.

use test_kit::{interpreters, recording};
#[test]
fn a_training_step() {
    let test = "a_training_step";
    if let Some(python) = interpreters::torch(test) {
        recording::allocations::the_rate_is_estimated(test, &python, "torch");
    }
}
