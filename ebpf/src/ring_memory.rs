//! Whether this process has address space for the rings.

/// Room for the ring of processes, libbpf's own tables and later allocations, in bytes: measured,
/// and doubled.
const BESIDES: usize = 8 << 20;

/// Whether pause rings of that many bytes could be mapped now. If not (`ulimit -v`), libbpf-rs 0.27
/// panics in debug builds, and otherwise reports "Unknown error -12".
pub(crate) fn for_rings(bytes: u32) -> std::io::Result<()> {
    // Data pages are mapped twice (`ringbuf_map_mmap_user`, kernel/bpf/ringbuf.c).
    let needed = bytes as usize * 2 + BESIDES;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address chosen by the kernel, which no other code knows and which
    // is unmapped below.
    unsafe {
        let room = libc::mmap(std::ptr::null_mut(), needed, libc::PROT_NONE, flags, -1, 0);
        if room == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        libc::munmap(room, needed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room() {
        assert!(for_rings(16 << 20).is_ok());
    }
}
