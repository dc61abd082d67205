#![expect(dead_code, unused, reason = "the modules grow before their caller")]
mod args;
fn main() {}
