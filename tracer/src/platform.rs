//! What gctrace takes from the system that it runs on. Linux has everything; other systems analyze
//! traces, but record none.
//!
//! Modules that exist everywhere use those of Linux only through here.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
