//! Where gctrace's probes go: interpreters, functions, offsets.
