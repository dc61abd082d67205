//! Programs that load CPython after their start, by `dlopen`: bootloaders of frozen programs, editors, servers.
//!
//! - A path to a libpython is opened here first, which is what the program is about to do; then its table of
//!   built-in modules is exchanged before anybody can initialise it.
//! - Where it came as a need of something else, it is found at the next `dlopen` of anything, such as its own
//!   first extension module, if the program sees its symbols. From then on collections are seen.

use super::start;
use crate::dlopen::Open;

/// The program is about to open a library, by the real `open`.
pub(crate) fn opens(open: Open, name: &[u8], flags: i32) {
    if !start::is_waiting() {
        return;
    }
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
