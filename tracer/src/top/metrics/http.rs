//! HTTP connections, one request each, all on one thread.
//!
//! Owns the limits that keep slow, silent or abusive clients from costing more than a connection. httparse (hyper uses
//! it, too) parses the head of a request; bodies are not read. Small servers lack the limits: tiny_http 0.12 starts a
//! thread for each connection, without a timeout (its issue 221, open since 2022).

use crate::top::metrics::access;
use crate::top::metrics::page::MetricsPages;
use httparse::{Request, Status};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use std::collections::VecDeque;
use std::io;
use std::io::{BufRead as _, Cursor, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 64;

/// Timeout for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Timeout for a connection, including sending the response. Prometheus itself gives up after 10 s
/// (`scrape_timeout`).
const CONNECTION: Duration = Duration::from_secs(15);

/// Maximum bytes of a request head.
const HEAD_BYTES: usize = 16 * 1024;

/// Maximum number of headers.
const HEADERS: usize = 100;

/// Delay after a failed `accept`: mostly there are too few descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Headers of every response.
const HEADERS_OF_ALL: &str = "Allow: GET, HEAD\r\nCache-Control: no-store\r\n\
                              Connection: close\r\nX-Content-Type-Options: nosniff\r\n";

const FRONT: &str = concat!(
    "<!DOCTYPE html>\n<html lang=\"en\"><head><title>gctrace</title></head><body><h1>gctrace ",
    env!("CARGO_PKG_VERSION"),
    "</h1>\n<p><a href=\"/metrics\">Metrics</a> of Python's garbage collector on this host.</p></body></html>\n"
);

/// The rest of a response: head and body. Connections share the body.
type HttpResponse = io::Chain<Cursor<Vec<u8>>, Cursor<Arc<[u8]>>>;

/// The pages, and the access rule.
pub(super) struct MetricsSite {
    pub(super) pages: MetricsPages,
    /// Listening on a loopback address: requests with a `Host` that could be rebound are refused.
    pub(super) local_only: bool,
}

/// Serves until `stop` is readable; open connections are then closed. `listener` is nonblocking.
pub(super) fn serve(listener: &TcpListener, mut site: MetricsSite, stop: &EventFd) {
    // Oldest first.
    let mut connections: VecDeque<HttpConnection> = VecDeque::new();
    while !wait(listener, stop, &connections) {
        match HttpConnection::accept(listener) {
            Ok(connection) => {
                // Well-behaved clients are done quickly.
                if connections.len() == CONNECTIONS {
                    connections.pop_front();
                }
                connections.push_back(connection);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::debug!("cannot accept a metrics connection: {error}");
                std::thread::sleep(AFTER_FAILURE);
            }
        }
        connections.retain_mut(|connection| connection.advance(&mut site));
    }
}

/// Waits until something can be done, and returns whether that is to stop.
fn wait(listener: &TcpListener, stop: &EventFd, connections: &VecDeque<HttpConnection>) -> bool {
    let mut descriptors = vec![
        PollFd::new(stop.as_fd(), PollFlags::POLLIN),
        PollFd::new(listener.as_fd(), PollFlags::POLLIN),
    ];
    descriptors.extend(connections.iter().map(HttpConnection::awaited));
    let deadline = connections.iter().map(HttpConnection::deadline).min();
    let limit = if let Some(deadline) = deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    } else {
        PollTimeout::NONE
    };
    match poll(&mut descriptors, limit) {
        Ok(_) => descriptors[0].any() == Some(true),
        Err(Errno::EINTR) => false,
        Err(errno) => {
            tracing::warn!("cannot serve metrics any longer: {errno}");
            true
        }
    }
}

/// A connection: reads one request and sends the response.
struct HttpConnection {
    stream: TcpStream,
    accepted: Instant,
    received: Vec<u8>,
    /// The rest of the response, once the head of the request is complete.
    response: Option<HttpResponse>,
}

impl HttpConnection {
    fn accept(listener: &TcpListener) -> io::Result<Self> {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, accepted: Instant::now(), received: Vec::new(), response: None })
    }

    fn awaited(&self) -> PollFd<'_> {
        let awaited = match self.response {
            None => PollFlags::POLLIN,
            Some(_) => PollFlags::POLLOUT,
        };
        PollFd::new(self.stream.as_fd(), awaited)
    }

    fn deadline(&self) -> Instant {
        self.accepted + if self.response.is_none() { HEAD } else { CONNECTION }
    }

    /// Reads and writes as far as possible without waiting. Returns whether anything is left to do.
    fn advance(&mut self, site: &mut MetricsSite) -> bool {
        match self.exchange(site) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Instant::now() < self.deadline()
            }
            Err(error) => {
                tracing::debug!("metrics connection failed: {error}");
                false
            }
        }
    }

    fn exchange(&mut self, site: &mut MetricsSite) -> io::Result<()> {
        loop {
            if let Some(response) = &mut self.response {
                return send(&mut self.stream, response);
            }
            let mut bytes = [0; 4096];
            let length = self.stream.read(&mut bytes)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(&bytes[..length]);
            self.response = respond(&self.received, site);
        }
    }
}

fn send(stream: &mut TcpStream, response: &mut HttpResponse) -> io::Result<()> {
    loop {
        let bytes = response.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = stream.write(bytes)?;
        response.consume(sent);
    }
}

/// The response to a request; `None` while its head is incomplete.
fn respond(received: &[u8], site: &mut MetricsSite) -> Option<HttpResponse> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = Request::new(&mut headers);
    let (status, kind, body) = match request.parse(received) {
        Ok(Status::Complete(_)) => answer(&request, site),
        Ok(Status::Partial) if received.len() < HEAD_BYTES => return None,
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            plain("431 Request Header Fields Too Large", "too many headers\n")
        }
        Err(_) => plain("400 Bad Request", "not an HTTP/1 request\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{HEADERS_OF_ALL}\r\n",
        body.len()
    );
    let body = match request.method {
        Some("HEAD") => Arc::default(),
        _ => body,
    };
    Some(Cursor::new(head.into_bytes()).chain(Cursor::new(body)))
}

/// Status, content type and body.
type Answer = (&'static str, &'static str, Arc<[u8]>);

/// Serves GET and HEAD of two paths.
fn answer(request: &Request<'_, '_>, site: &mut MetricsSite) -> Answer {
    // A parsed request has a path.
    let Some(target) = request.path else {
        return plain("400 Bad Request", "not an HTTP/1 request\n");
    };
    let (host, path) = match target.strip_prefix("http://") {
        Some(absolute) => {
            let (host, path) = absolute.split_at(absolute.find('/').unwrap_or(absolute.len()));
            (Some(host), path)
        }
        None => (None, target),
    };
    if site.local_only && !(host.is_none_or(access::is_local) && names_this_machine(request)) {
        return plain(
            "403 Forbidden",
            "gctrace listens on localhost only: use an IP address or localhost as host name\n",
        );
    }
    let path = if let Some((path, _)) = path.split_once(['?', '#']) { path } else { path };
    match (request.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => metrics(|| site.pages.page()),
        (Some("GET" | "HEAD"), "/") => ("200 OK", HTML, FRONT.as_bytes().into()),
        (_, "/metrics" | "/") => plain("405 Method Not Allowed", "only GET and HEAD\n"),
        _ => plain("404 Not Found", "not found; the metrics are at /metrics\n"),
    }
}

/// The metrics page. A panic while it is made is a bug of gctrace, with its message already printed: this request
/// fails, and later ones are served.
fn metrics(make: impl FnOnce() -> Result<Arc<[u8]>, std::fmt::Error>) -> Answer {
    // The cache and the figures are replaced as a whole, so that none is left half-made.
    match std::panic::catch_unwind(AssertUnwindSafe(make)) {
        Ok(Ok(page)) => return ("200 OK", OPEN_METRICS, page),
        Ok(Err(error)) => tracing::warn!("cannot encode the metrics page: {error}"),
        Err(_panic) => tracing::error!("the metrics page failed; this is a bug of gctrace"),
    }
    plain(
        "500 Internal Server Error",
        "the page could not be encoded; see the messages of gctrace\n",
    )
}

/// Checks each `Host` header. A request without one (HTTP/1.0) does not come from a browser.
fn names_this_machine(request: &Request<'_, '_>) -> bool {
    let mut headers = request.headers.iter();
    headers.all(|header| {
        !header.name.eq_ignore_ascii_case("host")
            || std::str::from_utf8(header.value).is_ok_and(access::is_local)
    })
}

fn plain(status: &'static str, text: &str) -> Answer {
    (status, PLAIN, text.as_bytes().into())
}

#[cfg(test)]
mod tests;
