//! One recording of gctrace, and the command that it starts.
//!
//! Owns the order of a recording and its sources ([`record`]), the start of a command ([`launch`]), the process that
//! resumes stopped programs when gctrace dies ([`guardian`]), and the rights that it needs ([`privileges`]). Not here:
//! reports on a trace.
#![cfg(target_os = "linux")]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod guardian;
pub mod launch;
pub mod privileges;
pub mod record;

use gctrace_analysis::units;
use gctrace_args as args;
use gctrace_base::{clock, files, invoker, platform, print, text, trust, unseen, variables, wait};
