//! gctrace's analysis: events in, report out.
