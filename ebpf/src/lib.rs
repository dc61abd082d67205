//! gctrace's BPF programs and everything that meets the kernel's BPF.
