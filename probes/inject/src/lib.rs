//! `libgctrace_inject.so`.
