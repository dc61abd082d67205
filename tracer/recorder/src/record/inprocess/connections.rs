//! The socket where rings are offered, and connections that have not offered one yet.
//!
//! Nothing here blocks: the same thread resumes stopped programs.

use gctrace_ring::{OfferState, OfferedRing, RingConnection, RingListener};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::time::{Duration, Instant};

/// Epoll data of the listener; pids are smaller.
const LISTENER: u64 = u64::MAX;
/// Epoll data of an open connection.
const CONNECTION: u64 = u64::MAX - 1;

/// Connections accepted per tick: some 10 ms. More wake gctrace again at once; stopped programs come
/// first. On an overloaded machine a tick lasts a third of a second, and 40 processes may start in it.
pub(super) const ACCEPTED_AT_ONCE: usize = 64;
/// Connections open without an offer; beyond that the oldest is closed.
const MAX_OPEN: usize = 64;
/// Maximum of these per process, with two rings to offer; beyond that its oldest is closed.
const MAX_PER_PROCESS: usize = 4;
/// How long a connection may stay silent. The library sends at once, but on an overloaded machine
/// its thread may wait in between.
const PATIENCE: Duration = Duration::from_secs(10);

/// The listener and the open connections.
pub(super) struct RingConnections {
    listener: RingListener,
    is_listening: bool,
    /// More may be waiting to be accepted.
    has_more: bool,
    /// Oldest first.
    open: Vec<(RingConnection, Instant)>,
    reserve: DescriptorReserve,
}

impl RingConnections {
    /// Starts without connections; nothing is accepted before [`RingConnections::listen`].
    pub(super) fn new(listener: RingListener) -> Self {
        Self {
            listener,
            is_listening: false,
            has_more: false,
            open: Vec::new(),
            reserve: DescriptorReserve::default(),
        }
    }

    /// The most epoll events that can be ready at once.
    pub(super) fn most_events(&self) -> usize {
        self.open.len() + 1
    }

    /// Watches the listener, so that a connecting process wakes `waiting`.
    pub(super) fn listen(&mut self, waiting: &Epoll) {
        if !self.is_listening {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
            self.is_listening = waiting.add(&self.listener, event).is_ok();
        }
    }

    /// Takes the rings that were offered, and closes connections that offer none in time. `true`:
    /// there are no descriptors left to accept more; nothing is accepted until
    /// [`RingConnections::listen`].
    pub(super) fn take(&mut self, waiting: &Epoll, offers: &mut Vec<OfferedRing>) -> bool {
        let now = Instant::now();
        self.has_more = false;
        for (connection, until) in std::mem::take(&mut self.open) {
            match connection.receive() {
                OfferState::Offer(offered) => offers.push(offered),
                OfferState::Nothing if now < until => self.open.push((connection, until)),
                OfferState::Nothing | OfferState::Other => {}
            }
        }
        for _ in 0..ACCEPTED_AT_ONCE {
            if !self.reserve.fill() {
                self.stop_listening(waiting);
                return true;
            }
            // A ring is lost if its descriptor finds no room when it is received.
            self.reserve.empty();
            match self.listener.accept() {
                Ok(Some(connection)) => match connection.receive() {
                    OfferState::Offer(offered) => offers.push(offered),
                    OfferState::Nothing => self.keep(connection, waiting, now + PATIENCE),
                    OfferState::Other => {}
                },
                Ok(None) => return false,
                Err(error) => {
                    tracing::debug!("accept: {error}");
                    self.stop_listening(waiting);
                    return false;
                }
            }
        }
        self.has_more = true;
        false
    }

    /// Whether the last [`RingConnections::take`] left connections to accept.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether the last [`RingConnections::take`] accepted every process that had connected before. A process with a
    /// ring still to come has not written to it yet.
    pub(super) fn accepted_all(&self) -> bool {
        self.is_listening && !self.has_more
    }

    fn keep(&mut self, connection: RingConnection, waiting: &Epoll, until: Instant) {
        let is_own = |(open, _): &(RingConnection, Instant)| open.pid == connection.pid;
        let oldest = match self.open.iter().filter(|open| is_own(open)).count() {
            MAX_PER_PROCESS.. => self.open.iter().position(is_own),
            _ if self.open.len() >= MAX_OPEN => Some(0),
            _ => None,
        };
        if let Some(oldest) = oldest {
            self.open.remove(oldest);
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, CONNECTION);
        if let Err(errno) = waiting.add(&connection, event) {
            tracing::debug!("a connection is only polled at each tick: {errno}");
        }
        self.open.push((connection, until));
    }

    /// Until the next tick: connections that cannot be accepted now would wake us again at once.
    fn stop_listening(&mut self, waiting: &Epoll) {
        let _ = waiting.delete(&self.listener);
        self.is_listening = false;
    }
}

/// Descriptors kept free for taking a ring: the socket, the descriptors that come over it, a file of `/proc`.
#[derive(Default)]
struct DescriptorReserve(Vec<std::fs::File>);

impl DescriptorReserve {
    /// Whether all could be opened.
    fn fill(&mut self) -> bool {
        const KEPT: usize = 4;
        while self.0.len() < KEPT {
            match std::fs::File::open("/dev/null") {
                Ok(file) => self.0.push(file),
                Err(_) => return false,
            }
        }
        true
    }

    fn empty(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::epoll::EpollCreateFlags;
    use std::os::unix::net::UnixStream;

    /// A process may connect without end, and stay silent.
    #[test]
    fn of_silent_connections_few_stay_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let mut connections = RingConnections::new(RingListener::bind(&path).expect("a socket"));
        let waiting = Epoll::new(EpollCreateFlags::empty()).expect("an epoll");
        connections.listen(&waiting);
        let silent: Vec<UnixStream> =
            (0..200).map(|_| UnixStream::connect(&path).expect("connected")).collect();
        let mut offers = Vec::new();
        for _ in 0..silent.len() / ACCEPTED_AT_ONCE {
            assert!(!connections.take(&waiting, &mut offers));
            assert!(connections.has_more());
            assert_eq!(connections.open.len(), MAX_PER_PROCESS);
        }
        assert!(offers.is_empty());
    }
}
