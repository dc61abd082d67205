//! Tests that load BPF programs into the running kernel: root.

mod load;
