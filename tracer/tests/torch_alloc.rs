//! Torch tier: `--alloc` on a training step.

mod common;

#[test]
fn a_training_step() {
    let test = "a_training_step";
    if let Some(python) = common::torch(test) {
        common::allocations::the_rate_is_estimated(test, &python, "torch");
    }
}
