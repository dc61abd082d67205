//! Tests that need no privileges.

mod abi;
mod cupti;
mod example;
mod nvml;
mod processes;
