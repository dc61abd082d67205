//! Tests that need no privileges.

mod disk_full;
mod kineto;
mod members;
mod properties;
mod read;
mod records_page;
#[path = "strategies/mod.rs"]
mod strategies;
mod write;
