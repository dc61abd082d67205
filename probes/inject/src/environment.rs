//! Parses and removes the environment variables that configure this library.

use crate::apply::ApplyOptions;
use gctrace_ring::{
    InjectOptions, MEMORY_HISTORY_VARIABLE, OPTIONS_VARIABLE, RENDEZVOUS_VARIABLE,
    STEP_FUNCTION_VARIABLE,
};
use gctrace_settings::{APPLY_VARIABLE, ApplyRequest, FOLDER_VARIABLE};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const PRELOAD: &str = "LD_PRELOAD";
const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";

/// A path that a variable names, unless it is empty.
fn path_in(name: &str) -> Option<OsString> {
    let path = std::env::var_os(name)?;
    if path.is_empty() { None } else { Some(path) }
}

/// The options, and where gctrace listens; `None` if gctrace did not set them.
pub(crate) fn request() -> Option<(InjectOptions, Vec<u8>)> {
    let rendezvous = path_in(RENDEZVOUS_VARIABLE)?;
    let options = std::env::var_os(OPTIONS_VARIABLE).unwrap_or_default();
    Some((InjectOptions::parse(options.as_bytes()), rendezvous.into_vec()))
}

/// The settings of the collector to apply in this program; `None`: none. An error is for the user, if
/// the program turns out to be a Python.
pub(crate) fn apply_options() -> Option<Result<ApplyOptions, String>> {
    let variable = |name: &str| std::env::var(name).ok();
    let text = variable(APPLY_VARIABLE)?;
    let request = match ApplyRequest::parse(&text) {
        Ok(request) => request?,
        Err(error) => {
            return Some(Err(format!("{APPLY_VARIABLE}={text} is not applied: {error}")));
        }
    };
    let filters = match std::env::var_os(OPTIONS_VARIABLE) {
        Some(options) => InjectOptions::parse(options.as_bytes()).filters,
        // Without gctrace: only filters that the program adds confine it.
        None => crate::confined::own_filters().unwrap_or(u32::MAX),
    };
    let number = |name: &str| rank(&variable(name)?);
    Some(Ok(ApplyOptions {
        request,
        counts_function: matches!(variable(STEP_FUNCTION_VARIABLE), Some(name) if !name.is_empty()),
        folder: path_in(FOLDER_VARIABLE).map(PathBuf::from),
        rank: number("RANK"),
        ranks: number("WORLD_SIZE").unwrap_or(1),
        local_ranks: number("LOCAL_WORLD_SIZE"),
        filters,
    }))
}

/// A rank in decimal digits; `None`: unknown.
fn rank(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// Removes this library and gctrace's own variables from the environment, so that programs started
/// from here do not see them.
///
/// # Safety
/// No other thread may use the environment: call this while the program is being loaded.
pub(crate) unsafe fn scrub() {
    let own_file = own_file();
    let preload = std::env::var_os(PRELOAD).unwrap_or_default();
    let rest = others(preload.as_bytes(), own_file);
    let injected = std::env::var_os(CUDA_INJECTION);
    let injects = matches!(injected, Some(path) if is_same(path.as_bytes(), own_file));
    // SAFETY: as the caller promises.
    unsafe {
        if rest.is_empty() {
            std::env::remove_var(PRELOAD);
        } else {
            std::env::set_var(PRELOAD, OsStr::from_bytes(&rest));
        }
        if injects {
            std::env::remove_var(CUDA_INJECTION);
        }
        std::env::remove_var(OPTIONS_VARIABLE);
        std::env::remove_var(RENDEZVOUS_VARIABLE);
        std::env::remove_var(STEP_FUNCTION_VARIABLE);
        std::env::remove_var(MEMORY_HISTORY_VARIABLE);
    }
}

/// The other preloaded libraries: entries are separated by colons or spaces (ld.so(8)).
fn others(preload: &[u8], library: &[u8]) -> Vec<u8> {
    preload
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|entry| !entry.is_empty() && !is_same(entry, library))
        .collect::<Vec<_>>()
        .join(&b':')
}

/// Whether a path names this library: by its unique file name.
fn is_same(path: &[u8], library: &[u8]) -> bool {
    let name = |path| Path::new(OsStr::from_bytes(path)).file_name();
    path == library || (name(path).is_some() && name(path) == name(library))
}

/// The file that this code was loaded from, by the loader's name for it.
fn own_file() -> &'static [u8] {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let address = own_file as *const libc::c_void;
    // SAFETY: dladdr fills it or leaves it zeroed, and both are valid values.
    let found = unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init()
    };
    if found.dli_fname.is_null() {
        return b"";
    }
    // SAFETY: a C string that lives as long as the library is loaded, and this code is in it.
    unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_plain_numbers() {
        assert_eq!((rank("7"), rank("007")), (Some(7), Some(7)));
        for text in ["", "+7", "-1", "7 ", "\u{b2}", "99999999999999999999"] {
            assert_eq!(rank(text), None, "{text}");
        }
    }

    #[test]
    fn only_our_entry_is_taken_out() {
        let library = b"/run/x/libgctrace_inject.so";
        let rest = |preload: &[u8]| others(preload, library);
        assert_eq!(rest(b"/run/x/libgctrace_inject.so"), b"");
        assert_eq!(
            rest(b"/lib/a.so /run/x/libgctrace_inject.so:/lib/b.so"),
            b"/lib/a.so:/lib/b.so"
        );
        assert_eq!(
            rest(b"/other/libgctrace_inject.so:libgctrace_inject.so.1"),
            b"libgctrace_inject.so.1"
        );
        assert_eq!(rest(b""), b"");
    }
}
