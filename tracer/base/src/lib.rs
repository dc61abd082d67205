//! The base of all commands of gctrace.
//!
//! Owns its output ([`mod@print`]), the files it writes and reads ([`files`]), the user that runs it ([`invoker`]), the
//! users it can trust (`trust`), environment variables, clocks, and the border to the system ([`platform`]). Not here:
//! arguments, and anything about Python.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "files of recordings"))]

pub mod files;
#[cfg_attr(not(target_os = "linux"), path = "invoker/elsewhere.rs")]
pub mod invoker;
#[cfg_attr(not(target_os = "linux"), path = "platform/elsewhere.rs")]
pub mod platform;
pub mod print;
pub mod text;
pub mod unseen;
pub mod variables;

#[cfg(target_os = "linux")]
pub mod clock;
#[cfg(target_os = "linux")]
pub mod trust;
#[cfg(target_os = "linux")]
pub mod wait;

use gctrace_analysis::units;
