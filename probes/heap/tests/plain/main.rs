//! Tests that need no privileges.

mod control;
#[path = "../script/mod.rs"]
mod script;
mod truth;
