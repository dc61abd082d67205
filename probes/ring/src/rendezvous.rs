//! How a ring gets from the process that created it to gctrace: over a socket in a private folder.
//!
//! The kernel identifies the peer (SO_PEERCRED), by its pid in gctrace's own namespace.

use crate::message::moved;
use crate::{InjectOptions, PYTHON_RECORDS};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// Environment variable that names the socket.
pub const RENDEZVOUS_VARIABLE: &str = "GCTRACE_RENDEZVOUS";

/// Purpose of a ring: Python's activity or GPU work; each has a ring of its own.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Immutable, IntoBytes, KnownLayout, TryFromBytes,
)]
#[repr(u8)]
pub enum RingRole {
    /// Collections and allocations.
    Python = 1,
    /// GPU work.
    Gpu = 2,
}

impl RingRole {
    /// Number of slots of such a ring, in a process with these options.
    #[must_use]
    pub fn records(self, options: &InjectOptions) -> usize {
        match self {
            Self::Python => PYTHON_RECORDS,
            Self::Gpu => options.gpu_records as usize,
        }
    }
}

/// Message that is sent along with a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(C, packed)]
pub struct RingHello {
    /// Time of creating the ring.
    pub at_ns: u64,
    /// Number of its time namespace: its timestamps are of that clock; 0: unknown.
    pub time_namespace: u64,
    /// Process id as seen by the process (it may be in a pid namespace).
    pub own_pid: u32,
    /// Purpose of the ring; decides its size ([`RingRole::records`]).
    pub role: RingRole,
    /// It was forked from a process that had a ring: nothing of it was missed.
    pub is_fork: bool,
}

impl RingHello {
    /// On a clock that is `ahead_ns` behind the process's.
    #[must_use]
    pub fn on_clock(self, ahead_ns: i64) -> Self {
        Self { at_ns: moved(self.at_ns, ahead_ns), ..self }
    }
}

/// Starts the message; the digit is the version of its layout.
const GREETING: [u8; 8] = *b"gctrace3";

/// The bytes of the message.
#[derive(Immutable, IntoBytes, KnownLayout, TryFromBytes)]
#[repr(C, packed)]
struct HelloMessage {
    greeting: [u8; 8],
    hello: RingHello,
}

/// Room for one descriptor in a control message, with the alignment that the kernel requires.
#[repr(C)]
union ControlBuffer {
    _aligned: libc::cmsghdr,
    bytes: [u8; 64],
}

/// Hands a ring over. Never blocks; system calls only, so it may be called between fork and exec.
/// `false` if no gctrace listens (any more), or if the path is too long for a socket.
#[must_use]
pub fn offer(socket_path: &[u8], ring: BorrowedFd<'_>, hello: &RingHello) -> bool {
    let Some(socket) = connect(socket_path) else { return false };
    let message = HelloMessage { greeting: GREETING, hello: *hello };
    send(socket.as_fd(), ring, message.as_bytes())
}

/// Connects to gctrace. Never blocks; system calls only. `None`: as of [`offer`].
pub(crate) fn connect(socket_path: &[u8]) -> Option<OwnedFd> {
    let (address, length) = address(socket_path)?;
    let socket = stream_socket().ok()?;
    // SAFETY: the address is filled for `length` bytes.
    let connected =
        unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if connected == 0 { Some(socket) } else { None }
}

fn stream_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain numbers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just created, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn address(path: &[u8]) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeroes are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The zero at the end included.
    if path.len() >= address.sun_path.len() {
        return None;
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    Some((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

fn send(socket: BorrowedFd<'_>, ring: BorrowedFd<'_>, bytes: &[u8]) -> bool {
    let mut control = ControlBuffer { bytes: [0; 64] };
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes are a valid message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: CMSG_* compute within `control`: it has room for one descriptor (24 bytes).
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(ring.as_raw_fd());
    }
    // SAFETY: all parts live until the call returns; MSG_NOSIGNAL: no SIGPIPE in the program.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    sent == bytes.len() as isize
}

/// A ring that was handed over, and its sender.
#[derive(Debug)]
pub struct OfferedRing {
    /// Descriptor of its memory, for [`RingConsumer::open`](crate::RingConsumer::open); can be
    /// closed once that has returned.
    pub ring: OwnedFd,
    /// The sender's description of the ring; unlike `pid` and `uid`, not verified.
    pub hello: RingHello,
    /// Sender's pid in gctrace's pid namespace, from the kernel; 0 if it is not in it.
    pub pid: u32,
    /// Sender's effective user id when it connected, from the kernel (SO_PEERCRED).
    pub uid: u32,
}

/// The socket for receiving rings.
#[derive(Debug)]
pub struct RingListener(OwnedFd);

impl RingListener {
    /// Maximum number of pending connections; the kernel limits it to net.core.somaxconn (4096
    /// since Linux 5.4).
    pub const MAX_WAITING: usize = 4096;

    /// Listens at a path that does not exist yet, in a folder that only the user of the programs
    /// can enter. Processes that connect must be able to write to the socket: see chown(2) if
    /// gctrace is root.
    ///
    /// # Errors
    /// The kernel's error, and `InvalidInput` for a path longer than a socket's can be (107 bytes).
    pub fn bind(path: &Path) -> io::Result<Self> {
        let (address, length) = address(path.as_os_str().as_bytes())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let socket = stream_socket()?;
        // SAFETY: the address is filled for `length` bytes.
        let refused = unsafe {
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) != 0
                || libc::listen(socket.as_raw_fd(), Self::MAX_WAITING as i32) != 0
        };
        if refused {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(socket))
    }

    /// The next process that connected; `None` if none is pending. Never blocks.
    ///
    /// # Errors
    /// The kernel's error, such as a full table of descriptors.
    pub fn accept(&self) -> io::Result<Option<RingConnection>> {
        loop {
            let kind = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let null = std::ptr::null_mut();
            // SAFETY: the peer's address is not requested.
            let socket =
                unsafe { libc::accept4(self.0.as_raw_fd(), null, std::ptr::null_mut(), kind) };
            if socket < 0 {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    Some(libc::EAGAIN) => Ok(None),
                    Some(libc::ECONNABORTED | libc::EINTR) => continue,
                    _ => Err(error),
                };
            }
            // SAFETY: just created, with no other owner.
            let socket = unsafe { OwnedFd::from_raw_fd(socket) };
            if let Some((pid, uid)) = peer(socket.as_fd()) {
                return Ok(Some(RingConnection { socket, pid, uid }));
            }
        }
    }
}

/// Readable when a connection is pending.
impl AsFd for RingListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A process that connected and may offer a ring.
#[derive(Debug)]
pub struct RingConnection {
    socket: OwnedFd,
    /// Peer's pid in gctrace's pid namespace, from the kernel; 0 if it is not in it.
    pub pid: u32,
    /// Peer's effective user id when it connected, from the kernel (SO_PEERCRED).
    pub uid: u32,
}

/// State of a connection's delivery.
#[derive(Debug)]
pub enum OfferState {
    /// A ring was received.
    Offer(OfferedRing),
    /// Nothing yet: a thread may be preempted between its connect(2) and its sendmsg(2).
    Nothing,
    /// Something else was received, or the peer is gone: close it.
    Other,
}

impl RingConnection {
    /// Receives a message. Never blocks.
    #[must_use]
    pub fn receive(&self) -> OfferState {
        let mut bytes = [0; size_of::<HelloMessage>()];
        let mut control = ControlBuffer { bytes: [0; 64] };
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: all zeroes are a valid message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<ControlBuffer>();
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: all parts live until the call returns.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) };
        if length < 0 {
            let error = io::Error::last_os_error().raw_os_error();
            return match error {
                Some(libc::EAGAIN | libc::EINTR) => OfferState::Nothing,
                _ => OfferState::Other,
            };
        }
        let ring = descriptor(&message);
        let message = HelloMessage::try_read_from_bytes(&bytes);
        match (ring, message) {
            (Some(ring), Ok(HelloMessage { greeting, hello }))
                if greeting == GREETING && length == bytes.len() as isize =>
            {
                OfferState::Offer(OfferedRing { ring, hello, pid: self.pid, uid: self.uid })
            }
            _ => OfferState::Other,
        }
    }

    /// Waits for a message, at most this long. Not for a thread that others depend on.
    #[must_use]
    pub fn receive_within(&self, patience: Duration) -> Option<OfferedRing> {
        let deadline = Instant::now() + patience;
        loop {
            match self.receive() {
                OfferState::Offer(offered) => return Some(offered),
                OfferState::Other => return None,
                OfferState::Nothing if Instant::now() >= deadline => return None,
                OfferState::Nothing => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Readable when something was sent, or the peer is gone.
impl AsFd for RingConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The first descriptor of a message; further ones are closed.
fn descriptor(message: &libc::msghdr) -> Option<OwnedFd> {
    let mut first = None;
    // SAFETY: the kernel has filled the control part; CMSG_* stay within its length, and each
    // descriptor in it was just passed to us.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let length = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                for at in 0..length / size_of::<i32>() {
                    let data = libc::CMSG_DATA(header).cast::<i32>().add(at);
                    let owned = OwnedFd::from_raw_fd(data.read_unaligned());
                    first.get_or_insert(owned);
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    first
}

fn peer(socket: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the memory has that length.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if failed != 0 {
        return None;
    }
    // SAFETY: zeroed, and filled by the kernel; plain numbers.
    let credentials = unsafe { credentials.assume_init() };
    Some((u32::try_from(credentials.pid).ok()?, credentials.uid))
}
