//! Any bytes and descriptors at the socket where programs hand over their rings, and any memory
//! behind them: an offer or none, and no descriptor leaks.

#![no_main]

use gctrace_ring::{GpuMessage, OfferState, RingConsumer, RingListener, RingProducer};
use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::LazyLock;

/// First bytes of a valid offer (probes/ring/src/rendezvous.rs); without them a fuzzer would hardly
/// get past the check.
const GREETING: &[u8; 8] = b"gctrace2";
/// Length of a ring of one record (probes/ring/src/layout.rs).
const SMALLEST: u64 = 2 * 4096 + 64;

static SOCKET: LazyLock<(PathBuf, RingListener)> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("gctrace-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = RingListener::bind(&path).unwrap();
    (path, listener)
});

/// First bytes of a ring.
static VERSION: LazyLock<[u8; 8]> = LazyLock::new(|| {
    let (_, memory) = RingProducer::<GpuMessage>::create(1).unwrap();
    let mut version = [0; 8];
    File::from(memory).read_exact_at(&mut version, 0).unwrap();
    version
});

/// Descriptor chosen by `kind`: sealed memory of a ring's length, other memory, or no memory at
/// all.
fn descriptor(kind: u8, memory: &[u8]) -> File {
    if kind & 7 == 0 {
        return File::open("/dev/zero").unwrap();
    }
    // SAFETY: a name that ends with zero; the descriptor is new and has no other owner.
    let file = unsafe {
        let raw = libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(raw >= 0);
        File::from_raw_fd(raw)
    };
    let length = if kind & 8 == 0 { SMALLEST } else { u64::from(kind) * 512 };
    file.set_len(length).unwrap();
    file.write_all_at(memory, 0).unwrap();
    if kind & 16 == 0 {
        file.write_all_at(VERSION.as_slice(), 0).unwrap();
    }
    if kind & 32 == 0 {
        // SAFETY: plain numbers.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
    }
    file
}

/// Sends bytes and, with the first of them, descriptors.
fn send(stream: &UnixStream, bytes: &[u8], files: &[File]) {
    if files.is_empty() || bytes.is_empty() {
        let _ = (&*stream).write_all(bytes);
        return;
    }
    let raw: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let mut control = [0_u64; 32];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: as in probes/ring/src/rendezvous.rs; the control part has room for more descriptors than are sent.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        let length = size_of_val(raw.as_slice()) as u32;
        message.msg_controllen = libc::CMSG_SPACE(length) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(length) as usize;
        std::ptr::copy_nonoverlapping(raw.as_ptr(), libc::CMSG_DATA(header).cast(), raw.len());
        libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL);
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fuzz_target!(|input: (u8, bool, [u8; 3], &[u8], &[u8])| {
    let (count, is_greeted, kinds, hello, memory) = input;
    let (path, listener) = &*SOCKET;
    let before = open_descriptors();
    {
        let files: Vec<File> = (kinds.iter().take(usize::from(count & 3)))
            .map(|kind| descriptor(*kind, memory.get(..4096).unwrap_or(memory)))
            .collect();
        let greeting: &[u8] = if is_greeted { GREETING } else { b"" };
        let message = [greeting, hello].concat();
        let stream = UnixStream::connect(path).unwrap();
        send(&stream, &message, &files);
        drop(stream);
        while let Ok(Some(connection)) = listener.accept() {
            if let OfferState::Offer(offered) = connection.receive()
                && let Ok(mut ring) = RingConsumer::open(offered.ring.as_fd(), 1)
            {
                ring.read(true, |_: GpuMessage| {});
            }
        }
    }
    assert_eq!(before, open_descriptors(), "a descriptor leaked");
});
