//! What instructions and unwind tables reveal about a file: functions, references, calls.
//!
//! Nothing here knows Python.

mod functions;
mod graph;
mod references;

pub(crate) use functions::FunctionTable;
pub(crate) use graph::CodeGraph;
