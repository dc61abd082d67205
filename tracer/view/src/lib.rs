//! The output of gctrace's commands.
//!
//! Owns the form of a [`document`] and its writers, and the report and comparisons as documents ([`render`]). Neither
//! reads files nor decides where output goes.

pub mod document;
pub mod render;
pub mod setting;

use gctrace_analysis::units;
use gctrace_base::{print, text, unseen};
