//! Tests that need no privileges.

mod allocations;
mod apply;
mod apply_harness;
mod apply_processes;
mod apply_unseen;
mod called;
mod collections;
mod cupti;
mod cupti_faults;
mod cupti_harness;
mod cupti_processes;
mod cupti_training;
mod garbage;
mod garbage_births;
mod garbage_cycles;
mod garbage_harness;
mod garbage_processes;
mod late;
mod lifecycle;
mod steps;
mod switched_off;
mod turns;
mod unseen;
