//! System calls of gctrace itself, on Linux; `platform/elsewhere.rs` has the stand-ins of other systems: they analyze
//! traces, but record none.
//!
//! The floor of this crate: it knows no other module.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

/// Whether this process has privileges that its user lacks, by file capabilities or a setuid file
/// (`AT_SECURE`, getauxval(3)).
pub fn has_more_rights_than_its_user() -> bool {
    // SAFETY: reads a number from the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether a write of at most a page to `output` will not block; waits this long for it.
pub fn is_writable_within(output: &impl AsFd, limit_ms: u16) -> bool {
    let mut room = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
    nix::poll::poll(&mut room, limit_ms) != Ok(0)
}

/// A descriptor of a process; it never refers to a later process with the same id (pidfd_open(2)).
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(fd)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just returned it, close-on-exec; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends the process of a pidfd a signal.
pub fn send_signal(pidfd: &impl AsFd, signal: Signal) -> Result<(), Errno> {
    let (fd, no_info) = (pidfd.as_fd().as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: the descriptor is open, and with a null siginfo it acts as kill(2).
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal as i32, no_info, 0) };
    Errno::result(sent).map(drop)
}

/// Whether [`is_of_this_user_or_root`] can be answered.
pub const SEES_USERS_OF_CONNECTIONS: bool = true;

/// Whether the other end of a connection within this machine is a process of this user or of root.
pub fn is_of_this_user_or_root(stream: &TcpStream) -> bool {
    let Some(user) = user_of_peer(stream) else { return false };
    user == 0 || user == nix::unistd::Uid::effective().as_raw()
}

/// Who opened the other end of an established connection within this machine (proc_pid_net(5)).
fn user_of_peer(stream: &TcpStream) -> Option<u32> {
    let (peer, own) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    let (SocketAddr::V4(peer), SocketAddr::V4(own)) = (peer, own) else { return None };
    let hex = |octets: &[u8]| -> String {
        let words = octets.chunks_exact(4).filter_map(|word| word.try_into().ok());
        words.map(|word| format!("{:08X}", u32::from_ne_bytes(word))).collect()
    };
    let plain = |end: SocketAddrV4| format!("{}:{:04X}", hex(&end.ip().octets()), end.port());
    let mapped = |end: SocketAddrV4| {
        format!("{}:{:04X}", hex(&end.ip().to_ipv6_mapped().octets()), end.port())
    };
    let ends = [("tcp", plain(peer), plain(own)), ("tcp6", mapped(peer), mapped(own))];
    ends.iter().find_map(|(kind, peer, own)| {
        let text = std::fs::read_to_string(format!("/proc/self/net/{kind}")).ok()?;
        text.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().take(8).collect();
            match fields[..] {
                // A connection that is being closed shows no owner.
                [_, one, other, "01", _, _, _, user] if one == peer && other == own => {
                    user.parse().ok()
                }
                _ => None,
            }
        })
    })
}

/// Whether this is not the initial user namespace: root then has privileges in it only.
pub fn in_foreign_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !is_first_namespace(&map))
}

/// The initial user namespace maps all ids to themselves (user_namespaces(7)).
fn is_first_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_namespace_maps_all_ids_to_themselves() {
        assert!(is_first_namespace("         0          0 4294967295\n"));
        assert!(!is_first_namespace("         0       1000          1\n"));
    }
}
