//! Tests with PyTorch: root.

mod alloc;
mod counts;
mod cuda;
mod docs;
mod garbage;
mod inject;
mod layers;
mod memory;
mod package;
mod steps;
