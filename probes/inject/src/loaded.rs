//! What the loader has mapped: the object that an address belongs to, and whether it may be written.

use crate::recording::guarded;
use std::ffi::{c_int, c_void};
use std::ops::Range;

/// The place of an address in a loaded object.
pub(crate) struct LoadedPlace {
    /// From the object's first segment to the end of its last.
    pub(crate) object: Range<usize>,
    /// Whether it is in a segment that stays writable.
    pub(crate) is_writable: bool,
}

/// `None`: it is in no object.
pub(crate) fn place_of(address: usize) -> Option<LoadedPlace> {
    let mut search = (address, None);
    // SAFETY: the callback gets a pointer to `search` and nothing else.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.1
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description of an object, and the pointer passed above.
    let (info, search) = unsafe {
        let search = search.cast::<(usize, Option<LoadedPlace>)>();
        (&*info, &mut *search)
    };
    guarded(|| search.1 = within(info, search.0));
    c_int::from(search.1.is_some())
}

fn within(info: &libc::dl_phdr_info, address: usize) -> Option<LoadedPlace> {
    if info.dlpi_phdr.is_null() {
        return None;
    }
    // SAFETY: the loader's own table.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let range = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        start..start.saturating_add(header.p_memsz as usize)
    };
    let of = |kind| headers.iter().filter(move |header| header.p_type == kind);
    let segment = of(libc::PT_LOAD).find(|header| range(header).contains(&address))?;
    let starts = of(libc::PT_LOAD).map(|header| range(header).start);
    let ends = of(libc::PT_LOAD).map(|header| range(header).end);
    let is_protected = of(libc::PT_GNU_RELRO).any(|header| range(header).contains(&address));
    Some(LoadedPlace {
        object: starts.min()?..ends.max()?,
        is_writable: segment.p_flags & libc::PF_W != 0 && !is_protected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn only_variables_are_writable() {
        static VARIABLE: AtomicUsize = AtomicUsize::new(1);
        static CONSTANT: usize = 1;
        let place = |address: *const c_void| place_of(address.addr()).expect("of this program");
        let variable = place((&raw const VARIABLE).cast());
        assert!(variable.is_writable);
        assert!(!place((&raw const CONSTANT).cast()).is_writable);
        let code = place(only_variables_are_writable as *const c_void);
        assert!(!code.is_writable);
        assert_eq!(code.object, variable.object);
        let on_the_stack = 0_u8;
        assert!(place_of((&raw const on_the_stack).addr()).is_none());
    }
}
