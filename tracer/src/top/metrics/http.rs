//! One request for each connection: what is asked for, and what is answered.
//!
//! Owns the limits that keep a slow, silent, greedy or confused client from costing more than a connection.

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

/// Connections at the same time.
const CONNECTIONS: usize = 64;

/// Most time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Most time for a connection, reading the answer included. Prometheus gives up after 10 s itself
/// (`scrape_timeout`).
const CONNECTION: Duration = Duration::from_secs(15);

/// Most bytes of a request's head; hyper takes no less than 8 KiB.
const HEAD_BYTES: usize = 16 * 1024;

/// Pause after a connection could not be taken, mostly for want of descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

type Answer = Response<Full<Bytes>>;

/// What is served, and to whom.
pub(super) struct MetricsSite {
    pub(super) pages: MetricsPages,
    /// It listens at a loopback address: requests by names that others could make mean it are refused.
    pub(super) local_only: bool,
}

/// Serves until told to stop. What is under way then is cut off with the runtime.
pub(super) async fn serve(
    listener: TcpListener,
    site: MetricsSite,
    stopped: oneshot::Receiver<()>,
) {
    tokio::spawn(accept(listener, Arc::new(site)));
    let _told_or_forgotten = stopped.await;
}

async fn accept(listener: TcpListener, site: Arc<MetricsSite>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("no metrics can be served: {error}");
            return;
        }
    };
    let mut connections = HttpConnections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let conversation = converse(stream, Arc::clone(&site));
                connections.add(tokio::spawn(conversation).abort_handle());
            }
            Err(error) => {
                tracing::debug!("a connection for metrics could not be taken: {error}");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}

/// Connections under way, oldest first.
#[derive(Default)]
struct HttpConnections(VecDeque<AbortHandle>);

impl HttpConnections {
    /// One more. Where there are too many the oldest is cut off: clients that ask and read need no time, so it is
    /// one that does neither.
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

/// Reads one request and answers it.
async fn converse(stream: TcpStream, site: Arc<MetricsSite>) {
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
        Ok(Err(error)) => tracing::debug!("a connection for metrics: {error}"),
        Err(_) => tracing::debug!("a connection for metrics took too long"),
    }
}

/// GET and HEAD of two paths. That a HEAD is answered without the body is hyper's doing.
fn answer<B>(request: &Request<B>, site: &MetricsSite) -> Answer {
    if site.local_only && !names_this_machine(request) {
        return plain(
            StatusCode::FORBIDDEN,
            "ask by an address or as localhost: gctrace listens for this machine alone\n",
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

/// By each `Host`, and by the target where that is absolute. Without any (HTTP/1.0) it is no browser.
fn names_this_machine<B>(request: &Request<B>) -> bool {
    let target = request.uri().host().is_none_or(access::is_local);
    let hosts = request.headers().get_all(header::HOST);
    let local = |host: &header::HeaderValue| host.to_str().is_ok_and(access::is_local);
    target && hosts.iter().all(local)
}

fn metrics<B>(request: &Request<B>, pages: &MetricsPages) -> Answer {
    let accepted = request.headers().get_all(header::ACCEPT);
    let accepted = accepted.iter().filter_map(|value| value.to_str().ok());
    let format = ExpositionFormat::accepted(accepted);
    match pages.page(format) {
        Ok(page) => of_kind(StatusCode::OK, format.content_type(), page),
        Err(error) => {
            tracing::warn!("the page of metrics could not be written: {error}");
            plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the page could not be written; gctrace says why\n",
            )
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let body = Bytes::from_static(text.as_bytes());
    of_kind(status, "text/plain; charset=utf-8", body)
}

fn of_kind(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
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
            "</h1>\n<p>What Python's garbage collector does here: <a href=\"/metrics\">metrics</a>.</p></body></html>\n"
        )
        .as_bytes(),
    )
}

#[cfg(test)]
mod tests;
