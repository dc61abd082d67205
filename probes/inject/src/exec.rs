//! Programs started from here with their own environment: gctrace is not loaded into them; this is
//! reported.
//!
//! The library's functions interpose the C library's and call them. The environment is never
//! changed: a program that is to be started without these variables still is.

use crate::process_ring;
use gctrace_ring::{Absence, RENDEZVOUS_VARIABLE};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A list of C strings that ends with null.
type Strings = *const *const c_char;

unsafe extern "C" {
    static environ: Strings;
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

/// Functions that interpose the C library's of the same name and type, and go on to it after what
/// `before` names.
macro_rules! interpose {
    ($($name:ident($($argument:ident: $type:ty),*) before $before:expr;)*) => {
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
        pub(crate) fn begin() {
            $(real::$name.address();)*
        }
    };
}
pub(crate) use interpose;

/// Return value of a function if there is no real one.
pub(crate) const NOT_THERE: c_int = -1;

interpose! {
    execve(path: *const c_char, arguments: Strings, environment: Strings) before report_if_unrecorded(path, environment);
    execv(path: *const c_char, arguments: Strings) before report_if_unrecorded(path, environ);
    execvp(path: *const c_char, arguments: Strings) before report_if_unrecorded(path, environ);
    execvpe(path: *const c_char, arguments: Strings, environment: Strings) before report_if_unrecorded(path, environment);
    posix_spawn(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings) before report_if_unrecorded(path, environment);
    posix_spawnp(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings) before report_if_unrecorded(path, environment);
}

/// Reports that a program is about to be started without gctrace's variables. May run between fork
/// and exec, in a child that shares its parent's memory: no locks, no allocations.
///
/// # Safety
/// C strings, and a null-terminated list of them.
unsafe fn report_if_unrecorded(path: *const c_char, environment: Strings) {
    let Some(rendezvous) = process_ring::follows_to() else {
        return;
    };
    // SAFETY: as the caller promises.
    let Some(absence) = (unsafe { absence(environment, rendezvous) }) else {
        return;
    };
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
unsafe fn absence(environment: Strings, rendezvous: &[u8]) -> Option<Absence> {
    const PRELOAD: &[u8] = b"LD_PRELOAD=";
    const LIBRARY: &[u8] = b"libgctrace_inject.so";
    let (mut is_preloaded, mut meets) = (false, None);
    let mut next = environment;
    // SAFETY: as the caller promises.
    while !next.is_null() && !unsafe { *next }.is_null() {
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(*next) }.to_bytes();
        if let Some(value) = entry.strip_prefix(PRELOAD) {
            is_preloaded = value.windows(LIBRARY.len()).any(|part| part == LIBRARY);
        } else if let Some(value) = entry
            .strip_prefix(RENDEZVOUS_VARIABLE.as_bytes())
            .and_then(|value| value.strip_prefix(b"="))
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
