//! Tests with PyTorch: root.

mod heap;
#[path = "../script/mod.rs"]
mod script;
