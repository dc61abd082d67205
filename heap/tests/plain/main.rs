//! Tests that need no privileges.

mod control;
mod notebook;
mod schema;
#[path = "../script/mod.rs"]
mod script;
mod state;
mod truth;
