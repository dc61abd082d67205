//! Tests that need no privileges.

mod analyze;
mod apply;
mod compare;
mod docs;
mod export;
mod garbage_cycles;
mod garbage_report;
mod gpu_bundle;
mod heap;
mod heap_at_full;
mod heap_take;
mod install;
mod outputs;
mod printing;
mod rings;
mod signals;
mod step_function;
mod summaries;
mod summarize;
mod tables;
mod traces;
mod tune;
mod usage;
mod verdicts;
mod without_root;
mod write_limits;
