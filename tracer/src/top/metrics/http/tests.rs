use super::*;
use crate::top::live_handle::LiveHandle;
use crate::top::metrics::{MetricsServer, ServeError};
use gctrace_analysis::live::Live;
use gctrace_event::TraceHeader;
use proptest::prelude::*;
use std::net::{SocketAddr, TcpStream};

fn server(address: &str) -> MetricsServer {
    let live = Live::new(TraceHeader::default(), 10_000_000);
    MetricsServer::start(address.parse().unwrap(), false, Arc::new(LiveHandle::new(live))).unwrap()
}

/// Sends bytes and reads the response until the connection is closed.
fn answered(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A server that responds before it has read everything resets the connection.
    let _reset = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn asked(to: SocketAddr, line: &str, headers: &str) -> (String, String) {
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let answer = answered(to, request.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_lowercase(), body.to_owned())
}

#[test]
fn the_page_is_served_over_both_families_of_addresses() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let server = server(address);
        let (head, body) = asked(server.address(), "GET /metrics", "");
        assert!(head.starts_with("http/1.1 200 ok"), "{head}");
        assert!(
            head.contains(
                "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"
            )
        );
        assert!(head.contains(&format!("content-length: {}", body.len())));
        assert!(body.ends_with("\n# EOF\n"), "{body}");
        assert!(body.contains("\ngctrace_processes 0\n"), "{body}");
    }
}

#[test]
fn names_that_could_be_rebound_are_refused_where_it_is_of_this_machine_alone() {
    let status = |server: &MetricsServer, host: &str| {
        let port = server.address().port();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = answered(SocketAddr::from(([127, 0, 0, 1], port)), request.as_bytes());
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    let local = server("127.0.0.1:0");
    assert_eq!(status(&local, "evil.example.com"), "403");
    assert_eq!(status(&local, "localhost:9464"), "200");
    assert_eq!(status(&local, "127.0.0.1"), "200");
    let target = b"GET http://evil.example.com/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(answered(local.address(), target).starts_with("HTTP/1.1 403"));
    let open = server("0.0.0.0:0");
    assert_eq!(status(&open, "node7.cluster.example"), "200");
}

#[test]
fn openmetrics_whatever_is_accepted() {
    let server = server("127.0.0.1:0");
    let (head, body) = asked(server.address(), "GET /metrics", "Accept: text/plain\r\n");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(body.ends_with("\n# EOF\n"));
}

#[test]
fn paths_and_methods() {
    let server = server("127.0.0.1:0");
    let to = server.address();
    let (head, body) = asked(to, "GET /", "");
    assert!(head.contains("200 ok") && body.contains("href=\"/metrics\""));
    let (head, body) = asked(to, "HEAD /metrics", "");
    assert!(head.contains("200 ok") && body.is_empty());
    assert!(head.contains("content-length: ") && !head.contains("content-length: 0"));
    let (head, _) = asked(to, "GET /metrics?x=1", "");
    assert!(head.contains("200 ok"));
    for path in ["/metric", "/metrics/", "/../etc/passwd", "/%2e%2e", "*"] {
        let (head, _) = asked(to, &format!("GET {path}"), "");
        assert!(head.contains("404 not found"), "{path}: {head}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let (head, _) = asked(to, &format!("{method} /metrics"), "Content-Length: 0\r\n");
        assert!(head.contains("405 method not allowed"), "{method}: {head}");
        assert!(head.contains("allow: get, head"));
    }
    let (head, _) = asked(to, "POST /metrics", "Transfer-Encoding: chunked\r\n");
    assert!(head.contains("405 method not allowed"), "{head}");
}

#[test]
fn silent_and_slow_clients_hinder_nobody() {
    let server = server("127.0.0.1:0");
    let to = server.address();
    let silent: Vec<TcpStream> = (0..4 * CONNECTIONS)
        .map(|index| {
            let mut stream = TcpStream::connect(to).unwrap();
            if index % 2 == 0 {
                // May have been aborted already.
                let _cut_off = stream.write_all(b"GET /metrics HTTP/1.1\r\nHo");
            }
            stream
        })
        .collect();
    let began = std::time::Instant::now();
    let (head, _) = asked(to, "GET /metrics", "");
    assert!(head.contains("200 ok"));
    // Only less than the timeout of a silent client.
    assert!(began.elapsed() < HEAD);
    drop(silent);
}

#[test]
fn a_head_that_does_not_end_is_refused() {
    let server = server("127.0.0.1:0");
    let to = server.address();
    let endless = format!("GET /metrics HTTP/1.1\r\nx: {}", "y".repeat(1 << 20));
    let answer = answered(to, endless.as_bytes());
    assert!(!answer.contains("200 OK"), "{answer}");
    let many: String = (0..10_000).map(|n| format!("x{n}: y\r\n")).collect();
    let answer = answered(to, format!("GET /metrics HTTP/1.1\r\n{many}\r\n").as_bytes());
    assert!(!answer.contains("200 OK"), "{answer}");
    assert!(asked(to, "GET /metrics", "").0.contains("200 ok"));
}

#[test]
fn an_address_that_is_taken_is_named() {
    let server = server("127.0.0.1:0");
    let address = server.address();
    let live = Live::new(TraceHeader::default(), 10_000_000);
    let error = MetricsServer::start(address, false, Arc::new(LiveHandle::new(live))).unwrap_err();
    assert!(matches!(error, ServeError::Bind { .. }));
    assert!(error.to_string().contains(&address.to_string()));
    drop(server);
    // Dropping the server freed the address.
    let live = Live::new(TraceHeader::default(), 10_000_000);
    MetricsServer::start(address, false, Arc::new(LiveHandle::new(live))).unwrap();
}

proptest! {

    /// The server serves the next client after any input.
    #[test]
    fn garbage_is_survived(bytes in garbage()) {
        let server = server("127.0.0.1:0");
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let _refused = stream.write_all(&bytes);
        stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        if !answer.is_empty() {
            prop_assert!(answer.starts_with(b"HTTP/1."));
        }
        prop_assert!(asked(server.address(), "GET /metrics", "").0.contains("200 ok"));
    }
}

/// Arbitrary bytes, and requests with some bytes changed.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: text/plain;q=0.5\r\nContent-Length: 3\r\n\r\nabc";
    let changes = prop::collection::vec((0..request.len(), any::<u8>()), 1..6);
    let changed = changes.prop_map(move |changes| {
        let mut bytes = request.to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..300), changed]
}

#[test]
fn a_page_that_panics_is_an_error_of_that_request_alone() {
    let (status, _, body) = metrics(|| panic!("a broken invariant, on purpose"));
    assert_eq!(status, "500 Internal Server Error");
    assert!(body.ends_with(b"see the messages of gctrace\n"));
    let (status, _, body) = metrics(|| Ok(b"page"[..].into()));
    assert_eq!((status, &body[..]), ("200 OK", &b"page"[..]));
}
