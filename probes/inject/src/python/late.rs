//! Programs that load CPython after their start, by `dlopen`: bootloaders of frozen programs, editors, servers.
//!
//! The library's own `dlopen` stands before the C library's. It looks at the name, and then jumps to the real one
//! with registers and stack as they came, so that the loader sees the real caller (whose RUNPATH counts). No
//! thread polls.
//!
//! - A path to a libpython is opened here first, which is what the program is about to do; then its table of
//!   built-in modules is exchanged before anybody can initialise it.
//! - Where it came as a need of something else, it is found at the next `dlopen` of anything, such as its own
//!   first extension module, if the program sees its symbols. From then on collections are seen.

use super::start;
use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering;

type Open = unsafe extern "C" fn(*const c_char, i32) -> *mut c_void;

/// Stands before the C library's: see above.
///
/// # Safety
/// As of dlopen(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlopen(_name: *const c_char, _flags: i32) -> *mut c_void {
    // Both arguments are kept; three words keep the stack aligned to 16 bytes for the call.
    std::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before,
    )
}

/// The real function's address. What the program is about to open is looked at.
unsafe extern "C" fn before(name: *const c_char, flags: i32) -> *const c_void {
    let Some(open) = real() else {
        return refuse as *const c_void;
    };
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the program passes a C string or null.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        look(open, name, flags);
    }));
    open as *const c_void
}

/// Where there is no dlopen at all.
unsafe extern "C" fn refuse(_name: *const c_char, _flags: i32) -> *mut c_void {
    std::ptr::null_mut()
}

fn real() -> Option<Open> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut known = REAL.load(Ordering::Relaxed);
    if known.is_null() {
        // SAFETY: looks for the next function of this name.
        known = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
        REAL.store(known, Ordering::Relaxed);
    }
    // SAFETY: null, or a function of this name, which has this type.
    unsafe { std::mem::transmute::<*mut c_void, Option<Open>>(known) }
}

fn look(open: Open, name: Option<&CStr>, flags: i32) {
    if !start::is_waiting() {
        return;
    }
    let name = name.map(CStr::to_bytes).unwrap_or_default();
    let wanted: &[u8] = b"libpython";
    let is_path = name.contains(&b'/');
    if is_path && name.windows(wanted.len()).any(|part| part == wanted) {
        let name = [name, b"\0"].concat();
        // SAFETY: what the program does next, with the same name and flags; the handle is kept.
        let library = unsafe { open(name.as_ptr().cast(), flags) };
        if !library.is_null() {
            start::look_in(library);
        }
    } else {
        start::look_in(libc::RTLD_DEFAULT);
    }
}
