//! HTTP connections, one request each.
//!
//! Owns the limits that keep slow, silent or abusive clients from costing more than a connection.

use crate::top::metrics::access;
use crate::top::metrics::page::MetricsPages;
use crate::top::metrics::text::ExpositionFormat;
use http_body_util::Full;
use hyper::Method;
use hyper::Request;
use hyper::Response;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::header;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 64;

/// Timeout for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Timeout for a connection, including sending the response. Prometheus itself gives up after 10 s
/// (`scrape_timeout`).
const CONNECTION: Duration = Duration::from_secs(15);

/// Maximum bytes of a request head; hyper requires at least 8 KiB.
const HEAD_BYTES: usize = 16 * 1024;

/// Delay after a failed `accept`, which mostly means too few descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

type HttpResponse = Response<Full<Bytes>>;

/// The pages, and the access rule.
pub(super) struct MetricsSite {
    pub(super) pages: MetricsPages,
    /// Listening on a loopback address: requests with a `Host` that could be rebound are refused.
    pub(super) local_only: bool,
}

/// Serves until `stopped` resolves. Open connections are then dropped with the runtime.
pub(super) async fn serve(
    listener: TcpListener,
    site: MetricsSite,
    stopped: oneshot::Receiver<()>,
) {
    tokio::spawn(accept(listener, Arc::new(site)));
    let _stopped_or_dropped = stopped.await;
}

async fn accept(listener: TcpListener, site: Arc<MetricsSite>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("cannot serve metrics: {error}");
            return;
        }
    };
    let mut connections = HttpConnections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = handle(stream, Arc::clone(&site));
                connections.add(tokio::spawn(connection).abort_handle());
            }
            Err(error) => {
                tracing::debug!("cannot accept a metrics connection: {error}");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}

/// Open connections, oldest first.
#[derive(Default)]
struct HttpConnections(VecDeque<AbortHandle>);

impl HttpConnections {
    /// Adds a connection. At the limit, the oldest is aborted: well-behaved clients are done quickly.
    fn add(&mut self, connection: AbortHandle) {
        if self.0.len() >= CONNECTIONS {
            self.0.retain(|other| !other.is_finished());
        }
        if self.0.len() >= CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(connection);
    }
}

/// Reads one request and sends the response.
async fn handle(stream: TcpStream, site: Arc<MetricsSite>) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(&request, &site);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("metrics connection failed: {error}"),
        Err(_) => tracing::debug!("metrics connection timed out"),
    }
}

/// Serves GET and HEAD of two paths; hyper omits the body for HEAD.
fn answer<B>(request: &Request<B>, site: &MetricsSite) -> HttpResponse {
    if site.local_only && !names_this_machine(request) {
        return plain(
            StatusCode::FORBIDDEN,
            "gctrace listens on localhost only: use an IP address or localhost as host name\n",
        );
    }
    let pages = &site.pages;
    let readable = matches!(*request.method(), Method::GET | Method::HEAD);
    match (readable, request.uri().path()) {
        (true, "/metrics") => metrics(request, pages),
        (true, "/") => of_kind(StatusCode::OK, "text/html; charset=utf-8", front()),
        (false, "/metrics" | "/") => {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            let allowed = header::HeaderValue::from_static("GET, HEAD");
            refusal.headers_mut().insert(header::ALLOW, allowed);
            refusal
        }
        _ => plain(
            StatusCode::NOT_FOUND,
            "not found; the metrics are at /metrics\n",
        ),
    }
}

/// Checks each `Host` header, and the target if it is absolute. A request without either (HTTP/1.0)
/// does not come from a browser.
fn names_this_machine<B>(request: &Request<B>) -> bool {
    let target = request.uri().host().is_none_or(access::is_local);
    let hosts = request.headers().get_all(header::HOST);
    let local = |host: &header::HeaderValue| host.to_str().is_ok_and(access::is_local);
    target && hosts.iter().all(local)
}

fn metrics<B>(request: &Request<B>, pages: &MetricsPages) -> HttpResponse {
    let accepted = request.headers().get_all(header::ACCEPT);
    let accepted = accepted.iter().filter_map(|value| value.to_str().ok());
    let format = ExpositionFormat::accepted(accepted);
    match pages.page(format) {
        Ok(page) => of_kind(StatusCode::OK, format.content_type(), page),
        Err(error) => {
            tracing::warn!("cannot encode the metrics page: {error}");
            plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the page could not be encoded; see the messages of gctrace\n",
            )
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> HttpResponse {
    let body = Bytes::from_static(text.as_bytes());
    of_kind(status, "text/plain; charset=utf-8", body)
}

fn of_kind(status: StatusCode, kind: &'static str, body: Bytes) -> HttpResponse {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    let fixed = header::HeaderValue::from_static;
    headers.insert(header::CONTENT_TYPE, fixed(kind));
    headers.insert(header::CACHE_CONTROL, fixed("no-store"));
    headers.insert(header::VARY, fixed("accept"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    answer
}

fn front() -> Bytes {
    Bytes::from_static(
        concat!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><title>gctrace</title></head><body><h1>gctrace ",
            env!("CARGO_PKG_VERSION"),
            "</h1>\n<p><a href=\"/metrics\">Metrics</a> of Python's garbage collector on this host.</p></body></html>\n"
        )
        .as_bytes(),
    )
}

#[cfg(test)]
mod tests;
