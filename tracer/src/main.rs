//! The `gctrace` command.
#![expect(
    dead_code,
    unused_imports,
    reason = "the modules grow before their caller"
)]
mod args;
mod hints;
mod launch;
fn main() {}
