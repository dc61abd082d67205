//! gctrace's vocabulary of events and the trace.json format.

mod record;

pub use record::End;
pub use record::Header;
pub use record::Interpreter;
pub use record::Note;
pub use record::Omitted;
pub use record::Origin;
pub use record::Pause;
pub use record::ProbeCost;
pub use record::Process;
pub use record::ProcessExit;
pub use record::Reason;
pub use record::Record;
pub use record::Settings;

/// Name and version of the trace format, the value of `format` in a trace's first line.
pub const FORMAT: &str = "gctrace.trace/1";
