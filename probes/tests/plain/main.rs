//! Tests that need no privileges.

mod aarch64;
mod aarch64_offsets;
mod damage;
mod frames;
mod garbage;
mod ladder;
#[path = "frames/line_tables.rs"]
mod line_tables;
mod live;
mod nvml;
