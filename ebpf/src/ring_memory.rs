//! Whether this process has room for the rings.

/// For the ring of processes, libbpf's own tables and what follows, in bytes: measured, and doubled.
const BESIDES: usize = 8 << 20;

/// Whether rings of pauses of that many bytes could be mapped now. libbpf-rs 0.27 panics in debug builds, and
/// otherwise reports "Unknown error -12", where they cannot (`ulimit -v`).
pub(crate) fn for_rings(bytes: u32) -> std::io::Result<()> {
    // Data pages are mapped twice (`ringbuf_map_mmap_user`, kernel/bpf/ringbuf.c).
    let needed = (bytes as usize).saturating_mul(2).saturating_add(BESIDES);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing else knows and which is gone
    // before anybody could.
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
