//! `--listen`: Prometheus metrics of the live view, over HTTP.
//!
//! Owns the server thread; it lives as long as the recording. `metrics/http.rs` handles connections; `metrics/page.rs`
//! and the files beside it produce the page.

mod access;
mod collect;
mod families;
mod http;
mod labels;
mod page;
#[cfg(test)]
mod tests;

use crate::top::live_handle::LiveHandle;
use crate::top::metrics::page::MetricsPages;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The running server. Stops on drop.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    address: SocketAddr,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

/// The reason why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The address is in use, not an address of this machine, or not permitted.
    #[error(
        "cannot listen on {address} ({reason}); pass another address or port to --listen (ss -ltnp lists ports in use)"
    )]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// Error of the system.
        reason: std::io::Error,
    },
    /// The thread cannot be started.
    #[error(
        "cannot start the metrics server ({0}); check the limits (ulimit -n, ulimit -u), or run without --listen"
    )]
    Thread(std::io::Error),
}

impl MetricsServer {
    /// Listens on an address (port 0: any free one) and serves on a thread of its own. `arguments`:
    /// include the arguments of command lines.
    ///
    /// # Errors
    /// The address cannot be bound, or the thread not started.
    pub(crate) fn start(
        address: SocketAddr,
        arguments: bool,
        shared: Arc<LiveHandle>,
    ) -> Result<Self, ServeError> {
        let listener = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|reason| ServeError::Bind { address, reason })?;
        let address = listener.local_addr().unwrap_or(address);
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let stop = Arc::new(stop.map_err(|errno| ServeError::Thread(errno.into()))?);
        let site = http::MetricsSite {
            pages: MetricsPages::new(shared, arguments),
            local_only: address.ip().is_loopback(),
        };
        let stopped = Arc::clone(&stop);
        let serve = move || http::serve(&listener, site, &stopped);
        let thread = std::thread::Builder::new()
            .name("gctrace-metrics".to_owned())
            .spawn(serve)
            .map_err(ServeError::Thread)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// The address, with the actual port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // Fails only if it is written already.
        let _stopping = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
