//! The gctrace version that a library file belongs to, for gctrace to read before it loads the file
//! into programs.

/// Name of the exported symbol [`GCTRACE_INJECT_VERSION`].
pub const VERSION_SYMBOL: &str = "GCTRACE_INJECT_VERSION";

/// Version of gctrace that this crate is part of, as in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version as exported by the library: not NUL-terminated.
// SAFETY: no other crate has a symbol of this name.
#[unsafe(no_mangle)]
pub static GCTRACE_INJECT_VERSION: [u8; VERSION.len()] = {
    let mut text = [0; VERSION.len()];
    text.copy_from_slice(VERSION.as_bytes());
    text
};
