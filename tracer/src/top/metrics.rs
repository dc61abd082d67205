//! `--listen`: the figures of the live view for Prometheus, over HTTP.
//!
//! Owns the thread that serves, and that it begins and ends with the recording. What is said over a connection is
//! `metrics/http.rs`, what stands on the page `metrics/page.rs` and the files beside it.
//!
//! Why hyper: it bounds what a client may send and how long it may take, on one thread for all connections.
//! tiny_http, the usual small choice, makes a thread for each without a limit (its issue 221, open since 2022).

mod access;
mod collect;
mod families;
mod http;
mod labels;
mod monotonic_maxima;
mod page;
#[cfg(test)]
mod tests;
mod text;

use crate::top::live_handle::LiveHandle;
use crate::top::metrics::page::MetricsPages;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The running server; dropped, it ends.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The address is taken, not one of this machine, or not allowed.
    #[error(
        "cannot listen on {address} ({reason}); give another address or port with --listen (ss -ltnp shows which are taken)"
    )]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        reason: std::io::Error,
    },
    /// The thread cannot begin.
    #[error(
        "cannot begin to serve metrics ({0}); without --listen the rest works, ulimit -n and ulimit -u show the limits"
    )]
    Thread(std::io::Error),
}

impl MetricsServer {
    /// Listens at an address (port 0: any that is free), and serves on a thread of its own. `arguments`: command
    /// lines are shown whole.
    ///
    /// # Errors
    /// When it cannot listen there. Nothing was served then.
    pub(crate) fn start(
        address: SocketAddr,
        arguments: bool,
        shared: Arc<LiveHandle>,
    ) -> Result<Self, ServeError> {
        let listener = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|reason| ServeError::Bind { address, reason })?;
        let address = listener.local_addr().unwrap_or(address);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(ServeError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let site = http::MetricsSite {
            pages: MetricsPages::new(shared, arguments),
            local_only: address.ip().is_loopback(),
        };
        let serve = move || runtime.block_on(http::serve(listener, site, stopped));
        let thread = std::thread::Builder::new()
            .name("gctrace-metrics".to_owned())
            .spawn(serve)
            .map_err(ServeError::Thread)?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // Both may be over already: then there is nothing to end.
        if let Some(stop) = self.stop.take() {
            let _already_over = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
