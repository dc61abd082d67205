//! Programs started from here with their own environment: gctrace is not loaded into them; this is
//! reported.
//!
//! The library's functions interpose the C library's and call them. Nothing is ever added to the
//! environment: a program that is to be started without gctrace's variables still is. The library is
//! left out where the program could not open its file, as below another root directory: ld.so would
//! write that to the program's standard error; and where a sanitizer's runtime has to be loaded first (`program`).

mod program;

use crate::{confined, process_ring};
use gctrace_abi::is_sanitizer_runtime;
use gctrace_ring::{Absence, RENDEZVOUS_VARIABLE};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A list of C strings that ends with null.
type CStrings = *const *const c_char;

unsafe extern "C" {
    static environ: CStrings;
}

/// The next function of a name. Resolved before the program's code runs: between fork and exec that
/// would be unsafe.
pub(crate) struct NextFunction {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl NextFunction {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: looks for the next function of this name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Functions that interpose the C library's of the same name and type. Each runs `before`, then goes on to the C
/// library's function, unless `instead` returns a result.
macro_rules! interpose {
    ($($name:ident($($argument:ident: $type:ty),*) before $before:expr $(, instead $instead:expr)?;)*) => {
        $(
            #[doc = concat!("Interposes the C library's ", stringify!($name), ".")]
            ///
            /// # Safety
            /// As of that function.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
                // SAFETY: as the caller promises; the real function has this type.
                unsafe {
                    $crate::recording::guarded(|| $before);
                    $(if let Some(result) = $instead {
                        return result;
                    })?
                    let address = real::$name.address();
                    if address.is_null() {
                        return $crate::exec::NOT_THERE;
                    }
                    std::mem::transmute::<
                        *mut std::ffi::c_void,
                        unsafe extern "C" fn($($type),*) -> std::ffi::c_int,
                    >(address)($($argument),*)
                }
            }
        )*

        $crate::exec::next_functions!(begin: $($name)*);
    };
}
pub(crate) use interpose;

/// The real functions of these names, and a function that resolves them.
macro_rules! next_functions {
    ($resolve:ident: $($name:ident)*) => {
        mod real {
            #![expect(non_upper_case_globals, reason = "names of the C library")]
            $(
                pub(super) static $name: $crate::exec::NextFunction = $crate::exec::NextFunction::new(
                    // SAFETY: ends in its only zero.
                    unsafe {
                        std::ffi::CStr::from_bytes_with_nul_unchecked(
                            concat!(stringify!($name), "\0").as_bytes(),
                        )
                    },
                );
            )*
        }

        /// Resolves the real functions. Call before the program's code.
        pub(crate) fn $resolve() {
            $(real::$name.address();)*
        }
    };
}
pub(crate) use next_functions;

/// Return value of a function if there is no real one.
pub(crate) const NOT_THERE: c_int = -1;

interpose! {
    execve(path: *const c_char, arguments: CStrings, environment: CStrings)
        before report_if_unrecorded(path, environment),
        instead without_library(path, false, environment, |rest| execve(path, arguments, rest));
    execv(path: *const c_char, arguments: CStrings)
        before report_if_unrecorded(path, environ),
        instead without_library(path, false, environ, |rest| execve(path, arguments, rest));
    execvp(path: *const c_char, arguments: CStrings)
        before report_if_unrecorded(path, environ),
        instead without_library(path, true, environ, |rest| execvpe(path, arguments, rest));
    execvpe(path: *const c_char, arguments: CStrings, environment: CStrings)
        before report_if_unrecorded(path, environment),
        instead without_library(path, true, environment, |rest| execvpe(path, arguments, rest));
    posix_spawn(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: CStrings, environment: CStrings)
        before report_if_unrecorded(path, environment),
        instead without_library(path, false, environment, |rest| posix_spawn(pid, path, actions, attributes, arguments, rest));
    posix_spawnp(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: CStrings, environment: CStrings)
        before report_if_unrecorded(path, environment),
        instead without_library(path, true, environment, |rest| posix_spawnp(pid, path, actions, attributes, arguments, rest));
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const LIBRARY: &[u8] = b"libgctrace_inject.so";

fn has_library(words: &[u8]) -> bool {
    words.windows(LIBRARY.len()).any(|part| part == LIBRARY)
}

/// Starts a program without the library if its file cannot be opened from here, or the program is built with a
/// sanitizer. `None`: neither, or the environment does not name the library, or the environment is too large for the
/// stack. May run between fork and exec, in a child that shares its parent's memory: no locks, no allocations.
///
/// # Safety
/// A C string or null, and a null-terminated list of them.
unsafe fn without_library(
    path: *const c_char,
    searches: bool,
    environment: CStrings,
    start: impl FnOnce(CStrings) -> c_int,
) -> Option<c_int> {
    if confined::is_noticed() {
        confined::execs();
        return None;
    }
    // SAFETY: as the caller promises.
    let (index, value) = unsafe { preload(environment) }?;
    let library = preloaded(value).find(|name| has_library(name))?;
    let is_sanitized = || {
        // SAFETY: as the caller promises.
        let path = if path.is_null() { None } else { Some(unsafe { CStr::from_ptr(path) }) };
        !begins_with_sanitizer(value)
            && matches!(path, Some(path) if program::is_sanitized(path, searches))
    };
    let is_loaded = can_open(library)? && !is_sanitized();
    if is_loaded { None } else { start_with(environment, index, value, start) }
}

/// Whether the program's own LD_PRELOAD names a sanitizer's runtime first.
fn begins_with_sanitizer(value: &[u8]) -> bool {
    let first = preloaded(value).next().unwrap_or_default();
    is_sanitizer_runtime(first.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
}

/// The entry LD_PRELOAD: its place and its value.
///
/// # Safety
/// A null-terminated list of C strings, valid for `'list`.
unsafe fn preload<'list>(environment: CStrings) -> Option<(usize, &'list [u8])> {
    if environment.is_null() {
        return None;
    }
    let mut index = 0;
    loop {
        // SAFETY: as the caller promises: the list has not ended.
        let entry = unsafe { *environment.add(index) };
        if entry.is_null() {
            return None;
        }
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = entry.strip_prefix(PRELOAD) {
            return Some((index, value));
        }
        index += 1;
    }
}

/// Names in a value of LD_PRELOAD, separated as in ld.so(8).
fn preloaded(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b':' | b' ')).filter(|name| !name.is_empty())
}

/// Whether ld.so could open this file, as far as that depends on the file: without a free descriptor
/// here, the program may have one. `None` if its name is too long.
fn can_open(path: &[u8]) -> Option<bool> {
    let mut text = [0_u8; 4096];
    // The last byte remains zero.
    text.get_mut(..4095)?.get_mut(..path.len())?.copy_from_slice(path);
    // SAFETY: a C string; the descriptor is closed once. errno is the caller's.
    unsafe {
        let before = *libc::__errno_location();
        let file = libc::open(text.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        let error = *libc::__errno_location();
        if file >= 0 {
            libc::close(file);
        }
        *libc::__errno_location() = before;
        let is_unreachable = matches!(error, libc::ENOENT | libc::ENOTDIR | libc::EACCES);
        Some(file >= 0 || !is_unreachable)
    }
}

/// Starts a program with the environment but for the library. A function of its own for the size of
/// its stack frame, 24 KiB.
#[inline(never)]
fn start_with(
    environment: CStrings,
    index: usize,
    value: &[u8],
    start: impl FnOnce(CStrings) -> c_int,
) -> Option<c_int> {
    const MOST_ENTRIES: usize = 2048;
    const MOST_BYTES: usize = 8192;
    let mut list = [std::ptr::null::<c_char>(); MOST_ENTRIES];
    let mut text = [0_u8; MOST_BYTES];
    let mut length = 0;
    let mut put = |part: &[u8]| {
        // The last byte remains zero.
        let end = length + part.len();
        text.get_mut(..MOST_BYTES - 1)?.get_mut(length..end)?.copy_from_slice(part);
        length = end;
        Some(())
    };
    put(PRELOAD)?;
    let others = || preloaded(value).filter(|name| !has_library(name));
    for (number, name) in others().enumerate() {
        put(if number > 0 { b":" } else { b"" })?;
        put(name)?;
    }
    let mut kept = 0;
    for at in 0.. {
        // SAFETY: a null-terminated list that has not ended.
        let entry = unsafe { *environment.add(at) };
        if entry.is_null() {
            break;
        }
        let entry = if at != index {
            entry
        } else if others().next().is_none() {
            continue;
        } else {
            text.as_ptr().cast()
        };
        *list.get_mut(..MOST_ENTRIES - 1)?.get_mut(kept)? = entry;
        kept += 1;
    }
    Some(start(list.as_ptr()))
}

/// Reports that a program is about to be started without gctrace's variables. May run between fork
/// and exec, in a child that shares its parent's memory: no locks, no allocations.
///
/// # Safety
/// C strings, and a null-terminated list of them.
unsafe fn report_if_unrecorded(path: *const c_char, environment: CStrings) {
    let rendezvous = if confined::is_noticed() { None } else { process_ring::follows_to() };
    let Some(rendezvous) = rendezvous else { return };
    // SAFETY: as the caller promises.
    let Some(absence) = (unsafe { absence(environment, rendezvous) }) else { return };
    // SAFETY: as the caller promises. A path that does not exist starts no program; PATH is
    // searched by trying each entry.
    let is_there = unsafe {
        !path.is_null()
            && (libc::strchr(path, c_int::from(b'/')).is_null()
                || libc::access(path, libc::X_OK) == 0)
    };
    if is_there {
        absence.report(rendezvous);
    }
}

/// Why a program with this environment hands over no ring here; `None`: it does.
///
/// # Safety
/// A null-terminated list of C strings.
unsafe fn absence(environment: CStrings, rendezvous: &[u8]) -> Option<Absence> {
    let (mut is_preloaded, mut meets) = (false, None);
    let mut next = environment;
    // SAFETY: as the caller promises.
    while !next.is_null() && !unsafe { *next }.is_null() {
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(*next) }.to_bytes();
        if let Some(value) = entry.strip_prefix(PRELOAD) {
            is_preloaded = has_library(value);
        } else if let Some(value) = entry.strip_prefix(RENDEZVOUS_VARIABLE.as_bytes())
            && let Some(value) = value.strip_prefix(b"=")
        {
            meets = Some(value == rendezvous);
        }
        // SAFETY: as above: the list has not ended.
        next = unsafe { next.add(1) };
    }
    match (is_preloaded, meets) {
        (true, Some(true)) => None,
        (true, Some(false)) => Some(Absence::OtherGctrace),
        _ => Some(Absence::Environment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// The environment that a program is started with, from this environment; `None`: it stays the same.
    fn started_with(entries: &[&str]) -> Option<Vec<String>> {
        let texts: Vec<_> = entries.iter().map(|entry| CString::new(*entry).unwrap()).collect();
        let mut list: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(std::ptr::null());
        let mut found = Vec::new();
        let start = |entries: CStrings| {
            // SAFETY: a null-terminated list of C strings.
            unsafe {
                for at in (0..).take_while(|at| !(*entries.add(*at)).is_null()) {
                    found.push(CStr::from_ptr(*entries.add(at)).to_str().unwrap().to_owned());
                }
            }
            7
        };
        // SAFETY: made above.
        let result = unsafe { without_library(c"/bin/sh".as_ptr(), false, list.as_ptr(), start) };
        assert!(result.is_none_or(|result| result == 7));
        result.map(|_| found)
    }

    #[test]
    fn a_library_that_cannot_be_opened_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("libgctrace_inject.so");
        std::fs::write(&there, "").unwrap();
        let there = format!("LD_PRELOAD={}", there.display());
        let gone = "/nowhere/libgctrace_inject.so";
        let alone = format!("LD_PRELOAD={gone}");
        let beside = format!("LD_PRELOAD=/x/a.so:{gone} b.so");
        assert_eq!(started_with(&["A=1", &there, "B=2"]), None);
        assert_eq!(started_with(&["A=1", "LD_PRELOAD=/nowhere/x.so"]), None);
        assert_eq!(started_with(&[]), None);
        assert_eq!(started_with(&["A=1", &alone, "B=2"]).unwrap(), ["A=1", "B=2"]);
        assert_eq!(started_with(&[&beside, "A=1"]).unwrap(), ["LD_PRELOAD=/x/a.so:b.so", "A=1"]);
        // An environment that does not fit stays as it is.
        let many = vec!["A=1"; 2048];
        assert_eq!(started_with(&[&[alone.as_str()], &many[..]].concat()), None);
        assert_eq!(started_with(&[&[alone.as_str()], &many[1..]].concat()).unwrap().len(), 2047);
        let long = format!("LD_PRELOAD={gone}:{}", "x".repeat(9000));
        assert_eq!(started_with(&[&long]), None);
        // SAFETY: null stands for no list.
        let nothing = unsafe { without_library(std::ptr::null(), false, std::ptr::null(), |_| 7) };
        assert_eq!(nothing, None);
    }

    #[test]
    fn environments_are_distinguished() {
        let of = |entries: &[&str]| {
            let texts: Vec<_> = entries.iter().map(|entry| CString::new(*entry).unwrap()).collect();
            let mut list: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
            list.push(std::ptr::null());
            // SAFETY: made above.
            unsafe { absence(list.as_ptr(), b"/run/a/socket") }
        };
        let preload = "LD_PRELOAD=/x/other.so:/x/libgctrace_inject.so";
        assert_eq!(of(&[preload, "GCTRACE_RENDEZVOUS=/run/a/socket"]), None);
        let lost = Some(Absence::Environment);
        assert_eq!(of(&["PATH=/bin"]), lost);
        assert_eq!(of(&[preload]), lost);
        assert_eq!(of(&["LD_PRELOAD=/x/other.so", "GCTRACE_RENDEZVOUS=/run/a/socket"]), lost);
        let other = of(&[preload, "GCTRACE_RENDEZVOUS=/run/b/socket"]);
        assert_eq!(other, Some(Absence::OtherGctrace));
        // SAFETY: null stands for no list.
        assert_eq!(unsafe { absence(std::ptr::null(), b"/run/a/socket") }, lost);
    }
}
